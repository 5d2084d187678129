use super::*;
use crate::map::Mapping;
use crate::pmem::{Domain, test_file};
use core::ffi::{c_int, c_void};
use std::os::fd::AsFd;

/// A mapping with one page of file and nothing beyond it.
fn one_page() -> Mapping {
    let file = test_file("/dev/shm", 4096);
    Mapping::reserve(file.as_fd(), Domain::Process, 4096, true, 1 << 20).unwrap()
}

#[test]
fn a_copy_that_may_is_a_copy() {
    install().unwrap();
    for len in [0, 1, 100, 5000] {
        let source: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut got = vec![0xEE; len + 1];
        // SAFETY: in bounds.
        unsafe { copy(got.as_mut_ptr(), source.as_ptr(), len) }.unwrap();
        assert!(got[..len] == source && got[len] == 0xEE);
    }
    // SAFETY: a harmless body.
    assert_eq!(unsafe { run(|| 6 * 7) }, Ok(42));
    assert_eq!(crate::thread::current().guard.get(), 0);
}

#[test]
fn beyond_the_end_of_the_file_is_a_fault() {
    install().unwrap();
    let map = one_page();
    let mut room = [0u8; 8192];
    let beyond = map.ptr(4096, 0).unwrap() as usize;
    for _ in 0..3 {
        // SAFETY: guarded; `room` is ours.
        let fault = unsafe { copy(room.as_mut_ptr(), map.base(), 8192) }.unwrap_err();
        assert_eq!(fault.signal, libc::SIGBUS);
        assert!(fault.is_in(map.base(), 8192) && fault.address >= beyond && !fault.is_in(room.as_ptr(), 8192));
        // SAFETY: as above.
        let fault = unsafe { copy(map.ptr(4096, 10).unwrap(), room.as_ptr(), 10) }.unwrap_err();
        assert_eq!(fault, Fault { address: beyond, signal: libc::SIGBUS });
    }
    // SAFETY: the body may be interrupted anywhere.
    let fault = unsafe { run_on(map.base(), 8192, || (beyond as *const u64).read_volatile()) }.unwrap_err();
    assert_eq!(fault.address, beyond);
    assert_eq!(crate::thread::current().guard.get(), 0);
}

#[test]
fn a_bad_pointer_is_a_fault() {
    install().unwrap();
    let mut room = [7u8; 64];
    // Null, not canonical, the kernel's, the last bytes.
    for bad in [0usize, 8, 0xdead_beef_dead_beef, 0xffff_ffff_8000_0000, usize::MAX - 8] {
        for len in [1, 8, 64] {
            // SAFETY: guarded; nothing is mapped there.
            let fault = unsafe { copy(room.as_mut_ptr(), bad as *const u8, len) }.unwrap_err();
            assert!(fault.signal == libc::SIGSEGV && fault.is_in(bad as *const u8, len), "{bad:#x} {len} {fault:x?}");
            // SAFETY: as above.
            unsafe { copy(bad as *mut u8, room.as_ptr(), len) }.unwrap_err();
        }
    }
    assert_eq!(room, [7; 64]);
}

#[test]
fn the_handler_keeps_the_callers_registers_and_signal_mask() {
    install().unwrap();
    let before = crate::sys::block_signals(0);
    let mut sum = 0u64;
    for i in 0..1000u64 {
        let local = [i, i + 1, i + 2, i + 3].map(std::hint::black_box);
        let float = std::hint::black_box(i as f64 * 0.5);
        // SAFETY: guarded.
        let result = unsafe { copy(0x10 as *mut u8, local.as_ptr().cast(), 8) };
        sum += local.iter().sum::<u64>() + result.is_err() as u64 + (float * 2.0) as u64;
    }
    assert_eq!(sum, (0..1000).map(|i| 5 * i + 7).sum());
    assert_eq!(crate::sys::block_signals(0), before);
}

