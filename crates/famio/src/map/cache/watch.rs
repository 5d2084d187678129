//! Notices when the file of a kept map is deleted: by inotify, in a thread that sleeps until then. The same thread
//! notices that memory is short. It ends a while after the last map.

use super::{clear, clear_on_shortage, drop_like, pressure};
use crate::map::ahead::workers;
use crate::sys::{InternalFd, high_duplicate, monotonic_now};
use crate::thread::Mutex;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// How long the thread stays without maps.
const LINGER: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Names added or removed, a changed mode or owner, the file's end, a forced unmount.
fn of_files() -> WatchFlags {
    WatchFlags::ATTRIB | WatchFlags::DELETE_SELF
}

struct Watch {
    process: u32,
    state: Mutex<State>,
}

struct State {
    /// `Some` while the thread runs.
    inotify: Option<InternalFd>,
    /// The watches of files: the number of maps of each, and whether something happened to the file.
    files: HashMap<i32, (usize, bool)>,
    /// The watch for a cgroup's limit.
    limit: Option<i32>,
}

/// This process's. A forked child makes its own, since it has no thread.
static WATCH: AtomicPtr<Watch> = AtomicPtr::new(null_mut());

fn watch() -> &'static Watch {
    let me = workers::process();
    loop {
        let found = WATCH.load(Acquire);
        // SAFETY: null, or leaked below and never freed.
        if let Some(watch) = unsafe { found.as_ref() }
            && watch.process == me
        {
            return watch;
        }
        let state = Mutex::new(State { inotify: None, files: HashMap::new(), limit: None });
        let new = Box::into_raw(Box::new(Watch { process: me, state }));
        if WATCH.compare_exchange(found, new, AcqRel, Relaxed).is_err() {
            // SAFETY: made above and not published.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// Keeps a file watched, for one map of it.
#[derive(Debug)]
pub(crate) struct Watched {
    watch: i32,
    process: u32,
}

impl Watched {
    /// Watches an open file from now on. `None`: the kernel cannot (a limit on watches), so its map must not be kept.
    pub fn new(fd: BorrowedFd<'_>) -> Option<Self> {
        let watch = watch();
        let mut state = watch.state.lock();
        if state.inotify.is_none() {
            start(watch, &mut state).ok()?;
        }
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let file = inotify::add_watch(state.inotify.as_ref()?, &*path, of_files()).ok()?;
        state.files.entry(file).or_insert((0, false)).0 += 1;
        Some(Self { watch: file, process: watch.process })
    }

    /// Whether nothing is known to have happened that forbids keeping the map.
    pub fn is_sound(&self) -> bool {
        let watch = watch();
        let state = watch.state.lock();
        watch.process == self.process && state.files.get(&self.watch).is_some_and(|&(_, spoiled)| !spoiled)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let watch = watch();
        if watch.process != self.process {
            return; // it is the parent's
        }
        let mut state = watch.state.lock();
        let Some((maps, _)) = state.files.get_mut(&self.watch) else { return };
        *maps -= 1;
        if *maps == 0 {
            state.files.remove(&self.watch);
            // This wakes the thread, which checks whether it is still needed. An error: the file was deleted before.
            let _ = state.inotify.as_ref().map(|inotify| inotify::remove_watch(inotify, self.watch));
        }
    }
}

fn start(watch: &'static Watch, state: &mut State) -> crate::error::Result<()> {
    let inotify = crate::sys::internal::make("anon_inode:inotify", || {
        inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
    })?;
    let requests_seen = high_duplicate(inotify.as_fd())?;
    state.limit =
        pressure::limit_events().and_then(|path| inotify::add_watch(&inotify, &*path, WatchFlags::MODIFY).ok());
    let stall = pressure::stalls();
    if !crate::thread::start("famio-watch", move || listen(watch, &requests_seen, stall.as_ref())) {
        return Err(crate::error::Error::new(libc::EAGAIN));
    }
    state.inotify = Some(inotify);
    Ok(())
}

fn listen(watch: &Watch, inotify: &InternalFd, stall: Option<&InternalFd>) {
    let (mut stall, begun) = (stall, monotonic_now());
    loop {
        let idle = watch.state.lock().files.is_empty();
        let mut fds = vec![PollFd::new(inotify, PollFlags::IN)];
        fds.extend(stall.map(|stall| PollFd::new(stall, PollFlags::PRI)));
        let woken = poll(&mut fds, idle.then_some(&LINGER));
        // The program has closed it: nothing is noticed any more.
        if woken.is_err_and(|e| e != Errno::INTR) || fds[0].revents().intersects(PollFlags::NVAL | PollFlags::ERR) {
            let mut state = watch.state.lock();
            state.files.values_mut().for_each(|(_, spoiled)| *spoiled = true);
            state.inotify = None;
            drop(state);
            return clear();
        }
        if fds.get(1).is_some_and(|stall| stall.revents().contains(PollFlags::ERR)) {
            stall = None; // the cgroup was removed
        } else if fds.get(1).is_some_and(|stall| stall.revents().contains(PollFlags::PRI)) {
            // A first report may be of waits before this thread began: the kernel sums them up late.
            if monotonic_now() - begun > pressure::WINDOW {
                clear_on_shortage();
            }
        }
        let (spoiled, short) = read_events(watch, inotify);
        if short {
            clear();
        } else if !spoiled.is_empty() {
            drop_like(|_, map| map.watched.as_ref().is_some_and(|of| spoiled.contains(&of.watch)));
        }
        if woken == Ok(0) {
            let mut state = watch.state.lock();
            if state.files.is_empty() {
                state.inotify = None;
                return;
            }
        }
    }
}

/// Reads events: the watches of files to which something happened, and whether memory is short. Records them first.
fn read_events(watch: &Watch, inotify: &InternalFd) -> (Vec<i32>, bool) {
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(inotify, &mut room);
    let (mut spoiled, mut short) = (Vec::new(), false);
    loop {
        let event = match events.next() {
            Ok(event) => event,
            Err(Errno::INTR) => continue,
            Err(_) => break, // no more events now
        };
        let mut state = watch.state.lock();
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            state.files.values_mut().for_each(|(_, spoiled)| *spoiled = true);
            short = true; // a lost event may concern any file
        } else if Some(event.wd()) == state.limit {
            short = true;
        } else if let Some((_, is_spoiled)) = state.files.get_mut(&event.wd()) {
            *is_spoiled = true;
            spoiled.push(event.wd());
        }
    }
    (spoiled, short)
}

#[cfg(test)]
mod tests {
    use super::super::mapped::Map;
    use super::super::{ask, bytes, keep, may_keep, take};
    use super::*;
    use crate::map::ahead::Reach;
    use std::fs::File;

    /// A kept map of a new file; returns its path.
    fn kept(name: &str) -> String {
        let path = format!("/dev/shm/famio-watch-{name}-{}", std::process::id());
        std::fs::write(&path, [1; 8192]).unwrap();
        let file = File::open(&path).unwrap();
        crate::map::guard::install().unwrap();
        assert!(may_keep(file.as_fd()));
        let mut map = Map::new(file.as_fd(), 8192, false, Reach::Touch).unwrap();
        map.watched = Watched::new(file.as_fd());
        keep(ask(file.as_fd(), false).unwrap().key, map);
        path
    }

    /// Waits for the watching thread.
    fn until_nothing_is_kept() {
        while bytes() != 0 {
            std::thread::yield_now();
        }
    }

    // One test, since there is one cache.
    #[test]
    fn what_happens_to_a_file_or_to_memory_is_heard() {
        let path = kept("limit");
        assert_eq!(bytes(), 8192);
        // In the place of the cgroup's file, which the kernel reports as changed when a limit is reached.
        let limit = format!("{path}-events");
        std::fs::write(&limit, "max 0").unwrap();
        {
            let mut state = watch().state.lock();
            let seen = inotify::add_watch(state.inotify.as_ref().unwrap(), &*limit, WatchFlags::MODIFY).unwrap();
            state.limit = Some(seen);
        }
        std::fs::write(&limit, "max 1").unwrap();
        until_nothing_is_kept();
        std::fs::remove_file(limit).unwrap();
        std::fs::remove_file(path).unwrap();

        let path = kept("mode");
        let file = File::open(&path).unwrap();
        assert!(take(&ask(file.as_fd(), true).unwrap()).is_none(), "another kind of map");
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        until_nothing_is_kept();
        std::fs::remove_file(path).unwrap();

        std::fs::remove_file(kept("name")).unwrap();
        until_nothing_is_kept();
        let path = kept("again");
        std::fs::rename(kept("other"), &path).unwrap(); // the one loses its last name, the other changes its name
        while bytes() > 8192 {
            std::thread::yield_now();
        }
        std::fs::remove_file(path).unwrap();
        until_nothing_is_kept();
    }
}
