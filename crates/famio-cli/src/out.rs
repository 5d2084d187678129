//! Output on stdout and stderr. A full disk or a closed pipe behind stdout is an error of the command, not a panic;
//! these macros replace the standard library's in the whole crate.

use crate::color::{Style, paint_error};
use crate::failure::{FAILED, Failure};
use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::Mutex;

/// Why stdout accepts no more: the first error.
static BROKEN: Mutex<Option<io::Error>> = Mutex::new(None);

/// As the standard library's, but an error is remembered for [`end`].
macro_rules! print {
    ($($text:tt)*) => { $crate::out::say(format_args!($($text)*), false) };
}

/// As the standard library's, but an error is remembered for [`end`].
macro_rules! println {
    () => { $crate::out::say(format_args!(""), true) };
    ($($text:tt)*) => { $crate::out::say(format_args!($($text)*), true) };
}

/// As the standard library's, but ignores errors, since they could not be reported anywhere.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::out::complain(format_args!($($text)*)) };
}

/// See `print`.
pub fn say(text: Arguments<'_>, line: bool) {
    let mut broken = BROKEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if broken.is_some() {
        return;
    }
    let mut out = io::stdout().lock();
    let said = out.write_fmt(text).and_then(|()| if line { out.write_all(b"\n") } else { Ok(()) });
    *broken = said.err();
}

/// See `eprintln`.
pub fn complain(text: Arguments<'_>) {
    let text = text.to_string();
    let text = crate::text::printable(&text);
    let own = text.strip_prefix("famio: ");
    let name = if own.is_some() { paint_error("famio: ", Style::Bad) } else { String::new() };
    let _ = writeln!(io::stderr().lock(), "{name}{}", own.unwrap_or(&text));
}

/// For a command that changes one file after the other: it goes on if the reader of its output has ended.
pub fn outlive_reader() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Prints JSON, for programs: docs/json.md describes each command's.
pub fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(FAILED, error))?;
    println!("{text}");
    Ok(())
}

/// Ends the command with this exit status, or another one if stdout has not accepted everything.
pub fn end(status: i32) -> i32 {
    let flushed = io::stdout().lock().flush();
    let broken = BROKEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    match broken.or(flushed.err()) {
        None => status,
        // The reader has seen enough.
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => status,
        Some(error) => {
            complain(format_args!("famio: stdout: {error}"));
            if status == 0 { FAILED } else { status }
        }
    }
}
