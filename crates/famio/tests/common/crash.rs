//! A process that is killed after a series of operations, and what it leaves: to be damaged, moved, and recovered.
//!
//! A test that uses this has a test `crash_child` that calls [`child`]: the test binary runs itself for it.
#![allow(dead_code)] // each test uses a part

use super::common::{Opened, Scratch};
use famio::recovery::{Options, Outcome, Report, Silent, Use, recover_path};
use famio::{Durability, JournalChoice, OnKill, PolicyChoice, Settings, TierChoice};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes `len` bytes of this value.
    Write { at: u64, len: usize, byte: u8 },
    /// Zeros over a range.
    Zero { at: u64, len: u64 },
    /// Sets the size.
    Size(u64),
    /// SYNC.
    Sync,
    /// Waits a while, so that the background checkpoints.
    Rest,
    /// Reports that it has come here, and waits to be killed.
    Hold,
    /// Waits until the file has its write lease.
    Lease,
    /// Gives the lease up, as before an outsider's `open`.
    Expose,
    /// Reads ten times.
    Reads,
    /// Closes the file, and dies after the file was cut to its size, before the journal is marked clean.
    DieClosing,
    /// Closes the file: the last step.
    Close,
}

pub use Step::{Close, DieClosing, Expose, Hold, Lease, Reads, Rest, Size, Sync};

pub fn write(at: u64, len: usize, byte: u8) -> Step {
    Step::Write { at, len, byte }
}

/// The resulting contents: (with all steps, up to the last SYNC).
pub fn model(initial: &[u8], steps: &[Step]) -> (Vec<u8>, Vec<u8>) {
    let (mut now, mut committed) = (initial.to_vec(), initial.to_vec());
    for step in steps {
        match *step {
            Step::Write { at, len, byte } => {
                let end = at as usize + len;
                if now.len() < end {
                    now.resize(end, 0);
                }
                now[at as usize..end].fill(byte);
            }
            Step::Zero { at, len } => {
                let end = now.len().min((at + len) as usize);
                now[(at as usize).min(end)..end].fill(0);
            }
            Size(size) => now.resize(size as usize, 0),
            Sync | DieClosing => committed.clone_from(&now),
            Rest | Hold | Lease | Expose | Reads | Close => {}
        }
    }
    (now, committed)
}

fn encode(steps: &[Step]) -> String {
    let one = |step: &Step| match step {
        Step::Write { at, len, byte } => format!("w {at} {len} {byte}"),
        Step::Zero { at, len } => format!("z {at} {len}"),
        Size(size) => format!("t {size}"),
        Sync => "s".into(),
        Rest => "r".into(),
        Hold => "h".into(),
        Lease => "l".into(),
        Expose => "e".into(),
        Reads => "d".into(),
        DieClosing => "x".into(),
        Close => "c".into(),
    };
    steps.iter().map(one).collect::<Vec<_>>().join(";")
}

fn decode(text: &str) -> Vec<Step> {
    let one = |step: &str| {
        let words: Vec<&str> = step.split(' ').collect();
        match words[..] {
            ["w", at, len, byte] => write(at.parse().unwrap(), len.parse().unwrap(), byte.parse().unwrap()),
            ["z", at, len] => Step::Zero { at: at.parse().unwrap(), len: len.parse().unwrap() },
            ["t", size] => Size(size.parse().unwrap()),
            ["s"] => Sync,
            ["r"] => Rest,
            ["h"] => Hold,
            ["l"] => Lease,
            ["e"] => Expose,
            ["d"] => Reads,
            ["x"] => DieClosing,
            ["c"] => Close,
            _ => panic!("{step}"),
        }
    };
    text.split(';').filter(|step| !step.is_empty()).map(one).collect()
}

const FILE: &str = "FAMIO_CRASH_FILE";
const STEPS: &str = "FAMIO_CRASH_STEPS";
const SETTINGS: &str = "FAMIO_CRASH_SETTINGS";
const MAPS: &str = "FAMIO_CRASH_MAPS";
/// With this variable, the process reports the thread that executes the steps, waits for a line before the first
/// step, and reports each finished SYNC; with `on-kill = keep`, each finished step, too.
pub const MEETS: &str = "FAMIO_CRASH_MEETS";
/// With this variable, the file has a journal only if it needs one.
pub const MAY_GROW: &str = "FAMIO_CRASH_MAY_GROW";

