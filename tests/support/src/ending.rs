//! The exit status of a test program.

use std::process::ExitCode;

/// Success if everything was right, failure if not, and 2, with a message, if that could not be determined.
pub fn exit_code(program: &str, result: Result<bool, String>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::from(2)
        }
    }
}
