//! Wide characters: libc does not support them for a stream of our kind. Most of its functions report that; those
//! here would follow an invalid pointer.

use super::stream;
use crate::next::Next;
use crate::outcome::set_errno;
use libc::{FILE, wchar_t};

/// `wint_t`.
type Wide = u32;
/// The value for "none".
const WEOF: Wide = Wide::MAX;

/// Whether the stream is ours; sets `EOPNOTSUPP` then.
fn refused(stream: *mut FILE) -> bool {
    let ours = stream::descriptor(stream).is_some();
    if ours {
        set_errno(-(libc::EOPNOTSUPP as isize));
    }
    ours
}

/// Calls libc's function of that name for libc's streams; otherwise returns `none`.
macro_rules! libcs {
    ($name:literal, $type:ty, $none:expr, $stream:expr $(, $before:expr)*) => {{
        static NEXT: Next = Next::new($name);
        if refused($stream) {
            return $none;
        }
        // SAFETY: the caller's promise; the type is that function's.
        unsafe { NEXT.get::<$type>().map_or($none, |next| next($($before,)* $stream)) }
    }};
}

/// # Safety
/// As libc's.
pub unsafe fn fgetwc(stream: *mut FILE) -> Wide {
    libcs!(c"fgetwc", unsafe extern "C" fn(*mut FILE) -> Wide, WEOF, stream)
}

/// # Safety
/// As libc's.
pub unsafe fn fgetwc_unlocked(stream: *mut FILE) -> Wide {
    libcs!(c"fgetwc_unlocked", unsafe extern "C" fn(*mut FILE) -> Wide, WEOF, stream)
}

/// # Safety
/// As libc's.
pub unsafe fn fputwc_unlocked(wide: wchar_t, stream: *mut FILE) -> Wide {
    libcs!(c"fputwc_unlocked", unsafe extern "C" fn(wchar_t, *mut FILE) -> Wide, WEOF, stream, wide)
}

/// # Safety
/// As libc's.
pub unsafe fn ungetwc(wide: Wide, stream: *mut FILE) -> Wide {
    libcs!(c"ungetwc", unsafe extern "C" fn(Wide, *mut FILE) -> Wide, WEOF, stream, wide)
}

type Line = unsafe extern "C" fn(*mut wchar_t, i32, *mut FILE) -> *mut wchar_t;
type CheckedLine = unsafe extern "C" fn(*mut wchar_t, usize, i32, *mut FILE) -> *mut wchar_t;

/// # Safety
/// As libc's.
pub unsafe fn fgetws(buf: *mut wchar_t, count: i32, stream: *mut FILE) -> *mut wchar_t {
    libcs!(c"fgetws", Line, core::ptr::null_mut(), stream, buf, count)
}

/// # Safety
/// As libc's.
pub unsafe fn fgetws_unlocked(buf: *mut wchar_t, count: i32, stream: *mut FILE) -> *mut wchar_t {
    libcs!(c"fgetws_unlocked", Line, core::ptr::null_mut(), stream, buf, count)
}

/// # Safety
/// As libc's.
pub unsafe fn fgetws_chk(buf: *mut wchar_t, size: usize, count: i32, stream: *mut FILE) -> *mut wchar_t {
    libcs!(c"__fgetws_chk", CheckedLine, core::ptr::null_mut(), stream, buf, size, count)
}

/// # Safety
/// As libc's.
pub unsafe fn fgetws_unlocked_chk(buf: *mut wchar_t, size: usize, count: i32, stream: *mut FILE) -> *mut wchar_t {
    libcs!(c"__fgetws_unlocked_chk", CheckedLine, core::ptr::null_mut(), stream, buf, size, count)
}
