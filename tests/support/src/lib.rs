//! Code shared by the test programs: reproducible random numbers, temporary folders, parsing of arguments, ways to
//! start, feed and kill a program, the end of a test program, the kernel's locks on a file, and the machine's
//! memory.

pub mod arguments;
pub mod ending;
pub mod kernel_locks;
pub mod launch;
pub mod memory;
pub mod place;
pub mod random;
pub mod session;
