//! One file with its journal in its own folder: runs histories under a recorder, and is restored to any state that a
//! crash left.

use crate::away::Away;
use crate::case::{Cache, Case, Found};
use crate::joint::{self, Peer};
use crate::machine::{Machine, SEGMENT};
use crate::oracle::{Oracle, Promise};
use crate::workload::{By, Op, Step, bytes, initial, pieces};
use famio::file::{Access, AtomicFile, UserBuf, Whole};
use famio::journal::{Identity, journal_name, mark};
use famio::pmem::TestHooks;
use famio::pmem::record::{CALLS, Call, Content, Image, ObjectId, Place, Recorder, Start, Trace};
use famio::recovery::{Checked, Condition, Options, Outcome, Silent, check, recover_path};
use famio::{PolicyChoice, Region, Settings, TierChoice, WriteBackRange};
use rustix::fs::{Mode, OFlags, XattrFlags};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The file's object in every recording.
pub const FILE: ObjectId = ObjectId(0);

/// See the module. Belongs to the thread that made it.
pub struct World {
    folder: PathBuf,
    path: PathBuf,
    /// A permanent pool that can be named.
    named: PathBuf,
    /// The journal's name in its pool.
    name: String,
    file: File,
    found: Found,
    /// The number of the file's group, if it has one.
    group: u32,
    /// The contents of `/dev/shm` at the last hand-over: a kill leaves them, a reboot does not.
    between: RefCell<Vec<(String, Vec<u8>)>>,
    recorders: HashMap<Machine, &'static Recorder>,
    /// The recorders are asked where each barrier was called.
    lists_sites: bool,
}

/// The result of a history: its recording, and the promises made meanwhile.
pub struct Run {
    pub trace: Trace,
    pub oracle: Oracle,
    /// How often each kind of call was made.
    pub calls: [usize; CALLS],
    /// The message of the first call that failed.
    pub error: Option<String>,
}

fn ignore(result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e.to_string()),
        _ => Ok(()),
    }
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// A file that only its owner may open.
fn write_private(path: &str, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let _ = std::fs::remove_file(path);
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all_at(bytes, 0)
}

/// The name, with this control file, of memory that was called `path` with another one.
fn name_by(control: &std::fs::Metadata, path: &str) -> String {
    let rest: Vec<_> = path.splitn(4, '-').collect(); // the folder and "famio", device, inode, the rest
    match rest[..] {
        [first, _, _, rest] => format!("{first}-{:x}-{:x}-{rest}", control.dev(), control.ino()),
        _ => path.to_owned(),
    }
}