fn settings_text(settings: &Settings) -> String {
    let Settings {
        pool,
        durability,
        emulated,
        policy,
        journal_limit,
        map_memory,
        require: _,
        on_kill,
        locks: _,
        shm: _,
        journal: _,
        on_close: _,
        defer_close: _,
        tier: _,
        write_back: _,
        atomicity: _,
        application: _,
        pool_weight: _,
        group: _,
    } = settings;
    let pool = pool.as_ref().map_or(String::new(), |pool| pool.display().to_string());
    let map_memory = map_memory.map_or(String::new(), |limit| limit.to_string());
    format!("{policy:?},{emulated},{journal_limit},{durability:?},{on_kill:?},{map_memory},{pool}")
}

fn settings_of(text: &str) -> Settings {
    let words: Vec<&str> = text.splitn(7, ',').collect();
    let policy = match words[0] {
        "Undo" => PolicyChoice::Undo,
        "Redo" => PolicyChoice::Redo,
        "Alternate" => PolicyChoice::Alternate,
        _ => PolicyChoice::Auto,
    };
    Settings {
        policy,
        emulated: words[1] == "true",
        journal_limit: words[2].parse().unwrap(),
        durability: if words[3] == "Power" { Durability::Power } else { Durability::Process },
        on_kill: if words[4] == "Keep" { OnKill::Keep } else { OnKill::Rollback },
        map_memory: words[5].parse().ok(),
        pool: (!words[6].is_empty()).then(|| PathBuf::from(words[6])),
        require: false,
        locks: Default::default(),
        on_close: Default::default(),
        defer_close: Default::default(),
        tier: TierChoice::Auto,
        write_back: Default::default(),
        atomicity: Default::default(),
        group: None,
        journal: JournalChoice::Always, // the tests examine it after the crash
        shm: None,
        application: None,
        pool_weight: 100,
    }
}

/// The killed process; does nothing in other processes.
pub fn child() {
    let Ok(path) = std::env::var(FILE) else { return };
    let mut settings = settings_of(&std::env::var(SETTINGS).unwrap());
    if std::env::var(MAY_GROW).is_ok() {
        settings.journal = JournalChoice::Auto;
    }
    let meets = std::env::var(MEETS).is_ok();
    if meets {
        // SAFETY: no arguments.
        eprintln!("thread {}", unsafe { libc::gettid() });
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
    let mut opened = Some(Opened::new(Path::new(&path), &settings));
    for step in decode(&std::env::var(STEPS).unwrap()) {
        let file = || opened.as_ref().expect("open");
        match step {
            Close => drop(opened.take()),
            Step::Write { at, len, byte } => file().write(at, &vec![byte; len]),
            Step::Zero { at, len } => file().atomic().zero(at, at + len).unwrap(),
            Size(size) => file().atomic().set_size(size).unwrap(),
            Sync => {
                file().atomic().sync().unwrap();
                if meets {
                    eprintln!("acknowledged");
                }
            }
            Rest => std::thread::sleep(std::time::Duration::from_millis(800)),
            Lease => super::common::take_lease(file()),
            Expose => file().atomic().give_up_lease().unwrap(),
            Reads => (0..10).for_each(|_| drop(file().read(0, 64))),
            DieClosing => {
                die_at(libc::SYS_utimensat);
                drop(opened.take());
                panic!("closed, and not dead");
            }
            Hold => {
                std::io::stderr().write_all(b"ready\n").unwrap();
                std::thread::sleep(std::time::Duration::from_secs(120));
            }
        }
        if meets && settings.on_kill == OnKill::Keep {
            eprintln!("done");
        }
    }
    if let Ok(path) = std::env::var(MAPS) {
        fs::copy("/proc/self/maps", path).unwrap();
    }
    // SAFETY: kills only this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// A process that executes the steps.
pub fn command(path: &Path, settings: &Settings, steps: &[Step]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash_child", "--nocapture"]).stdout(Stdio::null());
    command.env(FILE, path).env(SETTINGS, settings_text(settings)).env(STEPS, encode(steps));
    command
}

/// Runs the steps in a process that is then killed.
pub fn crash(path: &Path, settings: &Settings, steps: &[Step]) {
    let status = command(path, settings, steps).env(MAPS, path.with_extension("maps")).status().unwrap();
    let signal = if steps.last() == Some(&DieClosing) { libc::SIGSYS } else { libc::SIGKILL };
    assert_eq!(status.signal(), Some(signal), "{status}");
}

/// From now on, this process is killed when it makes this system call.
fn die_at(call: libc::c_long) {
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    // The number of the call is the first word of the filter's input.
    let mut filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a program with its length, which the kernel copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let all = libc::SECCOMP_FILTER_FLAG_TSYNC;
        assert_eq!(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, all, &raw const program), 0);
    }
}