#[test]
fn many_threads_fault_at_once() {
    install().unwrap();
    let map = one_page();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let mut room = [0u8; 16];
                    // SAFETY: guarded; `room` is ours.
                    unsafe { copy(room.as_mut_ptr(), map.base(), 16) }.unwrap();
                    // SAFETY: as above.
                    unsafe { copy(room.as_mut_ptr(), map.ptr(1 << 19, 16).unwrap(), 16) }.unwrap_err();
                }
            });
        }
    });
}

#[test]
fn a_thread_that_was_started_with_every_signal_blocked_is_guarded_too() {
    install().unwrap();
    let blocked = crate::sys::block_signals(u64::MAX);
    let thread = std::thread::spawn(|| assert!(try_guarded()));
    crate::sys::restore_signals(blocked);
    thread.join().unwrap();
}

/// Runs `body` in a child; returns its exit status, or the negated signal that ended it.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    let mut status = 0;
    // SAFETY: the child runs `body`, which makes system calls only, and leaves without running anything of the
    // parent's.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            libc::_exit(body());
        }
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
    }
    if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// Sets an action the way a program does.
fn set(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: all-zero bytes are a `sigaction`; the handlers here are async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(libc::sigaction(signal, &action, core::ptr::null_mut()), 0);
    }
}

extern "C" fn exit_33(_: c_int) {
    // SAFETY: leaves.
    unsafe { libc::_exit(33) }
}

extern "C" fn exit_by_address(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel's siginfo; leaves.
    unsafe { libc::_exit(if signal == libc::SIGSEGV && (*info).si_addr() as usize == 0x123 { 44 } else { 1 }) }
}

fn touch(address: usize) -> i32 {
    // SAFETY: meant to fault.
    unsafe { (address as *const u8).read_volatile() };
    0
}

fn try_guarded() -> bool {
    let mut byte = 0u8;
    // SAFETY: guarded.
    unsafe { copy(&mut byte, 0x100 as *const u8, 1) }.is_err()
}

#[test]
fn a_fault_outside_goes_to_the_hosts_handler() {
    for (handler, flags, want) in
        [(exit_33 as *const () as usize, 0, 33), (exit_by_address as *const () as usize, libc::SA_SIGINFO, 44)]
    {
        let status = in_child(|| {
            set(libc::SIGSEGV, libc::SIG_DFL, 0);
            set(libc::SIGSEGV, handler, flags);
            install().unwrap();
            assert!(try_guarded());
            touch(0x123)
        });
        assert_eq!(status, want);
    }
}

#[test]
fn without_a_handler_the_process_ends_by_the_signal() {
    let default = |host: usize, then: fn() -> i32| {
        in_child(|| {
            set(libc::SIGSEGV, host, 0);
            set(libc::SIGBUS, host, 0);
            install().unwrap();
            if try_guarded() { then() } else { 1 }
        })
    };
    let kill = || {
        // SAFETY: no memory involved.
        unsafe { libc::raise(libc::SIGBUS) };
        7
    };
    assert_eq!(default(libc::SIG_DFL, || touch(0x10)), -libc::SIGSEGV);
    assert_eq!(default(libc::SIG_IGN, || touch(0x10)), -libc::SIGSEGV);
    assert_eq!(default(libc::SIG_DFL, kill), -libc::SIGBUS);
    assert_eq!(default(libc::SIG_IGN, kill), 7);
}

/// Sets the program's action by the interposer's hook for `sigaction`.
fn host(signal: c_int, handler: usize, flags: c_int) -> (usize, c_int) {
    // SAFETY: valid actions.
    unsafe {
        let mut new: libc::sigaction = core::mem::zeroed();
        let mut old: libc::sigaction = core::mem::zeroed();
        (new.sa_sigaction, new.sa_flags) = (handler, flags);
        host_action(signal, Some(&new), &mut old).unwrap().unwrap();
        (old.sa_sigaction, old.sa_flags)
    }
}

