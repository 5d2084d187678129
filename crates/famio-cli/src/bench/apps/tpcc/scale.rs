//! How large the database is.

use serde::{Deserialize, Serialize};

/// Rows of a warehouse, of which there is one. The specification has the larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    pub items: i64,
    /// Of each of the ten districts; as many orders are there at first.
    pub customers: i64,
}

impl Scale {
    pub const WHOLE: Self = Self { items: 100_000, customers: 3000 };
    pub const QUICK: Self = Self { items: 5000, customers: 150 };
}

/// Of the warehouse.
pub const DISTRICTS: i64 = 10;

/// Of each customer, cents; this much each has paid at first.
pub const FIRST_PAYMENT: i64 = 1000;
