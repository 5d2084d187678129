//! Whether a process has a file open that is about to be replaced: it would go on with a file that has no name any
//! more.
//!
//! The kernel grants a write lease only while no other process has the file open or mapped, and a read lease only
//! while none has it open for writing. Only the file's owner and root can have a lease, and not on every file system;
//! otherwise `/proc` is searched, as far as this process may read it.

use crate::error::{Error, Result};
use crate::recovery::open::await_others;
use crate::sys::{check, openat, read_whole, syscall};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, major, minor, statat};
use std::os::fd::{AsRawFd, BorrowedFd};

const F_SETSIG: usize = 10;
const F_SETLEASE: usize = 1024;
const F_GETLEASE: usize = 1025;
/// The most bytes of a list of mappings that are read.
const MOST: usize = 16 << 20;

/// Which processes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recovery) enum Who {
    /// Processes that have the file open or mapped.
    Anybody,
    /// Only those that have it open for writing.
    Writers,
}

/// An error if another process has the file open. `file`: the caller's only descriptor, open for writing with
/// [`Who::Anybody`], for reading with [`Who::Writers`].
///
/// # Errors
/// `EBUSY`, with the process if `/proc` names it.
pub(in crate::recovery) fn refuse(file: BorrowedFd<'_>, who: Who) -> Result<()> {
    keep_out(file, who).map(drop)
}

/// As [`refuse`]; then a process that opens the file waits in the kernel until the result is dropped: at most
/// `/proc/sys/fs/lease-break-time` seconds. That includes this process.
///
/// # Errors
/// As there.
pub(in crate::recovery) fn keep_out(file: BorrowedFd<'_>, who: Who) -> Result<KeptOut<'_>> {
    let look = || match try_keep_out(file, who) {
        Ok(Err(opener)) => Err(Ok(opener)),
        Ok(Ok(kept_out)) => Ok(kept_out),
        Err(e) => Err(Err(e)),
    };
    await_others(look, |opener| matches!(opener, Ok(opener) if may_close_soon(*opener)))
        .map_err(|opener| opener.map_or_else(|e| e, busy))
}

/// A child between `fork` and `exec` has all of its parent's descriptors: this process's, or one that has begun its
/// program before the look at `/proc`, which could not name it.
fn may_close_soon(opener: Option<u32>) -> bool {
    opener.is_none_or(|process| parent(process) == Some(rustix::process::getpid().as_raw_nonzero().get() as u32))
}

/// Another process that has the file open, in words.
pub(in crate::recovery) fn opener(file: BorrowedFd<'_>, who: Who) -> Option<String> {
    Some(in_words(try_keep_out(file, who).ok()?.err()?))
}

/// `Err`: that process, if `/proc` names it, has the file open.
fn try_keep_out(file: BorrowedFd<'_>, who: Who) -> Result<core::result::Result<KeptOut<'_>, Option<u32>>> {
    let lease = take_lease(file, who);
    if let Lease::Taken(kind) = lease {
        return Ok(Ok(KeptOut { file, lease: Some(kind) }));
    }
    Ok(match (find(&fstat(file)?, who), lease) {
        (Some(process), _) => Err(Some(process)),
        (None, Lease::Refused) => Err(None),
        _ => Ok(KeptOut { file, lease: None }),
    })
}

/// Other processes are kept out of a file, if the kernel has granted the lease.
pub(in crate::recovery) struct KeptOut<'a> {
    file: BorrowedFd<'a>,
    lease: Option<i32>,
}

impl KeptOut<'_> {
    /// Whether another process has tried to open the file meanwhile. It may be waiting.
    pub fn is_awaited(&self) -> bool {
        self.lease.is_some_and(|kind| fcntl(self.file, F_GETLEASE, 0).map_or(true, |now| now != kind as usize))
    }
}

impl Drop for KeptOut<'_> {
    fn drop(&mut self) {
        if self.lease.is_some() {
            let _ = fcntl(self.file, F_SETLEASE, libc::F_UNLCK); // fails only if the kernel has taken it away
        }
    }
}

/// The error for such a process.
pub(in crate::recovery) fn busy(process: Option<u32>) -> Error {
    Error::with(libc::EBUSY, format!("{} has it open; stop that first", in_words(process)))
}

fn in_words(process: Option<u32>) -> String {
    match process {
        Some(process) => format!("process {process} ({})", command(process)),
        None => "a process of another user or container".into(),
    }
}