impl World {
    /// In a new folder on a tmpfs.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(format!("/dev/shm/famio-simulate-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a folder in /dev/shm");
        let path = folder.join("file");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file in /dev/shm");
        let identity = Identity::of_fd(file.as_fd()).expect("a file's identity");
        let (named, name) = (folder.join("pool"), journal_name(&identity));
        std::fs::create_dir(&named).expect("a folder in /dev/shm");
        let (recorders, found) = (HashMap::new(), Found::default());
        let between = RefCell::default();
        Self { folder, path, named, name, file, found, group: number, between, recorders, lists_sites: false }
    }

    /// The pool of the current or last history.
    fn pool(&self) -> PathBuf {
        if self.found.pool { self.named.clone() } else { self.folder.join(".famio") }
    }

    fn journal(&self) -> PathBuf {
        self.pool().join(&self.name)
    }

    /// The same, and every barrier is [asked about](crate::sites).
    pub fn listing() -> Self {
        let mut world = Self::new();
        world.lists_sites = true;
        world
    }

    /// The recorder for a machine; there is one each, never freed.
    fn recorder(&mut self, machine: Machine) -> &'static Recorder {
        let lists_sites = self.lists_sites;
        self.recorders.entry(machine).or_insert_with(|| {
            let recorder = Recorder::behaving(machine.behaviour());
            if lists_sites {
                recorder.leave_out(Some(&crate::sites::is_left_out));
            }
            recorder
        })
    }

    fn place(&self) -> Result<Place, String> {
        Ok(Place {
            file: self.file.try_clone().map_err(text)?.into(),
            folder: self.folder.clone(),
            attribute: mark::NAME,
            pool: self.pool(),
            journal: self.journal(),
            records: joint::folder_in(&self.pool()),
        })
    }

    fn settings(&self) -> Settings {
        // The journal's address space is reserved, so a small limit suffices.
        let pool = self.found.pool.then(|| self.named.clone());
        // Some write back all but the newest, as if the write cache were full.
        let is_full = self.found.pool && self.found.cache == Cache::Large;
        let write_back = if is_full { WriteBackRange { from: 0, to: 0 } } else { WriteBackRange::default() };
        // The segments begin behind the header and the slots.
        let limit = self.found.cache.segments().map(|count| (8 << 10) + count * SEGMENT);
        let journal_limit = limit.unwrap_or(64 << 20);
        let group = self.found.group.then_some(self.group);
        Settings { journal_limit, pool, write_back, tier: TierChoice::Auto, group, ..Settings::default() }
    }

    /// Runs a history under the recorder, with a new file. `fail`: the given call fails, once.
    pub fn run(&mut self, case: &Case, fail: Option<(Call, usize)>) -> Result<Run, String> {
        let recorder = self.recorder(case.machine);
        self.clear()?;
        self.between.take();
        self.found = case.found;
        self.clear()?;
        self.put_file(&Content { size: initial().len() as u64, bytes: initial() })?;
        let place = self.place()?;
        let begun = if case.found.unsynced { recorder.begin_unsynced(place) } else { recorder.begin(place, None) };
        begun.map_err(text)?;
        if let Some((call, nth)) = fail {
            recorder.fail(call, nth, libc::EIO);
        }
        let busy = case.machine == Machine::Tiered && case.found.pool && case.found.cache == Cache::Large;
        let logs_again = busy && case.found.unsynced;
        let of_machine = case.machine.test_hooks(1);
        let blocks_a_round = (case.found.cache != Cache::Large).then_some(3);
        let policy = Some(case.policy);
        let test_hooks = TestHooks { medium: Some(recorder), policy, busy, logs_again, blocks_a_round, ..of_machine };
        test_hooks.enter();
        let mut session = Session::open(self, recorder, test_hooks)?;
        let done = session.steps(case, fail.is_some());
        let run = Run {
            trace: recorder.trace(),
            oracle: session.oracle.clone(),
            calls: Call::ALL.map(|call| recorder.calls(call)),
            error: session.error.take(),
        };
        session.close();
        TestHooks::default().enter();
        done?;
        Ok(run)
    }

    fn clear(&self) -> Result<(), String> {
        ignore(std::fs::remove_file(self.journal()))?;
        self.clear_control();
        if !self.found.pool {
            ignore(std::fs::remove_dir(self.pool()))?;
        }
        self.between.borrow().iter().try_for_each(|(path, _)| ignore(std::fs::remove_file(path)))?;
        ignore(std::fs::remove_dir_all(joint::folder_in(&self.named)))?;
        ignore(std::fs::remove_file(Peer::path_in(&self.folder)))?;
        self.put_mark(None)
    }

    /// Removes the control page that killed processes left, and the arena that it names.
    fn clear_control(&self) {
        for pool in [&self.named, &self.folder.join(".famio")] {
            let control = pool.join(self.name.replace(".journal", ".control"));
            let page = std::fs::read(&control).unwrap_or_default();
            let word = |at: usize| {
                page.get(at..at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
            };
            let (device, inode) = control.metadata().map_or((0, 0), |of| (of.dev(), of.ino()));
            let arena = format!("/dev/shm/famio-{device:x}-{inode:x}-{:016x}-{:016x}.arena", word(16), word(24));
            let _ = (std::fs::remove_file(arena), std::fs::remove_file(control));
        }
    }

    fn put_mark(&self, bytes: Option<&[u8]>) -> Result<(), String> {
        match bytes {
            Some(bytes) => rustix::fs::fsetxattr(&self.file, mark::NAME, bytes, XattrFlags::empty()).map_err(text),
            None => match rustix::fs::fremovexattr(&self.file, mark::NAME) {
                Err(rustix::io::Errno::NODATA) => Ok(()),
                result => result.map_err(text),
            },
        }
    }

    fn put_file(&self, content: &Content) -> Result<(), String> {
        let bytes = content.trimmed();
        self.file.set_len(bytes.len() as u64).map_err(text)?;
        self.file.write_all_at(bytes, 0).map_err(text)?;
        self.file.set_len(content.size).map_err(text)
    }

    /// Restores file, mark and journal to the state of an image.
    pub fn restore(&self, image: &Image) -> Result<(), String> {
        self.clear()?;
        let content = image.content(FILE).ok_or("the image has no file")?;
        self.put_file(content)?;
        self.put_mark(image.names.mark.as_deref())?;
        if image.names.pool.is_some() && !self.found.pool {
            rustix::fs::mkdir(self.pool(), Mode::RWXU).map_err(text)?;
        }
        if let Some(journal) = image.names.journal.and_then(|journal| image.content(journal)) {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = rustix::fs::open(self.journal(), flags, Mode::RUSR | Mode::WUSR).map_err(text)?;
            let file = File::from(file);
            let bytes = journal.trimmed();
            let mut at = 0;
            while at < bytes.len() {
                // Pages of zeros stay holes.
                let is_data = |page: usize| {
                    bytes[page.min(bytes.len())..(page + 4096).min(bytes.len())].iter().any(|&byte| byte != 0)
                };
                let mut end = at;
                while end < bytes.len() && is_data(end) {
                    end += 4096;
                }
                if end > at {
                    file.write_all_at(&bytes[at..end.min(bytes.len())], at as u64).map_err(text)?;
                }
                at = end + 4096 * usize::from(end == at);
            }
            file.set_len(journal.size).map_err(text)?;
        }
        joint::restore(&self.pool(), image).map_err(text)
    }

    /// Recovers what is there, in boot number `boot`, and reads the file.
    pub fn recover(&self, machine: Machine, boot: u8) -> Result<Vec<u8>, String> {
        machine.test_hooks(boot).enter();
        let recovered = self.check_here().and_then(|checked| self.recover_after(checked, boot));
        TestHooks::default().enter();
        recovered
    }

    /// In the boot of the history, the state that dead processes left between two owners is there, and must not
    /// count: a process that opens the file and syncs it gets what is committed.
    fn recover_after(&self, checked: Option<u64>, boot: u8) -> Result<Vec<u8>, String> {
        if boot > 1 || self.between.borrow().is_empty() {
            return self.recover_here(Some(checked));
        }
        let between = self.between.borrow();
        // The names of memory contain the control file's identity, which differs here.
        let (control, memory): (Vec<_>, Vec<_>) = between.iter().partition(|(path, _)| path.ends_with(".control"));
        let mut there = Vec::new();
        for (path, bytes) in &control {
            let folder = Path::new(path).parent().ok_or("a path without a folder")?;
            std::fs::create_dir_all(folder).and_then(|()| write_private(path, bytes)).map_err(text)?;
            there.push(path.clone());
        }
        let named = there.first().and_then(|path| Path::new(path).metadata().ok());
        for (path, bytes) in &memory {
            let path = named.as_ref().map_or_else(|| path.clone(), |named| name_by(named, path));
            write_private(&path, bytes).map_err(text)?;
            there.push(path);
        }
        let opened = Opened::new(self)?;
        let read = opened.read().and_then(|read| opened.apply(0, Op::Sync).map(|()| read));
        opened.close()?;
        let read = read?;
        if let Some(path) = there.iter().find(|path| Path::new(path).exists()) {
            return Err(format!("{path} is left of those who have died"));
        }
        self.leaves_nothing()?;
        let found = self.contents()?;
        if read == found { Ok(found) } else { Err("a successor reads other bytes than it leaves".into()) }
    }

    /// The same for a damaged state: the check may have found something.
    pub fn recover_damaged(&self, machine: Machine, boot: u8) -> Result<Vec<u8>, String> {
        machine.test_hooks(boot).enter();
        let recovered = self.recover_here(None);
        TestHooks::default().enter();
        recovered
    }

    fn recover_here(&self, checked: Option<Option<u64>>) -> Result<Vec<u8>, String> {
        let options = Options { threads: 1, ..Options::default() };
        let mut reports = recover_path(&self.path, &self.settings(), &options, &Silent).map_err(text)?;
        match reports.pop().map(|report| (report.outcome, report.epoch)) {
            Some((Outcome::NothingToDo | Outcome::Clean, _)) => {}
            Some((Outcome::Recovered, epoch)) if checked.is_none_or(|checked| checked == Some(epoch)) => {}
            Some((Outcome::Recovered, epoch)) => {
                return Err(format!("recovered to epoch {epoch}, the check before it says {checked:?}"));
            }
            other => return Err(format!("not recovered: {other:?}")),
        }
        self.leaves_nothing()?;
        match self.check_here()? {
            None => self.contents(),
            Some(epoch) => Err(format!("after its recovery there is a journal with epoch {epoch}")),
        }
    }

    /// Runs `famio check`: nothing may be wrong in any state that a crash can leave. Returns the last commit of the
    /// journal, if there is one.
    fn check_here(&self) -> Result<Option<u64>, String> {
        // Without the recorder: a check stores nothing.
        let test_hooks = TestHooks::current();
        TestHooks { medium: None, ..test_hooks }.enter();
        let checked = check(&self.path, &self.settings()).map_err(text);
        test_hooks.enter();
        let Some(Checked { condition, problems, .. }) = checked?.pop() else { return Err("nothing to check".into()) };
        match condition {
            Condition::Ordinary => Ok(None),
            Condition::Sound { epoch } => Ok(Some(epoch)),
            other => {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                Err(format!("the check says {other:?}: {}", problems.join("; ")))
            }
        }
    }

    /// Whether dead processes have left a state between two owners.
    pub fn has_between(&self) -> bool {
        !self.between.borrow().is_empty()
    }

    fn leaves_nothing(&self) -> Result<(), String> {
        // A pool that was empty already is left as it is: another file's journal may be about to be created in it.
        if self.journal().exists() {
            return Err("a recovery has left the journal behind".into());
        }
        if rustix::fs::fgetxattr(&self.file, mark::NAME, &mut [0; 2048]).is_ok() {
            return Err("a recovery has left the mark behind".into());
        }
        Ok(())
    }

    /// The file's bytes.
    pub fn contents(&self) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; self.file.metadata().map_err(text)?.len() as usize];
        self.file.read_exact_at(&mut bytes, 0).map_err(text)?;
        Ok(bytes)
    }

    /// Recovers what is there under the recorder; the medium holds `start`. The recording ends with mark 1 if the
    /// recovery succeeded.
    pub fn recover_recorded(
        &mut self,
        machine: Machine,
        boot: u8,
        start: Start,
        fail: Option<(Call, usize)>,
    ) -> Result<Recovery, String> {
        let recorder = self.recorder(machine);
        recorder.begin(self.place()?, Some(start)).map_err(text)?;
        if let Some((call, nth)) = fail {
            recorder.fail(call, nth, libc::EIO);
        }
        TestHooks { medium: Some(recorder), ..machine.test_hooks(boot) }.enter();
        let found = self.check_here().and_then(|checked| self.recover_after(checked, boot));
        if found.is_ok() {
            recorder.mark(1);
        }
        TestHooks::default().enter();
        Ok(Recovery { found, trace: recorder.trace(), calls: Call::ALL.map(|call| recorder.calls(call)) })
    }

    /// Whether the file can be used as before, with `contents` in it: written, appended to, cut, committed, closed,
    /// opened.
    pub fn is_usable(&self, machine: Machine, boot: u8, contents: &[u8]) -> Result<(), String> {
        let test_hooks = TestHooks { policy: Some(PolicyChoice::Redo), ..machine.test_hooks(boot) };
        test_hooks.enter();
        let used = self.use_it(contents);
        TestHooks::default().enter();
        used.map_err(|e| format!("not usable after recovery: {e}"))
    }

    fn use_it(&self, contents: &[u8]) -> Result<(), String> {
        let mut oracle = Oracle { unsynced: false, now: contents.to_vec(), states: Vec::new() };
        let history = [
            vec![Op::Write { at: 10, len: 90 }, Op::Append { len: 500 }, Op::Size(3000), Op::Sync],
            vec![Op::Write { at: 0, len: 4096 }, Op::Sync, Op::Write { at: 64, len: 64 }, Op::Append { len: 20 }],
        ];
        for (part, ops) in history.into_iter().enumerate() {
            let opened = Opened::new(self)?;
            for (number, op) in ops.into_iter().enumerate() {
                oracle.apply(part * 8 + number, op);
                opened.apply(part * 8 + number, op)?;
            }
            if opened.read()? != oracle.now {
                return Err("it reads other bytes than were written".into());
            }
            opened.close()?;
            self.leaves_nothing()?;
            if self.contents()? != oracle.now {
                return Err("it holds other bytes than were written".into());
            }
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.clear_control();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A recovery under the recorder.
pub struct Recovery {
    /// The contents after it.
    pub found: Result<Vec<u8>, String>,
    pub trace: Trace,
    pub calls: [usize; CALLS],
}

/// The file, open as an atomic one.
struct Opened {
    /// Made by the first store; dropped before the file, which it keeps open.
    region: Mutex<Option<Region>>,
    file: File,
    atomic: Arc<AtomicFile>,
}

/// Size of the map: larger than any file.
const MAPPED: u64 = 64 << 10;

impl Opened {
    fn new(world: &World) -> Result<Self, String> {
        let file = File::options().read(true).write(true).open(&world.path).map_err(text)?;
        let name = CString::new(world.path.to_string_lossy().as_bytes()).map_err(text)?;
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &world.settings()).map_err(text)?;
        Ok(Self { region: Mutex::default(), file, atomic })
    }

    /// `at`: `None` is the end of the file.
    fn write(&self, at: Option<u64>, data: &[u8]) -> Result<(), String> {
        let buf = [UserBuf { base: data.as_ptr().cast_mut(), len: data.len() }];
        // SAFETY: a live buffer.
        let written = unsafe {
            match at {
                Some(at) => self.atomic.write(at, &buf),
                None => self.atomic.append(&buf).map(|(_, written)| written),
            }
        }
        .map_err(text)?;
        if written == data.len() { Ok(()) } else { Err(format!("{written} of {} bytes were written", data.len())) }
    }

    fn store(&self, number: usize, (at, len): (u64, u64), by: By) -> Result<(), String> {
        let mut region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        let region = match &mut *region {
            Some(region) => region,
            none => none.insert(Region::of(&self.atomic, self.file.as_fd(), 0..MAPPED, true).map_err(text)?),
        };
        let by_pointer = by == By::Pointer || by == By::Turns && number.is_multiple_of(2);
        let size = self.atomic.size();
        let end = if by == By::Pointer { size.next_multiple_of(4096) } else { size };
        let data = bytes(number, at, len.min(end.saturating_sub(at)));
        if data.is_empty() {
            return Ok(());
        }
        let to = region.as_ptr().wrapping_add(at as usize);
        if by_pointer {
            // SAFETY: in a page of the file, and not used by others.
            unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
            return Ok(());
        }
        // SAFETY: below the end of the file, and not used by others.
        unsafe { famio::region::copy(to, data.as_ptr(), data.len()) }.map_err(text)
    }

    fn unmap(&self) -> Result<(), String> {
        let region = self.region.lock().unwrap_or_else(PoisonError::into_inner).take();
        region.map_or(Ok(()), |region| region.unmap().map_err(text))
    }

    fn apply(&self, number: usize, op: Op) -> Result<(), String> {
        match op {
            Op::Map { at, len, by } => self.store(number, (at, len), by),
            Op::Unmap => self.unmap(),
            Op::Write { at, len } => self.write(Some(at), &bytes(number, at, len)),
            Op::Both { first, second } => {
                let (test_hooks, away) = (TestHooks::current(), Away::current());
                std::thread::scope(|scope| {
                    let other = scope.spawn(|| {
                        test_hooks.enter();
                        away.enter();
                        self.write(Some(second.0), &bytes(number, second.0, second.1))
                    });
                    let one = self.write(Some(first.0), &bytes(number, first.0, first.1));
                    one.and(other.join().map_err(|_| "a thread panicked")?)
                })
            }
            Op::Append { len } => {
                let at = self.atomic.size();
                self.write(None, &bytes(number, at, len))
            }
            Op::Transaction { at, len, syncs } => {
                let all = pieces(at, len).map(|(at, len)| (at, bytes(number, at, len)));
                let all: Vec<(u64, &[u8])> = all.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
                self.atomic.commit_pieces(&all, syncs).map_err(text)
            }
            Op::Whole { at, len } => {
                let data = bytes(number, at.unwrap_or_else(|| self.atomic.size()), len);
                let buf = [UserBuf { base: data.as_ptr().cast_mut(), len: data.len() }];
                // SAFETY: a live buffer.
                match unsafe { self.atomic.write_atomically(at, &buf, Whole::All) }.map_err(text)? {
                    (_, done) if done == data.len() => Ok(()),
                    (_, done) => Err(format!("{done} of {len} bytes were written")),
                }
            }
            // A map would keep what is discarded, so it is refused.
            Op::Rollback => match self.atomic.rollback() {
                Err(e) if e.errno() == libc::EBUSY => Err("mapped".into()),
                done => done.map_err(text),
            },
            Op::Size(size) => self.atomic.set_size(size).map_err(text),
            Op::Sync => self.atomic.sync().map_err(text),
            Op::Checkpoint => {
                while self.atomic.checkpoint_round().map_err(text)? {}
                Ok(())
            }
            Op::Blocks => self.atomic.checkpoint_part(false).map_err(text),
            Op::EndPass => self.atomic.checkpoint_part(true).map_err(text),
            Op::Flush => self.atomic.flush_as_asked().map(drop).map_err(text),
            Op::Policy(policy) => {
                TestHooks { policy: Some(policy), ..TestHooks::current() }.enter();
                Ok(())
            }
            Op::Close => self.atomic.checkpoint().map_err(text),
            Op::Reopen => Ok(()),
            Op::HandOver | Op::Die | Op::Joint { .. } | Op::Peer | Op::PeerSync => {
                Err("only by the history's own".into())
            }
        }
    }

    /// Hands the file over. `None`: it stays, because it is mapped or the hand-over failed.
    fn give(&self, dies: bool) -> Result<Option<Vec<String>>, String> {
        match if dies { self.atomic.hand_over_and_die() } else { self.atomic.hand_over() } {
            Err(e) if e.errno() == libc::EBUSY => Ok(None),
            given => given.map(Some).map_err(text),
        }
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        let mut data = vec![0xEE; self.atomic.size() as usize + 100];
        let buf = [UserBuf { base: data.as_mut_ptr(), len: data.len() }];
        // SAFETY: a live buffer.
        let n = unsafe { self.atomic.read(0, &buf) }.map_err(text)?;
        data.truncate(n);
        Ok(data)
    }

    fn close(self) -> Result<(), String> {
        drop(self.region);
        self.atomic.remove_descriptor(self.file.as_raw_fd()).map_err(text)
    }
}

/// A history in progress.
struct Session<'w> {
    world: &'w World,
    recorder: &'static Recorder,
    opened: Option<Opened>,
    /// For histories with transactions of several files.
    peer: Option<Peer>,
    oracle: Oracle,
    test_hooks: TestHooks,
    /// A first write, or change of size, has succeeded.
    attached: bool,
    /// The last state whose SYNC has returned.
    kept: usize,
    error: Option<String>,
}

