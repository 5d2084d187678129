//! Journals of records: written, broken and replayed.

mod crash;
mod hostile;
mod lab;
mod life;
mod speed;