/// The kernel's answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lease {
    Taken(i32),
    /// Another process has the file open.
    Refused,
    /// This user or file system cannot have leases.
    Unknown,
}

fn take_lease(file: BorrowedFd<'_>, who: Who) -> Lease {
    // On other file systems, such as NFS, a lease is refused for other reasons, too. If another process opens the file,
    // the default signal would end this process; `SIGURG` is ignored by default.
    if !crate::pmem::is_known(file) || fcntl(file, F_SETSIG, libc::SIGURG).is_err() {
        return Lease::Unknown;
    }
    let kind = if who == Who::Anybody { libc::F_WRLCK } else { libc::F_RDLCK };
    match fcntl(file, F_SETLEASE, kind) {
        Ok(_) => Lease::Taken(kind),
        Err(e) if e.errno() == libc::EAGAIN => Lease::Refused,
        Err(_) => Lease::Unknown,
    }
}

fn fcntl(file: BorrowedFd<'_>, command: usize, argument: i32) -> Result<usize> {
    // SAFETY: no memory is passed.
    check(unsafe { syscall(libc::SYS_fcntl, [file.as_raw_fd() as usize, command, argument as usize, 0, 0, 0]) })
}

/// Another process that has the file open, as far as `/proc` tells.
fn find(file: &Stat, who: Who) -> Option<u32> {
    let own = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let processes = numbers_in("/proc");
    let others = || processes.iter().copied().filter(|&process| process != own);
    let mapped = || others().find(|&process| who == Who::Anybody && has_mapped(process, file));
    others().find(|&process| has_open(process, file, who)).or_else(mapped)
}

fn has_open(process: u32, file: &Stat, who: Who) -> bool {
    let folder = format!("/proc/{process}/fd");
    let is_it = |number: &u32| {
        let found = statat(CWD, format!("{folder}/{number}"), AtFlags::empty());
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino))
    };
    numbers_in(&folder).iter().any(|number| {
        is_it(number) && {
            let flags = flags_of(process, *number).unwrap_or(OFlags::RDWR);
            // An `O_PATH` descriptor cannot read anything.
            !flags.contains(OFlags::PATH) && (who == Who::Anybody || !(flags & OFlags::RWMODE).is_empty())
        }
    })
}

/// The flags of a process's descriptor: `flags: 0100002`.
fn flags_of(process: u32, number: u32) -> Option<OFlags> {
    let text = text_of(&format!("/proc/{process}/fdinfo/{number}"), 4096)?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(OFlags::from_bits_retain(u32::from_str_radix(flags.trim(), 8).ok()?))
}

/// `7f00-7f01 rw-s 00000000 fe:00 1234 /path`
fn has_mapped(process: u32, file: &Stat) -> bool {
    let wanted = format!("{:02x}:{:02x}", major(file.st_dev), minor(file.st_dev));
    let inode = file.st_ino.to_string();
    text_of(&format!("/proc/{process}/maps"), MOST).is_some_and(|text| {
        text.lines().any(|line| {
            let mut words = line.split_ascii_whitespace().skip(3);
            words.next() == Some(&*wanted) && words.next() == Some(&*inode)
        })
    })
}

