//! Hooks with unusual conventions, and the entries that the C shim calls.

use crate::next::{Next, find};
use crate::outcome::{finish, finish_in_allocator, note};
use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::AtomicBool;
use famio::posix::{self, Ret, Tried, process, table};
use famio::sys::syscall as raw;

/// `closefrom`, which reports no errors.
pub fn closefrom(first: i32) {
    let first = first.max(0) as u32;
    // Not libc's function if the kernel has no close_range: it would close the library's descriptors.
    if finish(|| posix::close_range(first, u32::MAX, 0)) < 0 {
        note(|| posix::close_each_from(first));
    }
}

/// `open` and `openat`. They are variadic in C; on x86-64 and aarch64, integer arguments are passed in the same way
/// as for others. If no mode was given, `mode` has any value, and is not used.
///
/// # Safety
/// As `openat`.
#[inline(always)]
pub unsafe fn openat(dirfd: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { posix::try_open(dirfd, path, flags, mode) } {
        Ok(fd) => {
            crate::first_exit_handler::called();
            fd // errno would be a cache miss; it stays unchanged
        }
        // SAFETY: as above.
        Err(tried) => unsafe { open_selected(dirfd, path, flags, mode, tried) },
    }
}

/// # Safety
/// As `openat`.
#[cold]
unsafe fn open_selected(dirfd: c_int, path: *const c_char, flags: c_int, mode: u32, tried: Tried) -> c_int {
    // SAFETY: the caller's promise.
    finish(|| unsafe { posix::open_selected(dirfd, path, flags, mode, tried) }) as c_int
}

/// `posix_fallocate`, whose result is an errno.
pub fn posix_fallocate(fd: i32, offset: i64, length: i64) -> i32 {
    static NEXT: Next = Next::new(c"posix_fallocate");
    if table::is_managed(fd) {
        if offset < 0 || length <= 0 {
            return libc::EINVAL;
        }
        return -posix::fallocate(fd, 0, offset, length) as i32;
    }
    if is_refused(fd) {
        return libc::EBADF;
    }
    // SAFETY: the type is that function's.
    match unsafe { NEXT.get::<unsafe extern "C" fn(c_int, i64, i64) -> c_int>() } {
        // SAFETY: as above.
        Some(next) => unsafe { next(fd, offset, length) },
        None => libc::ENOSYS,
    }
}

/// `posix_madvise`, whose result is an errno.
pub fn posix_madvise(addr: usize, length: usize, advice: i32) -> i32 {
    -posix::posix_madvise(addr, length, advice) as i32
}

/// `posix_fadvise`, whose result is an errno.
pub fn posix_fadvise(fd: i32, offset: i64, length: i64, advice: i32) -> i32 {
    if is_refused(fd) { libc::EBADF } else { -posix::fadvise(fd, offset, length, advice) as i32 }
}

/// `posix_spawn_file_actions_adddup2`, whose result is an errno. The child's `dup2` is libc's own: if it made the
/// descriptor a standard stream, the new program would not find the file by its mark.
///
/// # Safety
/// As that function.
pub unsafe fn spawn_dup2(actions: *mut c_void, fd: i32, new: i32) -> i32 {
    static NEXT: Next = Next::new(c"posix_spawn_file_actions_adddup2");
    if new <= libc::STDERR_FILENO {
        let demoted = posix::demote_descriptor(fd, "posix_spawn(3), which makes it a standard stream");
        if demoted < 0 {
            return -demoted as i32;
        }
    }
    // SAFETY: the type is that function's.
    match unsafe { NEXT.get::<unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int>() } {
        // SAFETY: as above.
        Some(next) => unsafe { next(actions, fd, new) },
        None => libc::ENOSYS,
    }
}

/// libc's function.
pub static VFORK: Next = Next::new(c"vfork");
/// libc's function.
pub static FORK: Next = Next::new(c"fork");

