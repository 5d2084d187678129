//! The system call instruction.

use crate::error::{Error, Result};

/// Makes a system call by number. The result is the kernel's: `-4095..=-1` is a negated errno.
///
/// # Safety
/// What the call does with its arguments must be sound: pointers valid, lengths right, no memory in use unmapped.
#[inline]
pub unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> isize {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the x86-64 system call convention; rcx and r11 are clobbered. The rest is the caller's promise.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the AArch64 system call convention. The rest is the caller's promise.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// Converts the kernel's result.
#[inline]
pub fn check(result: isize) -> Result<usize> {
    if (-4095..0).contains(&result) { Err(Error::new(-result as i32)) } else { Ok(result as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_back_as_errno() {
        // SAFETY: closing a descriptor that cannot exist touches nothing.
        let result = unsafe { syscall(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(check(result).unwrap_err().errno(), libc::EBADF);
    }
}
