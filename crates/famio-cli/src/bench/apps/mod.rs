//! Programs in small: key-value stores, TPC-C on a database, and servers that work with many files. Each makes its
//! calls one after another in a worker, drawn from the number of the call. So the bench can draw them again, and knows
//! what must be there in the end.

mod app;
mod folder;
mod measure;
mod store;
mod tpcc;
mod worker;
mod ycsb;

pub use app::App;
pub use folder::Personality;
pub use measure::{AppCell, figure, steps};
pub use store::Engine;
pub use tpcc::{Scale, Tpcc};
pub use worker::{Args as WorkArgs, main as work_main};
pub use ycsb::{Letter, Ycsb};