/// The address of libc's function, for [`vfork`].
extern "C" fn before_vfork() -> *const c_void {
    note(process::before_spawn);
    // SAFETY: only the address is used.
    unsafe { VFORK.get::<*const c_void>().or_else(|| FORK.get()) }.unwrap_or(core::ptr::null())
}

/// `vfork`: jumps to libc's, without a stack frame of ours, since the child returns from it first.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn famio_shim_vfork() {
    core::arch::naked_asm!("sub rsp, 8", "call {before}", "add rsp, 8", "jmp rax", before = sym before_vfork)
}

/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn famio_shim_vfork() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {before}",
        "ldp x29, x30, [sp], #16",
        "br x0",
        before = sym before_vfork
    )
}

/// `sync`, which has no result.
pub fn sync() {
    finish(posix::sync);
}

/// `_exit`.
///
/// # Safety
/// Ends the process.
pub unsafe fn exit_now(status: i32) -> ! {
    note(process::end);
    let status = process::end_status(status);
    loop {
        // SAFETY: ends the process.
        unsafe { raw(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// `daemon`. libc's own ends the parent by a call that no hook sees: what it has written since the last SYNC would be a
/// killed process's.
///
/// # Safety
/// As `fork`.
pub unsafe fn daemon(no_chdir: c_int, no_close: c_int) -> Ret {
    type Fork = unsafe extern "C" fn() -> c_int;
    // SAFETY: `fork` has this type; the other calls are given paths of ours, and descriptors.
    unsafe {
        let Some(fork) = FORK.get::<Fork>() else { return -(libc::ENOSYS as Ret) };
        match fork() {
            0 => {}
            -1 => return -(*libc::__errno_location() as Ret),
            _ => exit_now(0),
        }
        let session = raw(libc::SYS_setsid, [0; 6]);
        if session < 0 {
            return session;
        }
        if no_chdir == 0 {
            raw(libc::SYS_chdir, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]);
        }
        if no_close == 0 {
            let null = posix::openat(libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR, 0);
            if null < 0 {
                return null;
            }
            let null = null as c_int;
            for standard in 0..=libc::STDERR_FILENO {
                let _ = posix::dup2(null, standard);
            }
            if null > libc::STDERR_FILENO {
                process::close(null);
            }
        }
    }
    0
}

/// For `libfamio`, if the program uses it under this library: its calls come here, where the files are.
#[unsafe(no_mangle)]
pub extern "C" fn famio_nv_table() -> *const famio::posix::nv::Table {
    &famio::posix::nv::TABLE
}

/// For the C fronts and the shim.
#[unsafe(no_mangle)]
pub extern "C" fn famio_is_managed(fd: c_int) -> bool {
    table::is_managed(fd)
}

/// For the C fronts of syncs: whether they call [`famio_synced`] for descriptors of non-atomic files.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static famio_in_run: AtomicBool = AtomicBool::new(false);

/// For the C fronts: a file that is not atomic is synced.
#[unsafe(no_mangle)]
pub extern "C" fn famio_synced(fd: c_int) {
    note(|| posix::run_notes::synced(fd));
}

/// The result of a call on an internal descriptor.
pub const REFUSED: Ret = -(libc::EBADF as Ret);

/// Whether `fd` is an internal descriptor: a program that uses a number which it has not opened gets `EBADF`, and
/// reaches no journal.
#[inline]
pub fn is_refused(fd: c_int) -> bool {
    posix::is_internal(fd) && !table::is_managed(fd)
}

/// For the C fronts and the shim: 1 for an atomic file's descriptor, 2 for an internal one, 0 for others.
#[unsafe(no_mangle)]
pub extern "C" fn famio_whose(fd: c_int) -> c_int {
    match () {
        () if table::is_managed(fd) => 1,
        () if posix::is_internal(fd) => 2,
        () => 0,
    }
}

/// For the C fronts, which read it without a call.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static famio_descriptors: table::Looked = table::Looked::DESCRIPTORS;
/// As [`famio_descriptors`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static famio_fast_path: table::Looked = table::Looked::FAST_PATH;
const _: () = assert!(table::LEAF_BITS == crate::hooks::LEAF_BITS);

/// For the front of `close`: whether it is an atomic file's descriptor or an internal one.
#[unsafe(no_mangle)]
pub extern "C" fn famio_is_known(fd: c_int) -> bool {
    table::is_managed(fd) || posix::is_internal(fd)
}

/// For the C shim.
///
/// # Safety
/// As `fcntl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn famio_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise.
    finish(|| unsafe { posix::fcntl(fd, command, argument) }) as c_int
}

/// For the C shim.
///
/// # Safety
/// As `ioctl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn famio_ioctl(fd: c_int, request: usize, argument: usize) -> c_int {
    // SAFETY: the caller's promise.
    finish(|| if is_refused(fd) { REFUSED } else { unsafe { posix::ioctl(fd, request as u32, argument) } }) as c_int
}

/// libc's function.
pub static FCNTL: Next = Next::new(c"fcntl");

/// For the C shim: libc's `fcntl`.
#[unsafe(no_mangle)]
pub extern "C" fn famio_next_fcntl() -> *const c_void {
    // SAFETY: only the address is used.
    unsafe { FCNTL.get::<*const c_void>() }.unwrap_or(core::ptr::null())
}

/// For the C shim: only the system call.
#[unsafe(no_mangle)]
pub extern "C" fn famio_raw_close(fd: i32) -> isize {
    // SAFETY: no memory is passed; the caller knows the descriptor.
    unsafe { famio::sys::syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) }
}

