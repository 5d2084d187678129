//! `syscall(2)` by number: traced calls are handled like their functions; all others go to libc's function unchanged,
//! without a stack frame of ours: a child made by `clone` or `vfork` returns on another stack, or before its parent.

use crate::look::before;
use crate::*;
use core::ffi::{c_long, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use famio::sys::syscall as raw;

static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Looks libc's function up.
pub fn find_next() {
    // SAFETY: a C string.
    NEXT.store(unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) }, Ordering::Release);
}

/// The kind of a system call's function.
const fn kind(number: c_long) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_open | libc::SYS_creat => return Some(OPENS),
        libc::SYS_unlink => return Some(REMOVES),
        libc::SYS_rename => return Some(RENAMES),
        _ => {}
    }
    Some(match number {
        libc::SYS_openat | libc::SYS_openat2 | libc::SYS_open_by_handle_at => OPENS,
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => READS,
        libc::SYS_write | libc::SYS_writev => WRITES,
        libc::SYS_pwrite64 | libc::SYS_pwritev => WRITES_AT,
        libc::SYS_pwritev2 => WRITES_V2,
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range => SYNCS,
        libc::SYS_msync => SYNCS_MAP,
        libc::SYS_mmap => MAPS,
        libc::SYS_ftruncate => CUTS,
        libc::SYS_truncate => CUTS_PATH,
        libc::SYS_fcntl => LOCKS_FCNTL,
        libc::SYS_flock => LOCKS_FLOCK,
        libc::SYS_unlinkat => REMOVES_AT,
        libc::SYS_renameat | libc::SYS_renameat2 => RENAMES_AT,
        libc::SYS_sendfile => SENDS,
        libc::SYS_copy_file_range | libc::SYS_splice => COPIES,
        _ => return None,
    })
}

static TRACED: [bool; 512] = {
    let mut table = [false; 512];
    let mut number = 0;
    while number < table.len() {
        table[number] = kind(number as c_long).is_some();
        number += 1;
    }
    table
};

/// # Safety
/// As the system call.
unsafe extern "C" fn traced(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let mut arguments = [a, b, c, d, e, f].map(|word| word as isize);
    // pwritev2 by number has the upper half of the offset as an additional argument.
    if number == libc::SYS_pwritev2 {
        arguments[4] = arguments[5];
    }
    let kind = kind(number).filter(|_| start::shared().is_some());
    let look = kind.map(|kind| before(kind, &arguments));
    // SAFETY: the caller's promise.
    let result = unsafe { raw(number, [a, b, c, d, e, f]) };
    let failed = (-4095..0).contains(&result);
    if let (Some(kind), Some(look), false) = (kind, look, failed) {
        // SAFETY: the call has just succeeded with these arguments.
        unsafe { record::after(kind, &arguments, result, &look) };
    }
    if failed {
        // SAFETY: the thread's errno lives as long as the thread.
        unsafe { *libc::__errno_location() = -result as i32 };
        return -1;
    }
    result
}

/// `syscall(2)`.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "cmp rdi, 512",
        "jae 2f",
        "lea rax, [rip + {traced}]",
        "cmp byte ptr [rax + rdi], 0",
        "jne 3f",
        "2:",
        "mov rax, [rip + {next}]",
        "test rax, rax",
        "je 3f",
        "jmp rax",
        "3:",
        "jmp {here}",
        traced = sym TRACED,
        next = sym NEXT,
        here = sym traced,
    )
}

/// `syscall(2)`.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "cmp x0, 512",
        "b.hs 2f",
        "adrp x9, {traced}",
        "add x9, x9, :lo12:{traced}",
        "ldrb w9, [x9, x0]",
        "cbnz w9, 3f",
        "2:",
        "adrp x9, {next}",
        "ldr x9, [x9, :lo12:{next}]",
        "cbz x9, 3f",
        "br x9",
        "3:",
        "b {here}",
        traced = sym TRACED,
        next = sym NEXT,
        here = sym traced,
    )
}
