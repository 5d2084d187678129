//! Whether another thread of the process has been off its processor: then all threads see its earlier stores, and its
//! flushes are fenced. For threads to which no barrier can be sent.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// A thread that is watched from some moment on.
pub(crate) struct Quiescence {
    thread: u32,
    /// The number of its context switches at that moment; `None`: unknown.
    switches: Option<u64>,
}

enum Seen {
    /// It does not run, or has ended.
    Off,
    /// It runs or could, after this many context switches.
    On(u64),
    /// The kernel does not tell.
    Unknown,
}

impl Quiescence {
    /// Watches the thread with the kernel's id `thread` from now on.
    pub fn of(thread: u32) -> Self {
        let switches = match look(thread) {
            Seen::On(switches) => Some(switches),
            Seen::Off | Seen::Unknown => None,
        };
        Self { thread, switches }
    }

    /// Whether it surely was off its processor at some moment since. False also if the kernel does not tell.
    pub fn has_passed(&self) -> bool {
        match look(self.thread) {
            Seen::Off => true,
            Seen::On(now) => self.switches.is_some_and(|before| before != now),
            Seen::Unknown => false,
        }
    }
}

fn look(thread: u32) -> Seen {
    let open = |thread: u32| {
        let path = format!("/proc/self/task/{thread}/status");
        crate::sys::openat(CWD, &*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    };
    let mut text = vec![0u8; 4096];
    let read = open(thread).and_then(|status| rustix::io::read(&status, &mut text));
    match read {
        Ok(length) => parse(&text[..length]),
        // No such thread; or no /proc, in which case this thread would not be found either.
        Err(Errno::NOENT | Errno::SRCH) if open(rustix::thread::gettid().as_raw_nonzero().get() as u32).is_ok() => {
            Seen::Off
        }
        Err(_) => Seen::Unknown,
    }
}

fn parse(text: &[u8]) -> Seen {
    let text = String::from_utf8_lossy(text);
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let count = |name: &str| value(name).and_then(|count| count.parse::<u64>().ok());
    match (value("State:"), count("voluntary_ctxt_switches:"), count("nonvoluntary_ctxt_switches:")) {
        (Some(state), _, _) if !state.starts_with('R') => Seen::Off,
        (Some(_), Some(left), Some(taken)) => Seen::On(left.wrapping_add(taken)),
        _ => Seen::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_that_sleeps_or_ended_has_passed() {
        let (wake, sleep) = channel::<()>();
        let id = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let id = &id;
            scope.spawn(move || {
                id.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::SeqCst);
                let _ = sleep.recv();
            });
            while id.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let quiescence = Quiescence::of(id.load(Ordering::SeqCst));
            while !quiescence.has_passed() {
                std::thread::yield_now();
            }
            drop(wake);
        });
        assert!(Quiescence::of(u32::MAX >> 2).has_passed(), "no such thread");
    }

    #[test]
    fn a_thread_that_runs_passes_when_it_is_taken_off() {
        let (id, done) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (id, done) = (&id, &done);
            scope.spawn(move || {
                id.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::SeqCst);
                while !done.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            });
            while id.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let quiescence = Quiescence::of(id.load(Ordering::SeqCst));
            while !quiescence.has_passed() {
                std::thread::sleep(std::time::Duration::from_millis(1)); // lets it run
            }
            done.store(true, Ordering::SeqCst);
        });
    }

    #[test]
    fn what_the_kernel_says() {
        let on = b"Name:\tx\nState:\tR (running)\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t5\n";
        assert!(matches!(parse(on), Seen::On(12)));
        assert!(matches!(parse(b"State:\tS (sleeping)\n"), Seen::Off));
        assert!(matches!(parse(b"State:\tR (running)\n"), Seen::Unknown));
        assert!(matches!(parse(b""), Seen::Unknown));
    }
}