/// For the C shim: only the system call.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn famio_raw_getrandom(buf: *mut c_void, count: usize, flags: u32) -> isize {
    // SAFETY: the caller's promise.
    unsafe { famio::sys::syscall(libc::SYS_getrandom, [buf.expose_provenance(), count, flags as usize, 0, 0, 0]) }
}

/// For the C shim: libc's `pthread_setcanceltype`, before the constructor has looked it up.
#[unsafe(no_mangle)]
pub extern "C" fn famio_find_setcanceltype() -> *const c_void {
    find(c"pthread_setcanceltype")
}

/// For the C shim: libc's `vdprintf`.
#[unsafe(no_mangle)]
pub extern "C" fn famio_next_vdprintf() -> *const c_void {
    static NEXT: Next = Next::new(c"vdprintf");
    // SAFETY: only the address is used.
    unsafe { NEXT.get::<*const c_void>() }.unwrap_or(core::ptr::null())
}

/// Which system calls [`famio_syscall`] handles.
static ROUTED: [bool; 512] = posix::ROUTED;

/// A system call of the table, by number.
///
/// # Safety
/// As the system call.
unsafe extern "C" fn famio_syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> Ret {
    // SAFETY: the caller's promise.
    finish_in_allocator(|| unsafe { posix::syscall(number, [a, b, c, d, e, f]) })
}

/// Sets errno from the kernel's result; -1.
extern "C" fn famio_failed(result: Ret) -> Ret {
    finish(|| result)
}

/// `syscall(2)`. A call that is not in the table goes to the kernel as in libc, without a stack frame of ours: a child
/// made by `clone` or `vfork` returns from here on another stack, or before its parent.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "cmp rdi, 512",
        "jae 2f",
        "lea rax, [rip + {routed}]",
        "cmp byte ptr [rax + rdi], 0",
        "je 2f",
        "jmp {here}",
        "2:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "3:",
        "mov rdi, rax",
        "jmp {failed}",
        routed = sym ROUTED,
        here = sym famio_syscall,
        failed = sym famio_failed,
    )
}

/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "cmp x0, 512",
        "b.hs 2f",
        "adrp x9, {routed}",
        "add x9, x9, :lo12:{routed}",
        "ldrb w9, [x9, x0]",
        "cbz w9, 2f",
        "b {here}",
        "2:",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc 0",
        "cmn x0, 4095",
        "b.hs 3f",
        "ret",
        "3:",
        "b {failed}",
        routed = sym ROUTED,
        here = sym famio_syscall,
        failed = sym famio_failed,
    )
}
