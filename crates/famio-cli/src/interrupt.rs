//! Ctrl-C and SIGTERM, received while waiting, so that nothing that was started is left behind. Children are not
//! affected: `Command` gives them an empty signal mask.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The signals, as a descriptor.
pub struct Interrupts(OwnedFd);

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The other descriptor is ready.
    Ready,
    /// The time is over.
    Time,
    /// This signal came.
    Signal(i32),
}

impl Interrupts {
    /// From now on, receives both signals.
    pub fn catch() -> Result<Self, String> {
        // SAFETY: the set is initialised before it is used, and all pointers are valid during their calls.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(format!("signalfd: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor that no other code has.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Waits until `other` is ready, for at most `time`.
    pub fn wait(&self, other: impl AsFd, time: Option<Duration>) -> Result<Woken, String> {
        let end = time.map(|time| Instant::now() + time);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
            let mut both = [PollFd::new(&other, PollFlags::IN), PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut both, left.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(error) => return Err(format!("poll: {error}")),
                Ok(0) => return Ok(Woken::Time),
                Ok(_) if !both[1].revents().is_empty() => return self.signal(),
                Ok(_) => return Ok(Woken::Ready),
            }
        }
    }

    /// The signal that has come, if one has.
    pub fn pending(&self) -> Option<i32> {
        let mut signals = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut signals, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(1) => self.signal().ok().and_then(|woken| match woken {
                Woken::Signal(signal) => Some(signal),
                _ => None,
            }),
            _ => None,
        }
    }

    fn signal(&self) -> Result<Woken, String> {
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        rustix::io::read(&self.0, &mut bytes).map_err(|error| format!("signalfd: {error}"))?;
        // The number is the first field.
        Ok(Woken::Signal(i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
    }
}