impl<'w> Session<'w> {
    fn open(world: &'w World, recorder: &'static Recorder, test_hooks: TestHooks) -> Result<Self, String> {
        let opened = Some(Opened::new(world)?);
        let oracle = Oracle { unsynced: world.found.unsynced, ..Oracle::default() };
        Ok(Self { world, recorder, opened, peer: None, oracle, test_hooks, attached: false, kept: 0, error: None })
    }

    fn steps(&mut self, case: &Case, may_fail: bool) -> Result<(), String> {
        let has_peer = |step: &Step| matches!(step.op, Op::Joint { .. } | Op::Peer | Op::PeerSync);
        if case.found.group || case.steps.iter().any(has_peer) {
            if !case.found.pool {
                return Err("commits of several files take a pool that is named (+pool)".into());
            }
            self.peer = Some(Peer::new(&self.world.folder, &self.world.settings())?);
        }
        if !case.steps.iter().any(|step| step.other) {
            return self.each(case, may_fail, None);
        }
        let (to, jobs) = channel::<(usize, Op, Arc<AtomicFile>, File)>();
        let (answers, from) = channel::<Result<(), String>>();
        let test_hooks = TestHooks { ids: Some(1 << 32), ..self.test_hooks };
        let away = Away::current();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                test_hooks.enter();
                away.enter();
                for (number, op, atomic, file) in jobs {
                    let opened = Opened { region: Mutex::default(), file, atomic };
                    let done = opened.apply(number, op);
                    drop(opened); // the map is dropped before the history goes on
                    if answers.send(done).is_err() {
                        return;
                    }
                }
            });
            self.each(case, may_fail, Some((to, from)))
        })
    }

    fn each(&mut self, case: &Case, may_fail: bool, other: Option<Other>) -> Result<(), String> {
        let mut record_failed = false;
        for (number, step) in case.steps.iter().enumerate() {
            // 0 is the initial contents.
            let (number, at) = (number + 1, number);
            let is_joint = matches!(step.op, Op::Joint { .. });
            let transaction = matches!(step.op, Op::Transaction { syncs: true, .. } | Op::Whole { .. }) || is_joint;
            let commits = matches!(step.op, Op::Sync | Op::Close | Op::Reopen | Op::PeerSync) || transaction;
            // Then the file has its state from the record, not from its own commit.
            let by_record = self.world.found.group && self.peer.as_ref().is_some_and(Peer::is_open) && commits;
            if self.error.is_some() && matches!(step.op, Op::Close | Op::Reopen) {
                break;
            }
            // For a file that was just created, what the kernel has to sync before Famio attaches is not examined.
            let seals = commits && (self.attached || !self.oracle.unsynced || transaction);
            let before = self.oracle.now.clone();
            if is_joint {
                let open = self.oracle.seal();
                self.recorder.mark(Promise::Begun(open).mark());
            }
            if transaction {
                self.oracle.apply(number, step.op); // its commit includes this
            }
            let sealed = seals.then(|| self.oracle.seal());
            // After a commit that failed, the other file may have been committed already, and there is no record.
            if let Some(state) = sealed.filter(|_| !by_record || record_failed) {
                self.recorder.mark(Promise::Begun(state).mark());
            }
            let recorder = self.recorder;
            let mut carry_out = || match (&other, step.op) {
                (_, Op::Reopen) => self.reopen(),
                (_, op @ (Op::HandOver | Op::Die)) => self.give(op),
                (_, Op::Joint { at, len, size }) => self.commit_joint(number, (at, len), size, sealed.unwrap_or(0)),
                // The first thread chooses the policy.
                (Some(other), op) if step.other && !matches!(op, Op::Policy(_)) => self.by_other(other, number, op),
                (_, Op::Flush) => self.flush(),
                (_, Op::Peer) => self.peer()?.write(number),
                (_, Op::PeerSync) => self.peer()?.sync(),
                (_, op) => self.opened()?.apply(number, op),
            };
            let done = match sealed.filter(|_| by_record) {
                Some(state) => joint::by_record(recorder, state, &mut carry_out),
                None => carry_out(),
            };
            if commits && done.is_ok() {
                self.peer.iter().for_each(Peer::is_committed);
            }
            match (done, sealed) {
                (Ok(()), Some(state)) => {
                    self.attached |= transaction;
                    self.kept = state;
                    self.recorder.mark(Promise::Kept(state).mark());
                }
                (Ok(()), None) if step.op == Op::Rollback => {
                    self.oracle.now = self.oracle.states[self.kept].clone();
                }
                // It stays unchanged.
                (Err(e), None) if step.op == Op::Rollback && e == "mapped" => {}
                (Ok(()), None) => {
                    if !self.attached && step.op.attaches() {
                        // From here on, a crash takes the file back to its initial state.
                        self.attached = true;
                        // Where the order is kept, from the first SYNC on.
                        if self.oracle.unsynced && !TestHooks::current().keeps_order {
                            self.recorder.mark(Promise::Kept(0).mark());
                        }
                    }
                    self.oracle.apply(number, step.op);
                }
                (Err(e), _) if !may_fail => return Err(format!("step {at} ({step}) failed: {e}")),
                (Err(e), Some(state)) => {
                    record_failed |= by_record;
                    self.recorder.mark(Promise::Failed(state).mark());
                    self.error.get_or_insert(e);
                    if step.op == Op::Reopen {
                        break;
                    }
                    if transaction {
                        self.oracle.now = self.opened()?.read().unwrap_or(before);
                    }
                }
                (Err(e), None) => {
                    // It may have been done partly.
                    self.error.get_or_insert(e);
                    self.oracle.now = self.opened()?.read().unwrap_or_else(|_| self.oracle.now.clone());
                }
            }
        }
        match &self.opened {
            Some(opened) if self.error.is_none() && opened.read()? != self.oracle.now => {
                Err("a reader sees other bytes than were written".into())
            }
            _ => Ok(()),
        }
    }

    fn opened(&self) -> Result<&Opened, String> {
        self.opened.as_ref().ok_or_else(|| "the file is closed".into())
    }

    fn peer(&self) -> Result<&Peer, String> {
        self.peer.as_ref().ok_or_else(|| "no other file".into())
    }

    /// Then the file has what was committed, and nothing else.
    fn flush(&self) -> Result<(), String> {
        let was_in_session = self.opened()?.atomic.flush_as_asked().map_err(text)?;
        if was_in_session && self.peer.is_none() && self.error.is_none() {
            let there = std::fs::read(&self.world.path).map_err(|e| e.to_string())?;
            if there != self.oracle.states[self.kept] {
                return Err("after a flush, the file is not as committed".into());
            }
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.opened.take().map_or(Ok(()), Opened::close)?;
        self.opened = Some(Opened::new(self.world)?);
        Ok(())
    }

    fn give(&mut self, op: Op) -> Result<(), String> {
        let dies = op == Op::Die;
        let Some(left) = self.opened()?.give(dies)? else { return Ok(()) };
        let left = left.into_iter().filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?)));
        *self.world.between.borrow_mut() = left.collect();
        if dies {
            // After a failure, it may be either.
            let seen = self.error.is_some().then(|| self.opened()?.read()).transpose()?;
            self.oracle.now = seen.unwrap_or_else(|| self.oracle.states[self.kept].clone());
        }
        Ok(())
    }

    fn commit_joint(
        &self,
        number: usize,
        (at, len): (u64, u64),
        size: Option<u64>,
        state: usize,
    ) -> Result<(), String> {
        let (opened, peer) = (self.opened()?, self.peer()?);
        let all = pieces(at, len).map(|(at, len)| (at, bytes(number, at, len)));
        let all: Vec<(u64, &[u8])> = all.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        peer.commit(&opened.atomic, &all, size, (self.recorder, state))
    }

    fn by_other(&self, (to, from): &Other, number: usize, op: Op) -> Result<(), String> {
        let opened = self.opened()?;
        let file = opened.file.try_clone().map_err(text)?;
        to.send((number, op, opened.atomic.clone(), file)).map_err(text)?;
        from.recv().map_err(text)?
    }

    /// What happens to the file from now on is not examined.
    fn close(mut self) {
        if let Some(opened) = self.opened.take() {
            let _ = opened.close();
        }
        if let Some(peer) = self.peer.take() {
            let _ = peer.close();
        }
    }
}

type Other = (Sender<(usize, Op, Arc<AtomicFile>, File)>, Receiver<Result<(), String>>);
