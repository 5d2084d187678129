//! Small values in the caller's memory, and paths there, copied under the guard: a bad pointer gives `EFAULT` rather
//! than a fault. As long as no file is open there is no guard, and the kernel copies the values, by two system calls.

use crate::error::{Error, Result};
use crate::file::{self, UserBuf};
use crate::map::guard;
use crate::posix::raw;
use crate::sys::check;
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;

/// The most that one call transfers (the kernel's `MAX_RW_COUNT`).
pub(in crate::posix) const MOST: usize = 0x7fff_f000;
/// The most buffers that one call takes (`UIO_MAXIOV`).
const VECTORS: usize = 1024;
/// Up to this many are copied to the stack.
const FEW: usize = 16;

/// Copies a plain value from the caller's memory.
///
/// # Safety
/// `T` is valid for any bytes.
pub(in crate::posix) unsafe fn get<T: Copy>(from: *const T) -> Result<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: `value` is as large as what is asked for.
    unsafe {
        copy_in(value.as_mut_ptr().cast(), from.cast(), size_of::<T>())?;
        Ok(value.assume_init())
    }
}

/// A path, which the kernel may not have checked yet. The guard must be installed.
///
/// # Errors
/// `EFAULT`: it cannot be read. `ENAMETOOLONG`.
///
/// # Safety
/// The path is not changed while the result is in use.
pub(in crate::posix) unsafe fn path<'a>(path: *const c_char) -> Result<&'a CStr> {
    // `strnlen` may start reading before the path, in the same cache line.
    let line = path.cast::<u8>().map_addr(|addr| addr & !63);
    let most = (libc::PATH_MAX as usize).min(usize::MAX - path.addr());
    // SAFETY: it only reads, and can be left at any point.
    let length = unsafe { guard::run_on(line, most.saturating_add(64), || libc::strnlen(path, most)) };
    match length {
        // SAFETY: it has just been read up to its terminator.
        Ok(length) if length < most => Ok(unsafe { CStr::from_ptr(path) }),
        Ok(_) if most == libc::PATH_MAX as usize => Err(Error::new(libc::ENAMETOOLONG)),
        // Or the addresses end before it does.
        _ => Err(Error::new(libc::EFAULT)),
    }
}

/// Copies a plain value to the caller's memory.
pub(in crate::posix) fn put<T: Copy>(to: *mut T, value: &T) -> Result<()> {
    if guard::is_installed() {
        // SAFETY: the value is ours, and alive.
        return unsafe { file::copy_out(to.cast(), core::ptr::from_ref(value).cast(), size_of::<T>()) };
    }
    let ours = UserBuf { base: core::ptr::from_ref(value).cast_mut().cast(), len: size_of::<T>() };
    let theirs = UserBuf { base: to.cast(), len: size_of::<T>() };
    // SAFETY: the kernel checks the caller's side; ours is alive.
    let done = unsafe { raw!(SYS_process_vm_writev, own_pid(), &raw const ours, 1, &raw const theirs, 1, 0) };
    whole(done, size_of::<T>(), || {
        // SAFETY: a sandbox forbids the kernel's check, so this behaves as a plain library function.
        unsafe { to.write_unaligned(*value) }
    })
}

/// # Safety
/// `to` is valid for writing `len` bytes.
unsafe fn copy_in(to: *mut u8, from: *const u8, len: usize) -> Result<()> {
    if guard::is_installed() {
        // SAFETY: the target is valid by the promise above, and nothing else uses it yet.
        return unsafe { file::copy_in(to, from, len) };
    }
    let ours = UserBuf { base: to, len };
    let theirs = UserBuf { base: from.cast_mut(), len };
    // SAFETY: the kernel checks the caller's side; ours is valid by the promise above.
    let done = unsafe { raw!(SYS_process_vm_readv, own_pid(), &raw const ours, 1, &raw const theirs, 1, 0) };
    whole(done, len, || {
        // SAFETY: a sandbox forbids the kernel's check, so this behaves as a plain library function.
        unsafe { to.copy_from_nonoverlapping(from, len) }
    })
}

fn own_pid() -> isize {
    // SAFETY: no arguments.
    unsafe { raw!(SYS_getpid) }
}

fn whole(done: isize, len: usize, otherwise: impl FnOnce()) -> Result<()> {
    match check(done) {
        Ok(n) if n == len => Ok(()),
        Err(error) if matches!(error.errno(), libc::ENOSYS | libc::EPERM) => {
            otherwise();
            Ok(())
        }
        _ => Err(Error::new(libc::EFAULT)),
    }
}

/// The kernel's check of a range, made before the range is touched.
#[inline]
pub(in crate::posix) fn range_ok(base: *const u8, len: usize) -> bool {
    (base as usize).checked_add(len).is_some_and(|end| end as isize >= 0)
}