/// Runs the steps in a process that then stays alive.
pub fn hold(path: &Path, settings: &Settings, steps: &[Step]) -> Child {
    let steps: Vec<Step> = steps.iter().copied().chain([Hold]).collect();
    let mut child = command(path, settings, &steps).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    child
}

/// Runs the steps in a process in which they fail; returns its output.
pub fn fails(path: &Path, settings: &Settings, steps: &[Step]) -> String {
    let output = command(path, settings, steps).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(101), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file whose process was killed, with everything needed to restore it.
pub struct Crashed {
    pub dir: Scratch,
    pub path: PathBuf,
    pub settings: Settings,
    /// As of the last SYNC.
    pub committed: Vec<u8>,
    /// The file as the kill left it.
    pub raw: Vec<u8>,
    pub mark: Vec<u8>,
    pub journal_path: PathBuf,
    pub journal: Vec<u8>,
}

/// Steps with commits, changes of size in both directions, overwritten committed data, and an open epoch with all of
/// these.
pub fn history() -> Vec<Step> {
    vec![
        write(0, 9000, 1),
        write(12_000, 100, 2),
        Sync,
        write(50, 300, 3),
        write(20_000, 3000, 4),
        write(4096, 64, 5),
        Sync,
        Size(21_000),
        write(12_010, 5000, 6),
        Sync,
        write(40, 8000, 7),
        write(20_990, 2000, 8),
        write(12_000, 10, 9),
        Size(22_000),
    ]
}

/// The file's contents before the steps.
pub fn initial() -> Vec<u8> {
    (0..16_000u32).map(|i| (i % 251) as u8).collect()
}

impl Crashed {
    pub fn new(dir: Scratch, settings: &Settings, steps: &[Step]) -> Self {
        let path = dir.path().join("app.db");
        fs::write(&path, initial()).unwrap();
        crash(&path, settings, steps);
        let (_, committed) = model(&initial(), steps);
        let pool = settings.pool.clone().unwrap_or_else(|| dir.path().join(".famio"));
        let (raw, mark) = (fs::read(&path).unwrap(), get_mark(&path).expect("the crashed file has a mark"));
        let journal_path = journals(&pool).pop().expect("the crashed file has a journal");
        let journal = fs::read(&journal_path).unwrap();
        Self { dir, path, settings: settings.clone(), committed, raw, mark, journal_path, journal }
    }

    /// With the usual steps.
    pub fn usual(dir: Scratch, settings: &Settings) -> Self {
        Self::new(dir, settings, &history())
    }

    /// Restores everything as the kill left it, except the arena, which knows when the last writer left: as after the
    /// end of a boot that the journal survives.
    pub fn restore(&self) {
        if fs::read(&self.path).unwrap() != self.raw {
            fs::write(&self.path, &self.raw).unwrap();
        }
        set_mark(&self.path, &self.mark);
        self.put_journal(&self.journal);
        self.forget_arena();
    }

    /// Puts these bytes under the journal's name.
    pub fn put_journal(&self, bytes: &[u8]) {
        let pool = self.journal_path.parent().unwrap();
        if !pool.exists() {
            use std::os::unix::fs::DirBuilderExt;
            fs::DirBuilder::new().mode(0o700).create(pool).unwrap();
        }
        if !self.journal_path.exists() {
            use std::os::unix::fs::OpenOptionsExt;
            File::options().write(true).create_new(true).mode(0o600).open(&self.journal_path).unwrap();
        }
        let file = File::options().write(true).open(&self.journal_path).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
    }

    pub fn forget_arena(&self) {
        let _ = fs::remove_file(arena(&self.path));
    }

    /// What the killed process left in shared memory, and the control file that names it, to be put back after a
    /// `restore`.
    pub fn arena(&self) -> [(PathBuf, Vec<u8>); 2] {
        let control = super::common::arenas::control(&self.path).expect("it has a control file");
        [control, arena(&self.path)].map(|path| (path.clone(), fs::read(path).unwrap()))
    }

    /// By one descriptor: the control file gets another inode, so that any process that sweeps may remove the arena.
    pub fn put_arena(&self, left: &[(PathBuf, Vec<u8>); 2]) {
        use std::os::unix::fs::PermissionsExt;
        for (path, bytes) in left {
            let mut file = File::create(path).unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
            file.write_all(bytes).unwrap();
        }
    }

    /// Opens it: this fails with an error and changes nothing, or gives the right contents. Returns whether it was
    /// right.
    pub fn is_told_or_right(&self, journal: &[u8], what: &str) -> bool {
        let opened = Opened::try_new(&self.path, &self.settings);
        match opened {
            Ok(opened) => {
                let read = opened.read(0, self.committed.len() + 5000);
                assert!(read == self.committed, "{what}: opened, with wrong bytes");
                drop(opened);
                assert!(fs::read(&self.path).unwrap() == self.committed, "{what}: recovered to wrong bytes");
                assert!(get_mark(&self.path).is_none() && !self.journal_path.exists(), "{what}: leftovers");
                true
            }
            Err(e) => {
                assert_eq!(e.errno(), libc::EIO, "{what}: {e}");
                let text = e.to_string();
                let journal_path = self.journal_path.display().to_string();
                assert!(text.contains(self.path.to_str().unwrap()), "{what}: no file in: {text}");
                assert!(text.contains(&journal_path), "{what}: no journal in: {text}");
                assert!(fs::read(&self.path).unwrap() == self.raw, "{what}: the file was touched: {text}");
                // Comparing everything would take most of a test's time.
                let mut found = vec![0; journal.len().min(16384)];
                let kept = File::open(&self.journal_path).unwrap();
                kept.read_exact_at(&mut found, 0).unwrap();
                let length = kept.metadata().unwrap().len() as usize;
                let same = length == journal.len() && found == journal[..found.len()];
                assert!(same, "{what}: the journal was touched: {text}");
                assert_eq!(get_mark(&self.path).as_deref(), Some(&self.mark[..]), "{what}: the mark was touched");
                false
            }
        }
    }

    /// `famio recover FILE`.
    pub fn recover(&self, on_conflict: Use) -> Report {
        recover(&self.path, &self.settings, on_conflict)
    }

    pub fn assert_recovered(&self) {
        assert!(fs::read(&self.path).unwrap() == self.committed, "{:?}", self.settings);
        assert!(get_mark(&self.path).is_none() && !self.journal_path.exists());
    }
}

impl Drop for Crashed {
    fn drop(&mut self) {
        if self.path.exists() {
            self.forget_arena();
        }
    }
}

/// `famio recover PATH`, of one file.
pub fn recover(path: &Path, settings: &Settings, on_conflict: Use) -> Report {
    let options = Options { on_conflict, ..Options::default() };
    let mut reports = recover_path(path, settings, &options, &Silent).unwrap();
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports.remove(0)
}

pub fn is_stopped(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Conflict(_) | Outcome::Failed(_))
}

