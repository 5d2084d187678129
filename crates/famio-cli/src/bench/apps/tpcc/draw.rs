//! What a terminal enters, drawn from the number of the transaction.

use super::scale::{DISTRICTS, Scale};

/// A transaction with its input.
pub enum Drawn {
    NewOrder {
        district: i64,
        customer: i64,
        /// Items with their quantities. The last item may not exist: then all is rolled back.
        lines: Vec<(i64, i64)>,
        rolls_back: bool,
    },
    Payment {
        district: i64,
        customer: Customer,
        /// Cents.
        amount: i64,
    },
    OrderStatus {
        district: i64,
        customer: Customer,
    },
    Delivery {
        carrier: i64,
    },
    StockLevel {
        district: i64,
        threshold: i64,
    },
}

/// How a customer is known.
pub enum Customer {
    Id(i64),
    LastName(String),
}

impl Drawn {
    /// Transaction `number`: 45 % New-Order, 43 % Payment, and 4 % of each other.
    pub fn of(number: u64, scale: Scale) -> Self {
        let mut random = fastrand::Rng::with_seed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let district = random.i64(1..=DISTRICTS);
        match random.u32(0..100) {
            0..45 => {
                let customer = uneven(&mut random, 1023, 1, scale.customers);
                let count = random.i64(5..=15);
                let mut lines: Vec<_> =
                    (0..count).map(|_| (uneven(&mut random, 8191, 1, scale.items), random.i64(1..=10))).collect();
                let rolls_back = random.u32(0..100) == 0;
                if let Some(line) = lines.last_mut().filter(|_| rolls_back) {
                    line.0 = scale.items + 1;
                }
                Drawn::NewOrder { district, customer, lines, rolls_back }
            }
            45..88 => {
                let amount = random.i64(100..=500_000);
                Drawn::Payment { district, customer: someone(&mut random, scale), amount }
            }
            88..92 => Drawn::OrderStatus { district, customer: someone(&mut random, scale) },
            92..96 => Drawn::Delivery { carrier: random.i64(1..=10) },
            _ => Drawn::StockLevel { district, threshold: random.i64(10..=20) },
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Drawn::NewOrder { .. } => "New-Order",
            Drawn::Payment { .. } => "Payment",
            Drawn::OrderStatus { .. } => "Order-Status",
            Drawn::Delivery { .. } => "Delivery",
            Drawn::StockLevel { .. } => "Stock-Level",
        }
    }
}

/// Six of ten are known by their last names.
fn someone(random: &mut fastrand::Rng, scale: Scale) -> Customer {
    if random.u32(0..100) < 60 {
        Customer::LastName(last_name(uneven(random, 255, 0, scale.customers.min(1000) - 1)))
    } else {
        Customer::Id(uneven(random, 1023, 1, scale.customers))
    }
}

/// The specification's `NURand`: some numbers come more often.
pub fn uneven(random: &mut fastrand::Rng, a: i64, from: i64, to: i64) -> i64 {
    // A constant of the run.
    const C: i64 = 123;
    (((random.i64(0..=a) | random.i64(from..=to)) + C) % (to - from + 1)) + from
}

/// Three syllables, one for each digit.
pub fn last_name(number: i64) -> String {
    const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    [number / 100, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize]).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_specification() {
        let mut counts = std::collections::BTreeMap::new();
        let mut rolled_back = 0;
        for number in 0..100_000 {
            let drawn = Drawn::of(number, Scale::QUICK);
            *counts.entry(drawn.name()).or_insert(0i64) += 1;
            rolled_back += i64::from(matches!(drawn, Drawn::NewOrder { rolls_back: true, .. }));
        }
        for (name, share) in
            [("New-Order", 45), ("Payment", 43), ("Order-Status", 4), ("Delivery", 4), ("Stock-Level", 4)]
        {
            assert!((counts[name] - share * 1000).abs() < 700, "{counts:?}");
        }
        assert!((300..600).contains(&rolled_back), "{rolled_back}");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
    }
}
