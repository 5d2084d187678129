//! A message for the user and the exit status that goes with it.

use std::fmt::Display;

/// `famio run` refuses, or fails; the program was not run.
pub const REFUSED: i32 = 125;
/// The program exists but cannot be executed.
pub const NOT_EXECUTABLE: i32 = 126;
/// The program does not exist.
pub const NOT_FOUND: i32 = 127;
/// Another command failed.
pub const FAILED: i32 = 1;

/// Why the command ends without success.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub status: i32,
    /// One line, without the leading `famio: `.
    pub message: String,
}

impl Failure {
    /// A failure with its exit status.
    pub fn new(status: i32, message: impl Display) -> Self {
        Self { status, message: message.to_string() }
    }

    /// A failure of `famio run` before the program runs.
    pub fn refused(message: impl Display) -> Self {
        Self::new(REFUSED, message)
    }
}
