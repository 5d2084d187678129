//! The library's threads, and where they may be started. A new thread takes memory from libc's allocator, which a
//! signal handler that calls `open`, `write` or `fsync` may have interrupted. So only another thread of the library
//! starts one, or a call that certainly is not in a handler; otherwise the work waits, or the caller does it.
//!
//! The library's constructor starts none, though it interrupts nothing: every process of a run would then have two
//! threads, which libc and the C++ library notice (locks in `malloc` and `stdio`, locked reference counts), and for
//! which `unshare(CLONE_NEWUSER)` and `setns` fail.

use super::count::{self, Counted};
use super::{current, faults, handlers, main_thread};
use crate::kernel::{ALL_BUT_LIBCS, block_signals, restore_signals, try_address_space};

/// Bytes of a thread's stack, without the program's thread-local variables.
const STACK: usize = 256 << 10;

/// Whether this thread may start another.
pub(crate) fn may_start() -> bool {
    current().ours.get() != 0 || !handlers::may_be_in_handler()
}

/// Starts a thread on which no handler of the program runs. Returns whether it did.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    start_with(name, STACK, work)
}

fn start_with(name: &str, stack: usize, work: impl FnOnce() + Send + 'static) -> bool {
    if !may_start() || !has_room() {
        return false;
    }
    main_thread::watch(end_with_the_programs_threads);
    // The program's handlers must not run on a thread that the program does not know.
    let before = block_signals(ALL_BUT_LIBCS);
    let counted = Counted::begin();
    let started = std::thread::Builder::new().name(name.into()).stack_size(stack + thread_locals()).spawn(move || {
        let _counted = counted;
        current().ours.set(1);
        faults::let_through(current());
        work();
    });
    count::is_started();
    restore_signals(before);
    if started.is_ok() {
        main_thread::has_started();
    }
    started.is_ok()
}

/// Bytes of the stack of a thread that runs the program's exit handlers: as most threads of programs have.
const STACK_OF_EXIT: usize = 8 << 20;

/// Starts the thread that ends the process with the last of the program's.
pub(crate) fn end_with_the_programs_threads() -> bool {
    start_with("famio-end", STACK_OF_EXIT, main_thread::end_process_when_alone)
}

/// Bytes of the program's own thread-local variables, which libc takes out of a thread's stack. Asked of the kernel:
/// libc's list of what is loaded has a lock, which another thread of a forked child's parent may have held.
fn thread_locals() -> usize {
    // SAFETY: the kernel's values, which only libc reads.
    let (at, count) = unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
    if at == 0 {
        return 0;
    }
    // SAFETY: the program's headers, as many as the kernel says; they stay mapped.
    let headers = unsafe { core::slice::from_raw_parts(at as *const libc::Elf64_Phdr, count as usize) };
    let locals = headers.iter().filter(|header| header.p_type == libc::PT_TLS);
    locals.map(|header| (header.p_memsz + header.p_align) as usize).sum()
}

/// Whether a new thread would find memory of libc's: without it, libc ends the process. Under a limit (`ulimit -v`)
/// there may be room for its stack alone.
fn has_room() -> bool {
    const ROOM: usize = 4 << 20;
    try_address_space(ROOM).is_ok()
}

/// The number of threads, up to `most`, that may share work for which the caller waits.
pub(crate) fn sharing(most: usize) -> usize {
    if most > 1 && may_start() && has_room() { most } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of this thread's stack, as libc was asked for it.
    fn stack_size() -> usize {
        // SAFETY: plain old data, which libc fills in and frees.
        unsafe {
            let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
            assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attributes), 0);
            let mut size = 0;
            assert_eq!(libc::pthread_attr_getstacksize(&attributes, &mut size), 0);
            libc::pthread_attr_destroy(&mut attributes);
            size
        }
    }

    /// A program with 250 KB of them left its threads of the library no stack.
    #[test]
    fn thread_locals_do_not_take_a_threads_stack() {
        assert!(thread_locals() > 0, "the standard library, which is in the program, has some");
        let (send, receive) = std::sync::mpsc::channel();
        assert!(start("test", move || send.send(stack_size()).unwrap()));
        let guard = 2 * 4096; // which libc takes off, and rounds to
        assert!(receive.recv().unwrap() + guard >= STACK + thread_locals());
    }
}
