//! A process that is stopped at a system call, until the test lets it go on.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::ptr::null_mut;

/// `PTRACE_GET_SYSCALL_INFO`, of every architecture.
const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
const ENTRY: u8 = 1;

/// A process at the beginning of a system call. It is killed with the test.
pub struct Stopped(Child);

/// Runs `command` up to its first system call of which `is_it` holds, given the number and the arguments. `None`: this
/// process may not trace others.
pub fn stop_at(mut command: Command, is_it: impl Fn(i64, &[u64]) -> bool) -> Option<Stopped> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: a system call between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<()>(), null_mut::<()>()) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = match command.spawn() {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            eprintln!("SKIPPED: no ptrace");
            return None;
        }
        child => child.unwrap(),
    };
    let stopped = Stopped(child);
    stopped.wait(); // it has become the command
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    stopped.ask(libc::PTRACE_SETOPTIONS, 0, options as usize);
    let mut signal = 0;
    loop {
        stopped.ask(libc::PTRACE_SYSCALL, 0, signal as usize);
        signal = stopped.wait();
        if signal == libc::SIGTRAP | 0x80 {
            signal = 0;
            // One byte says what it is; from byte 24 on, number and arguments.
            let mut words = [0u64; 16];
            stopped.ask(GET_SYSCALL_INFO, size_of_val(&words), words.as_mut_ptr().expose_provenance());
            if words[0].to_ne_bytes()[0] == ENTRY && is_it(words[3] as i64, &words[4..10]) {
                return Some(stopped);
            }
        }
    }
}

impl Stopped {
    /// Lets it go on, to its end.
    pub fn finish(self) -> Output {
        self.ask(libc::PTRACE_DETACH, 0, 0);
        self.0.wait_with_output().unwrap()
    }

    /// The signal with which it stops.
    fn wait(&self) -> i32 {
        let mut status = 0;
        // SAFETY: a child that nobody else waits for.
        assert!(unsafe { libc::waitpid(self.0.id() as i32, &mut status, libc::__WALL) } > 0);
        assert!(libc::WIFSTOPPED(status), "it has ended: {status:#x}");
        libc::WSTOPSIG(status)
    }

    fn ask(&self, what: libc::c_uint, address: usize, data: usize) {
        // SAFETY: a traced child that has stopped; only `GET_SYSCALL_INFO` writes, no more than `address` bytes.
        let done = unsafe { libc::ptrace(what as _, self.0.id() as i32, address, data) };
        assert!(done >= 0, "{}", std::io::Error::last_os_error());
    }
}
