//! How a test program ends.

use std::process::ExitCode;

/// Success when all was as it should be, failure when it was not, and 2, with a message, when it could not be found out.
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
