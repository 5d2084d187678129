//! Libraries of others, loaded when they are needed: the command runs without them, and a figure says what is missing.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Declares functions of a library by their symbols, as a struct `Functions` that finds them.
macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions { $($name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

        impl Functions {
            /// # Safety
            /// The library has these symbols with these types.
            unsafe fn find(library: &libloading::os::unix::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the caller's promise.
                unsafe { Ok(Self { $($name: *library.get($symbol)?,)* }) }
            }
        }
    };
}
pub(super) use functions;

/// Opens it by its file name.
///
/// # Safety
/// What it does when it is loaded is sound.
pub unsafe fn open(name: &str, known_as: &str) -> Result<Library, String> {
    // SAFETY: the caller's promise.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| format!("{error}; install {known_as}"))
}
