//! Journals of records: written, broken and replayed.

mod crash;
mod hostile;
mod life;
mod speed;
mod test_hooks;
mod zeros;
