//! Runs another process from one system call to the next.

/// A thread that stops at its system calls. Only the thread that attached it may use this.
pub struct Traced(libc::pid_t);

impl Traced {
    /// Attaches and stops it. `None`: not permitted here.
    pub fn attach(thread: libc::pid_t) -> Option<Self> {
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
        // SAFETY: numbers.
        if unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, 0, options) } != 0 {
            return None;
        }
        let this = Self(thread);
        // SAFETY: numbers.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) }, 0);
        assert!(libc::WIFSTOPPED(this.wait()));
        Some(this)
    }

    pub fn wait(&self) -> i32 {
        let mut status = 0;
        // SAFETY: `status` is ours.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) }, self.0);
        status
    }

    /// Lets it run to its next entry to, or return from, the kernel; false: it has ended.
    pub fn step(&self) -> bool {
        self.go(libc::PTRACE_SYSCALL, libc::SIGTRAP | 0x80)
    }

    /// The number of the system call that it is about to make; `None`: it has just returned from one.
    #[allow(dead_code)] // some tests count stops
    pub fn call(&self) -> Option<i64> {
        const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
        let mut info = [0_u64; 11];
        // SAFETY: room for the size that is passed; the thread is stopped.
        let got = unsafe { libc::ptrace(GET_SYSCALL_INFO, self.0, size_of_val(&info), info.as_mut_ptr()) };
        assert!(got > 0, "{}", std::io::Error::last_os_error());
        // The kind of the stop in the first byte: 1 is an entry. Then architecture, two addresses, and the number.
        (info[0].to_ne_bytes()[0] == 1).then_some(info[3] as i64)
    }

    /// Lets it execute one instruction; false: it has ended.
    #[allow(dead_code, reason = "not every test looks so closely")]
    pub fn instruction(&self) -> bool {
        self.go(libc::PTRACE_SINGLESTEP, libc::SIGTRAP)
    }

    fn go(&self, how: libc::c_uint, until: i32) -> bool {
        let mut signal = 0;
        loop {
            // SAFETY: numbers.
            assert_eq!(unsafe { libc::ptrace(how, self.0, 0, signal) }, 0);
            let status = self.wait();
            if !libc::WIFSTOPPED(status) {
                return false;
            }
            match libc::WSTOPSIG(status) {
                stop if stop == until => return true,
                _ if status >> 16 != 0 => signal = 0, // the requested stop
                other => signal = other,
            }
        }
    }
}