#[test]
fn the_hosts_own_actions_stay_behind_ours() {
    let status = in_child(|| {
        set(libc::SIGSEGV, exit_33 as *const () as usize, libc::SA_RESTART);
        // SAFETY: nothing is given.
        assert!(unsafe { host_action(libc::SIGUSR1, None, core::ptr::null_mut()) }.is_none());
        install().unwrap();
        let by_address = exit_by_address as *const () as usize;
        for _ in 0..100 {
            let old = host(libc::SIGSEGV, by_address, libc::SA_SIGINFO);
            assert_eq!(old, (exit_33 as *const () as usize, libc::SA_RESTART));
            assert!(try_guarded());
            let old = host(libc::SIGSEGV, exit_33 as *const () as usize, libc::SA_RESTART);
            assert_eq!(old, (by_address, libc::SA_SIGINFO));
        }
        install().unwrap();
        assert!(try_guarded());
        // Set by a system call, and found again.
        set(libc::SIGSEGV, by_address, libc::SA_SIGINFO);
        install().unwrap();
        install().unwrap();
        assert!(try_guarded());
        touch(0x123)
    });
    assert_eq!(status, 44);
}

extern "C" fn guarded_in_a_handler(_: c_int) {
    assert!(try_guarded());
    assert!(try_guarded());
}

#[test]
fn a_handler_that_interrupts_a_guarded_call_may_make_its_own() {
    let status = in_child(|| {
        set(libc::SIGUSR1, guarded_in_a_handler as *const () as usize, 0);
        install().unwrap();
        let map = one_page();
        let beyond = map.ptr(4096, 8).unwrap();
        // SAFETY: `raise` is left by returning; the read is guarded.
        let result = unsafe {
            run_on(map.base(), 8192, || {
                let mut byte = 0u8;
                let inner = run_on(core::ptr::null(), 4096, || (0x10 as *const u8).read_volatile());
                libc::raise(libc::SIGUSR1);
                let again = copy(&mut byte, 0x100 as *const u8, 1);
                assert!(inner.is_err() && again.is_err());
                beyond.read_volatile()
            })
        };
        assert_eq!(crate::thread::current().guard.get(), 0);
        if result == Err(Fault { address: beyond as usize, signal: libc::SIGBUS }) { 55 } else { 1 }
    });
    assert_eq!(status, 55);
}

extern "C" fn touches_elsewhere(_: c_int) {
    touch(0x123);
}

#[test]
fn a_fault_of_a_handler_inside_a_guarded_call_is_not_taken_for_ours() {
    let status = in_child(|| {
        set(libc::SIGUSR1, touches_elsewhere as *const () as usize, 0);
        set(libc::SIGSEGV, exit_by_address as *const () as usize, libc::SA_SIGINFO);
        install().unwrap();
        let map = one_page();
        // SAFETY: the body ends in the host's handler.
        let result = unsafe { run_on(map.base(), 8192, || libc::raise(libc::SIGUSR1)) };
        result.is_ok() as i32
    });
    assert_eq!(status, 44);
}

extern "C" fn reset_once(_: c_int) {}

#[test]
fn sa_resethand_and_sa_nodefer_are_kept() {
    let status = in_child(|| {
        set(libc::SIGSEGV, reset_once as *const () as usize, libc::SA_RESETHAND as c_int);
        install().unwrap();
        touch(0x123)
    });
    assert_eq!(status, -libc::SIGSEGV);

    extern "C" fn again(_: c_int) {
        let blocked = crate::sys::block_signals(0);
        let bit = crate::sys::signal_bit;
        // SAFETY: leaves.
        unsafe { libc::_exit(if blocked & (bit(libc::SIGSEGV) | bit(libc::SIGUSR2)) == 0 { 66 } else { 1 }) }
    }
    let status = in_child(|| {
        set(libc::SIGSEGV, again as *const () as usize, libc::SA_NODEFER);
        install().unwrap();
        touch(0x123)
    });
    assert_eq!(status, 66);
}
