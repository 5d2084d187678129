//! What the test programs share: random numbers that a seed repeats, folders that go away, what arguments mean, how a program is
//! started, fed and killed, and how a test program ends.

pub mod arguments;
pub mod ending;
pub mod launch;
pub mod place;
pub mod random;
pub mod session;