pub fn journals(pool: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(pool).into_iter().flatten().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|end| end == "journal")).collect()
}

pub use super::common::arenas::arena;

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

pub fn get_mark(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; 4096];
    let path = c_path(path);
    // SAFETY: two strings and a buffer with its length.
    let n = unsafe { libc::getxattr(path.as_ptr(), c"user.famio".as_ptr(), bytes.as_mut_ptr().cast(), bytes.len()) };
    (n >= 0).then(|| {
        bytes.truncate(n as usize);
        bytes
    })
}

pub fn set_mark(path: &Path, bytes: &[u8]) {
    let path = c_path(path);
    // SAFETY: two strings and a buffer with its length.
    let done = unsafe { libc::setxattr(path.as_ptr(), c"user.famio".as_ptr(), bytes.as_ptr().cast(), bytes.len(), 0) };
    assert_eq!(done, 0);
}

pub fn remove_mark(path: &Path) {
    let path = c_path(path);
    // SAFETY: two strings.
    unsafe { libc::removexattr(path.as_ptr(), c"user.famio".as_ptr()) };
}

/// The fixed policies on tmpfs, with and without flushes and fences.
pub fn in_place() -> Vec<Settings> {
    let plain = super::common::in_place_settings();
    plain.into_iter().filter(|settings| settings.policy != PolicyChoice::Auto).collect()
}

/// A crash with each of these settings.
pub fn everywhere(name: &str, with: impl FnMut(Crashed)) {
    everywhere_with(name, &history(), with);
}

/// As [`everywhere`], with other steps.
pub fn everywhere_with(name: &str, steps: &[Step], mut with: impl FnMut(Crashed)) {
    for (i, settings) in in_place().into_iter().enumerate() {
        with(Crashed::new(Scratch::on_tmpfs(&format!("{name}{i}")), &settings, steps));
    }
    with(Crashed::new(Scratch::on_disk(name), &Settings::default(), steps));
}

/// As [`everywhere`], and with the journal in a pool in memory.
pub fn everywhere_and_tiered(name: &str, mut with: impl FnMut(Crashed)) {
    everywhere_with(name, &history(), &mut with);
    let pool = Scratch::on_tmpfs(&format!("{name}-pool"));
    let settings = Settings { pool: Some(pool.path().to_path_buf()), ..super::common::tiered_settings(false) };
    with(Crashed::new(Scratch::on_disk(&format!("{name}-tier")), &settings, &history()));
}
