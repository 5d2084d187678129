//! The exec family: files are closed clean before another program takes over.

use crate::next::Next;
use crate::outcome::set_errno;
use core::ffi::c_char;
use famio::posix::unpreloaded::{Program, note_program};
use famio::posix::{Ret, exec};
use famio::sys::syscall;

type Strings = *const *const c_char;

/// The program's current environment.
pub fn environment() -> Strings {
    unsafe extern "C" {
        static environ: Strings;
    }
    // SAFETY: libc's variable; a program that changes it in another thread during exec has a race anyway.
    unsafe { environ }
}

/// # Safety
/// As the system call.
unsafe fn before(program: Program, envp: Strings) -> exec::Passing {
    // SAFETY: the caller's promise.
    unsafe {
        note_program(program, envp, true);
        exec::before_exec(exec::has_library(envp))
    }
}

/// Before another program is started beside this one.
///
/// # Safety
/// As `exec`.
pub unsafe fn spawning(program: Program, envp: Strings) {
    famio::posix::process::before_spawn();
    // SAFETY: the caller's promise.
    unsafe { note_program(program, envp, false) };
}

/// The same for a shell.
pub fn spawning_shell() {
    // SAFETY: a C string, and the program's environment.
    unsafe { spawning(Program::At(libc::AT_FDCWD, c"/bin/sh".as_ptr()), environment()) };
}

/// # Safety
/// As the system call.
pub unsafe fn execve(path: *const c_char, argv: Strings, envp: Strings) -> Ret {
    // SAFETY: the caller's promise.
    let _passing = unsafe { before(Program::At(libc::AT_FDCWD, path), envp) };
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_execve, [path as usize, argv as usize, envp as usize, 0, 0, 0]) }
}

/// # Safety
/// As the system call.
pub unsafe fn execveat(dirfd: i32, path: *const c_char, argv: Strings, envp: Strings, flags: i32) -> Ret {
    // SAFETY: the caller's promise.
    let _passing = unsafe { before(Program::At(dirfd, path), envp) };
    let arguments = [dirfd as usize, path as usize, argv as usize, envp as usize, flags as usize, 0];
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_execveat, arguments) }
}

macro_rules! through {
    ($name:ident, $next:ident, $symbol:literal, ($($argument:ident: $type:ty),*), $program:expr, $environment:expr) => {
        /// libc's function.
        pub static $next: Next = Next::new($symbol);

        /// # Safety
        /// As libc's.
        pub unsafe fn $name($($argument: $type),*) -> i32 {
            // SAFETY: the caller's promise, or libc's own.
            let _passing = unsafe { before($program, $environment) };
            // SAFETY: the caller's promise; the type is that function's.
            unsafe {
                match $next.get::<unsafe extern "C" fn($($type),*) -> i32>() {
                    Some(next) => next($($argument),*),
                    None => {
                        set_errno(-(libc::ENOSYS as isize));
                        -1
                    }
                }
            }
        }
    };
}

through!(execvp, EXECVP, c"execvp", (file: *const c_char, argv: Strings), Program::Named(file), environment());
through!(execvpe, EXECVPE, c"execvpe", (file: *const c_char, argv: Strings, envp: Strings), Program::Named(file), envp);
through!(fexecve, FEXECVE, c"fexecve", (fd: i32, argv: Strings, envp: Strings), Program::Open(fd), envp);

/// For the C shim.
///
/// # Safety
/// As `execv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn famio_execv(path: *const c_char, argv: Strings) -> i32 {
    // SAFETY: the caller's promise.
    crate::outcome::finish(|| unsafe { execve(path, argv, environment()) }) as i32
}

/// For the C shim.
///
/// # Safety
/// As `execve`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn famio_execve(path: *const c_char, argv: Strings, envp: Strings) -> i32 {
    // SAFETY: the caller's promise.
    crate::outcome::finish(|| unsafe { execve(path, argv, envp) }) as i32
}

/// For the C shim.
///
/// # Safety
/// As `execvp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn famio_execvp(file: *const c_char, argv: Strings) -> i32 {
    // SAFETY: the caller's promise.
    crate::outcome::plain(|| unsafe { execvp(file, argv) })
}
