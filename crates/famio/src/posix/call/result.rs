//! What a call of the program's returns, and the kernel's calls by name.

/// What a system call returns: `-4095..=-1` is a negated errno.
pub type Ret = isize;

/// A system call by name, with up to six arguments of any integer or pointer type.
macro_rules! raw {
    ($number:ident $(, $arg:expr)* $(,)?) => {{
        // The caller states in its own SAFETY comment why the arguments are sound.
        $crate::sys::syscall(libc::$number, raw!(@six $($arg as usize,)* 0, 0, 0, 0, 0, 0))
    }};
    (@six $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr $(, $none:literal)*) => { [$a, $b, $c, $d, $e, $f] };
}
pub(crate) use raw;

/// An errno as a system call's result.
#[inline]
pub(in crate::posix) const fn fail(errno: i32) -> Ret {
    -(errno as isize)
}