/// A copy of the caller's `iovec`s, checked and shortened as by the kernel.
pub(in crate::posix) struct Vectors {
    few: [UserBuf; FEW],
    many: Vec<UserBuf>,
    count: usize,
    total: usize,
}

impl Vectors {
    /// # Safety
    /// No requirement beyond that of reading: `from` may be bad.
    pub(in crate::posix) unsafe fn copy(from: *const UserBuf, count: usize) -> Result<Self> {
        if count > VECTORS {
            return Err(Error::new(libc::EINVAL));
        }
        let mut vectors =
            Vectors { few: [UserBuf { base: core::ptr::null_mut(), len: 0 }; FEW], many: Vec::new(), count, total: 0 };
        if count > FEW {
            vectors.many = vec![UserBuf { base: core::ptr::null_mut(), len: 0 }; count];
        }
        if count > 0 {
            let target = vectors.slice_mut().as_mut_ptr();
            // SAFETY: the target has room for `count` of them, and any bytes are a `UserBuf`.
            unsafe { copy_in(target.cast(), from.cast(), count * size_of::<UserBuf>())? };
        }
        if vectors.slice().iter().any(|buf| buf.len as isize <= -1) {
            return Err(Error::new(libc::EINVAL));
        }
        let mut total = 0;
        for buf in vectors.slice_mut() {
            if !range_ok(buf.base, buf.len) {
                return Err(Error::new(libc::EFAULT));
            }
            buf.len = buf.len.min(MOST - total);
            total += buf.len;
        }
        vectors.total = total;
        Ok(vectors)
    }

    pub(in crate::posix) fn slice_mut(&mut self) -> &mut [UserBuf] {
        if self.count > FEW { &mut self.many } else { &mut self.few[..self.count] }
    }

    pub(in crate::posix) fn slice(&self) -> &[UserBuf] {
        if self.count > FEW { &self.many } else { &self.few[..self.count] }
    }

    /// Total number of bytes.
    pub(in crate::posix) fn total(&self) -> usize {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: usize = 8;

    /// With and without the guard, which other tests of the process install, too.
    #[test]
    fn bad_pointers_are_an_error() {
        bad_pointers_say_so();
        guard::install().unwrap();
        bad_pointers_say_so();
    }

    fn bad_pointers_say_so() {
        let mut target = [0u32; 2];
        put(&raw mut target[1], &7).unwrap();
        assert_eq!(target, [0, 7]);
        for bad in [0, BAD, 1 << 47, usize::MAX - 7] {
            // SAFETY: any bytes are a u64.
            assert_eq!(unsafe { get(bad as *const u64) }.unwrap_err().errno(), libc::EFAULT, "{bad:#x}");
        }
        // SAFETY: as above.
        unsafe {
            assert_eq!(get(BAD as *const u64).unwrap_err().errno(), libc::EFAULT);
            let good = MOST;
            assert_eq!(get(&raw const good).unwrap(), MOST);
            assert_eq!(Vectors::copy(BAD as *const UserBuf, 1).err().unwrap().errno(), libc::EFAULT);
            assert_eq!(Vectors::copy(BAD as *const UserBuf, 1025).err().unwrap().errno(), libc::EINVAL);
        }
        assert_eq!(put(BAD as *mut u64, &1).unwrap_err().errno(), libc::EFAULT);
    }

    #[test]
    fn a_path_that_can_not_be_read_is_an_error() {
        guard::install().unwrap();
        // SAFETY: bad addresses are an error.
        let errno = |at: *const c_char| unsafe { path(at) }.map_err(|error| error.errno());
        assert_eq!(errno(c"some/file".as_ptr()), Ok(c"some/file"));
        let long = [b'x'; libc::PATH_MAX as usize];
        assert_eq!(errno(long.as_ptr().cast()), Err(libc::ENAMETOOLONG));
        for bad in [0, BAD, 65, usize::MAX] {
            assert_eq!(errno(bad as *const c_char), Err(libc::EFAULT), "{bad:#x}");
        }
    }

    #[test]
    fn vectors_are_cut_at_the_kernels_limit() {
        let base = 4096 as *mut u8;
        let given = [UserBuf { base, len: MOST - 5 }, UserBuf { base, len: 100 }, UserBuf { base, len: 7 }];
        // SAFETY: the vectors are copied, not followed.
        let vectors = unsafe { Vectors::copy(given.as_ptr(), 3) }.unwrap();
        assert_eq!(vectors.slice().iter().map(|buf| buf.len).collect::<Vec<_>>(), [MOST - 5, 5, 0]);
        assert_eq!(vectors.total(), MOST);
    }
}