fn parent(process: u32) -> Option<u32> {
    let text = text_of(&format!("/proc/{process}/status"), 4096)?;
    text.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn command(process: u32) -> String {
    text_of(&format!("/proc/{process}/comm"), 4096).unwrap_or_default().trim_end().into()
}

fn numbers_in(folder: &str) -> Vec<u32> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = openat(CWD, folder, flags, Mode::empty()) else { return Vec::new() };
    let Ok(entries) = crate::sys::list(&folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect()
}

fn text_of(path: &str, most: usize) -> Option<String> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    Some(String::from_utf8_lossy(&read_whole(&file, most)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::Scratch;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// Starts a process that has the file open by this redirection.
    fn opener(path: &std::path::Path, redirection: &str) -> Child {
        let mut shell = Command::new("sh");
        let line = format!("exec 9{redirection}\"$0\"; echo ready; read end");
        let mut child =
            shell.args(["-c", &line]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        child
    }

    /// Sends a descriptor by a socket.
    fn send(by: &std::os::unix::net::UnixStream, file: &File) {
        #[repr(C)]
        struct Along {
            head: libc::cmsghdr,
            descriptor: i32,
        }
        let mut along = Along {
            head: libc::cmsghdr {
                cmsg_len: size_of::<libc::cmsghdr>() + 4,
                cmsg_level: libc::SOL_SOCKET,
                cmsg_type: libc::SCM_RIGHTS,
            },
            descriptor: file.as_raw_fd(),
        };
        let mut bytes = libc::iovec { iov_base: c"x".as_ptr().cast_mut().cast(), iov_len: 1 };
        // SAFETY: zeros are a valid `msghdr`; it then names memory that lives through the call.
        let sent = unsafe {
            let mut message: libc::msghdr = core::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut bytes, 1);
            (message.msg_control, message.msg_controllen) = ((&raw mut along).cast(), along.head.cmsg_len);
            libc::sendmsg(by.as_raw_fd(), &raw const message, 0)
        };
        assert_eq!(sent, 1, "{}", std::io::Error::last_os_error());
    }

    /// A backup to a file that exists was refused since another thread's child, which had not begun its program yet,
    /// had all descriptors.
    #[test]
    fn an_open_file_that_no_process_has_for_long_is_waited_for() {
        let scratch = Scratch::new();
        let path = scratch.path("file");
        std::fs::write(&path, "x").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        // On its way from socket to socket it is open, and no process's.
        let sockets = std::os::unix::net::UnixStream::pair().unwrap();
        send(&sockets.0, &open());
        assert_eq!(try_keep_out(open().as_fd(), Who::Anybody).unwrap().err(), Some(None), "it is open somewhere");
        let (looks, looked) = std::sync::mpsc::channel::<()>();
        let holder = std::thread::spawn(move || {
            looked.recv().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(30)); // a child's first moment
            drop(sockets);
        });
        looks.send(()).unwrap();
        refuse(open().as_fd(), Who::Anybody).unwrap();
        holder.join().unwrap();
    }

    /// It was refused, too, if the look came while `/proc` named the child.
    #[test]
    fn a_child_before_its_program_is_waited_for() {
        let scratch = Scratch::new();
        let path = scratch.path("file");
        std::fs::write(&path, "x").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (file, closed_soon) = (open(), open());
        let (mut forked, is_forked) = std::io::pipe().unwrap();
        let (may_go, mut go) = std::io::pipe().unwrap();
        let mut child = Command::new("true");
        // SAFETY: two system calls, which a forked child of a process with threads may make.
        unsafe {
            child.pre_exec(move || {
                rustix::io::write(&is_forked, b"x")?;
                rustix::io::read(&may_go, &mut [0])?;
                Ok(())
            })
        };
        let spawned = std::thread::spawn(move || child.status().unwrap());
        std::io::Read::read_exact(&mut forked, &mut [0]).unwrap();
        drop(closed_soon);
        let has_named = try_keep_out(file.as_fd(), Who::Anybody).unwrap().err();
        assert!(has_named.flatten().is_some(), "it has the file open at this moment");
        let lets_go = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30)); // so that the first look finds it
            std::io::Write::write_all(&mut go, b"x").unwrap();
        });
        refuse(file.as_fd(), Who::Anybody).unwrap();
        lets_go.join().unwrap();
        assert!(spawned.join().unwrap().success());
    }

    #[test]
    fn a_process_that_has_the_file_is_named_by_lease_and_by_proc() {
        let scratch = Scratch::new();
        let path = scratch.path("file");
        std::fs::write(&path, "x").unwrap();
        let (read, write) =
            (|| File::open(&path).unwrap(), || File::options().read(true).write(true).open(&path).unwrap());
        assert!(refuse(write().as_fd(), Who::Anybody).is_ok() && refuse(read().as_fd(), Who::Writers).is_ok());
        for (redirection, is_writer) in [("<", false), ("<>", true)] {
            let mut child = opener(&path, redirection);
            let said = refuse(write().as_fd(), Who::Anybody).unwrap_err();
            assert!(said.errno() == libc::EBUSY && said.to_string().contains(&format!("process {} (sh)", child.id())));
            assert_eq!(refuse(read().as_fd(), Who::Writers).is_err(), is_writer, "{redirection}");
            let stat = fstat(read()).unwrap();
            assert_eq!(find(&stat, Who::Anybody), Some(child.id()));
            assert_eq!(find(&stat, Who::Writers).is_some(), is_writer);
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
