//! Several users with one file: a user who may write it can open, write and recover it; a user who may only read it
//! hinders no process; and no other user sees or changes anything of it. Needs root, for processes of other users.

mod common;

use common::{Opened, comes_true};
use famio::file::{Access, AtomicFile, UserBuf};
use famio::recovery::{Options, Outcome, Silent, recover_path};
use famio::{JournalChoice, Settings};
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

const OWNER: u32 = 61_001;
const MEMBER: u32 = 61_002;
const STRANGER: u32 = 61_003;
const GROUP: u32 = 61_000;
const OTHERS: u32 = 61_009;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: other users' processes take root");
    }
    root
}

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    /// With this owner and group, on tmpfs or on a disk.
    fn new(name: &str, on_disk: bool, mode: u32) -> Self {
        let parent = if on_disk { Path::new("/var/tmp") } else { Path::new("/dev/shm") };
        let path = parent.join(format!("famio-users-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(OWNER), Some(GROUP)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        Self(path)
    }

    /// A file in it, with the same owner and group.
    fn file(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, [b'-'; 5000]).unwrap();
        chown(&path, Some(OWNER), Some(GROUP)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process of another user that opens the file and executes commands, one per line, with one line as the answer.
struct User {
    child: Child,
    tell: ChildStdin,
    hear: BufReader<std::process::ChildStdout>,
}

impl User {
    fn open(uid: u32, path: &Path, how: &str) -> (Self, String) {
        let mut command = Command::new(copied_test());
        if how.contains("own group") {
            // Their first group is their own; the file's group is a supplementary one.
            command = Command::new("setpriv");
            command.args([format!("--reuid={uid}"), format!("--regid={uid}"), format!("--groups={GROUP}")]);
            command.arg(copied_test());
        } else {
            command.uid(uid).gid(if uid == STRANGER { OTHERS } else { GROUP });
        }
        command.args(["--exact", "user_process", "--nocapture", "--test-threads=1"]);
        command.env("FAMIO_USER_OPENS", path).env("FAMIO_USER_HOW", how).current_dir("/");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (tell, hear) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut user = Self { child, tell, hear };
        let opened = user.answer();
        (user, opened)
    }

    fn answer(&mut self) -> String {
        let (mut line, mut said) = (String::new(), String::new());
        loop {
            line.clear();
            assert!(self.hear.read_line(&mut line).unwrap() > 0, "it ended: {:?}; {said}", self.child.wait());
            said.push_str(&line);
            if let Some(at) = line.find("> ") {
                return line[at + 2..].trim_end().to_owned();
            }
        }
    }

    fn does(&mut self, what: &str) -> String {
        self.tell.write_all(format!("{what}\n").as_bytes()).unwrap();
        self.answer()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn end(mut self) {
        assert_eq!(self.does("close"), "ok");
        drop(self.tell);
        assert!(self.child.wait().unwrap().success());
    }
}

/// A copy of this test, where other users can execute it: they may not have access to the build folder.
fn copied_test() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let path = PathBuf::from(format!("/tmp/famio-users-{}", std::process::id()));
        // Copied by another process: a process forked meanwhile would have it open for writing for a moment.
        let copied =
            Command::new("install").args(["-m", "755"]).arg(std::env::current_exe().unwrap()).arg(&path).status();
        assert!(copied.unwrap().success());
        extern "C" fn remove() {
            let _ = COPY.get().map(fs::remove_file);
        }
        // SAFETY: the function stays as long as the process.
        unsafe { libc::atexit(remove) };
        path
    })
}

#[test]
fn user_process() {
    let Ok(path) = std::env::var("FAMIO_USER_OPENS") else { return };
    let how = std::env::var("FAMIO_USER_HOW").unwrap();
    let emulated = how.contains("emulated");
    let say = |what: &str| println!("> {what}");
    let file = match File::options().read(true).write(how.contains("write")).open(&path) {
        Ok(file) => file,
        Err(e) => return say(&format!("open: {e}")),
    };
    let name = std::ffi::CString::new(path).unwrap();
    let access = if how.contains("write") { Access::Write } else { Access::Read };
    let settings = Settings { emulated, journal: JournalChoice::Always, ..Settings::default() };
    let atomic = match AtomicFile::open(file.as_fd(), access, &name, &settings) {
        Ok(atomic) => atomic,
        Err(e) => return say(&e.to_string()),
    };
    say("ok");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let (what, text) = line.split_once(' ').unwrap_or((&line, ""));
        let mut bytes = text.as_bytes().to_vec();
        let done = match what {
            // SAFETY: memory of the test's.
            "write" => unsafe { atomic.write(0, &[UserBuf { base: bytes.as_mut_ptr(), len: bytes.len() }]) }
                .map(|_| "ok".into()),
            "sync" => atomic.sync().map(|()| "ok".into()),
            "read" => {
                let mut bytes = vec![0; text.parse().unwrap()];
                // SAFETY: as above.
                let n = unsafe { atomic.read(0, &[UserBuf { base: bytes.as_mut_ptr(), len: bytes.len() }]) };
                n.map(|n| String::from_utf8_lossy(&bytes[..n]).into_owned())
            }
            "close" => {
                use std::os::fd::AsRawFd;
                atomic.remove_descriptor(file.as_raw_fd()).map(|()| "ok".into())
            }
            other => panic!("{other}?"),
        };
        say(&done.unwrap_or_else(|e| e.to_string()));
        if what == "close" {
            return;
        }
    }
}

fn everywhere(with: impl Fn(&str, bool, &str)) {
    with("tmpfs", false, "write");
    with("emulated", false, "write emulated");
    with("disk", true, "write");
}

/// Everything of Famio's that lies in shared memory, and beside the file.
fn shared_memory() -> Vec<PathBuf> {
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        ["arena", "epoch", "shadow"].iter().any(|end| name.starts_with("famio-") && name.ends_with(&format!(".{end}")))
    };
    fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.path()).filter(named).collect()
}

#[test]
fn two_of_a_group_write_one_file() {
    if !is_root() {
        return;
    }
    everywhere(|name, on_disk, how| {
        let folder = Folder::new(&format!("two-{name}"), on_disk, 0o2775);
        let path = folder.file("file", 0o664);
        let (mut owner, opened) = User::open(OWNER, &path, how);
        assert_eq!((&*opened, &*owner.does("write owner")), ("ok", "ok"));
        let (mut member, opened) = User::open(MEMBER, &path, how);
        assert_eq!((&*opened, &*member.does("read 7")), ("ok", "owner--"));
        assert_eq!([member.does("write MEM"), member.does("sync"), owner.does("read 7")], ["ok", "ok", "MEMer--"]);
        assert_eq!([owner.does("write OWN"), owner.does("sync"), member.does("read 7")], ["ok", "ok", "OWNer--"]);
        member.end();
        owner.end();
        assert_eq!(&fs::read(&path).unwrap()[..7], b"OWNer--");
        assert!(!folder.0.join(".famio").exists());
    });
}

#[test]
fn whoever_may_write_recovers_what_another_user_left() {
    if !is_root() {
        return;
    }
    everywhere(|name, on_disk, how| {
        let folder = Folder::new(&format!("killed-{name}"), on_disk, 0o2775);
        let path = folder.file("file", 0o664);
        for (first, second) in [(OWNER, MEMBER), (MEMBER, OWNER), (OWNER, 0), (MEMBER, 0), (0, OWNER), (0, MEMBER)] {
            let (mut killed, opened) = User::open(first, &path, how);
            assert_eq!(opened, "ok", "{first}");
            assert_eq!([killed.does("write kept"), killed.does("sync"), killed.does("write gone")], ["ok"; 3]);
            killed.kill();
            let (mut next, opened) = User::open(second, &path, how);
            assert_eq!(opened, "ok", "{first} then {second}");
            assert_eq!((&*opened, &*next.does("read 4")), ("ok", "kept"), "{first} then {second}");
            assert_eq!([next.does("write next"), next.does("sync")], ["ok"; 2]);
            next.end();
            assert_eq!(&fs::read(&path).unwrap()[..4], b"next");
            assert!(!folder.0.join(".famio").exists(), "{first} then {second}");
        }
    });
}

/// `.famio/` was accessible only to its creator if the surrounding folder had another group: other users who may
/// write the file got `EACCES`.
#[test]
fn a_folder_of_another_group_hinders_nobody_who_may_write_the_file() {
    if !is_root() {
        return;
    }
    everywhere(|name, on_disk, how| {
        for (mode, owner, group, how) in [(0o775, OWNER, GROUP, format!("{how} own group")), (0o777, 0, 0, how.into())]
        {
            let folder = Folder::new(&format!("group-{group}-{name}"), on_disk, mode);
            let path = folder.file("file", 0o664);
            chown(&folder.0, Some(owner), Some(group)).unwrap();
            for (first, second) in [(OWNER, MEMBER), (MEMBER, OWNER)] {
                let (mut killed, opened) = User::open(first, &path, &how);
                assert_eq!(opened, "ok", "{first}");
                assert_eq!([killed.does("write kept"), killed.does("sync"), killed.does("write gone")], ["ok"; 3]);
                let beside = fs::metadata(folder.0.join(".famio")).unwrap().mode();
                assert_eq!(beside & 0o777 & !mode, 0, "more open than the folder around it");
                killed.kill();
                let (mut next, opened) = User::open(second, &path, &how);
                assert_eq!((&*opened, &*next.does("read 4")), ("ok", "kept"), "{first} then {second}");
                next.end();
                assert!(!folder.0.join(".famio").exists(), "{first} then {second}");
            }
        }
    });
}

#[test]
fn who_may_only_read_hinders_nobody_and_sees_nothing_of_ours() {
    if !is_root() {
        return;
    }
    everywhere(|name, on_disk, how| {
        let folder = Folder::new(&format!("reader-{name}"), on_disk, 0o755);
        let path = folder.file("file", 0o644);
        let before = shared_memory();
        let (mut reader, opened) = User::open(STRANGER, &path, how.replace("write", "read").as_str());
        assert_eq!((&*opened, &*reader.does("read 3")), ("ok", "---"));
        assert!(!folder.0.join(".famio").exists(), "a reader leaves no trace");
        let (mut owner, opened) = User::open(OWNER, &path, how);
        assert_eq!((&*opened, &*owner.does("write owner")), ("ok", "ok"));
        assert_eq!(owner.does("sync"), "ok");
        assert_eq!(reader.does("read 1").len(), 1);
        let ours: Vec<_> = shared_memory().into_iter().filter(|path| !before.contains(path)).collect();
        for path in ours.iter().chain(&famio_files(&folder)) {
            let Ok(stat) = fs::metadata(path) else { continue };
            let may_read = path.extension().is_some_and(|end| end == "journal");
            let beyond = if may_read { 0o133 } else { 0o177 };
            assert_eq!(stat.mode() & beyond, 0, "{}: {:o}", path.display(), stat.mode());
        }
        owner.end();
        assert_eq!(&reader.does("read 5"), "owner");
        reader.end();
        assert!(!folder.0.join(".famio").exists());
    });
}

/// The first user's `.famio/` made everybody else's files there fail.
#[test]
fn in_a_folder_with_the_sticky_bit_each_owner_has_a_pool() {
    if !is_root() {
        return;
    }
    everywhere(|name, on_disk, how| {
        let folder = Folder::new(&format!("sticky-{name}"), on_disk, 0o1777);
        let paths = [OWNER, STRANGER].map(|uid| {
            let path = folder.file(&format!("of-{uid}"), 0o644);
            chown(&path, Some(uid), Some(GROUP)).unwrap();
            (uid, path)
        });
        for by_recover in [true, false] {
            for (uid, path) in &paths {
                let (mut user, opened) = User::open(*uid, path, how);
                let done = [opened, user.does("write kept"), user.does("sync"), user.does("write gone")];
                assert_eq!(done, ["ok"; 4], "{uid}");
                assert!(folder.0.join(format!(".famio-{uid}")).is_dir());
                user.kill();
            }
            if by_recover {
                let reports = recover_path(&folder.0, &Settings::default(), &Options::default(), &Silent).unwrap();
                assert!(reports.iter().all(|report| matches!(report.outcome, Outcome::Recovered)), "{reports:?}");
                assert_eq!(reports.len(), 2, "{reports:?}");
            }
            for (uid, path) in &paths {
                let (mut user, opened) = User::open(*uid, path, how);
                assert_eq!((&*opened, &*user.does("read 4")), ("ok", "kept"), "{uid}");
                user.end();
            }
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2, "nothing of ours is left");
    });
}

fn famio_files(folder: &Folder) -> Vec<PathBuf> {
    fs::read_dir(folder.0.join(".famio")).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// A process that only reads a file, which its user may write, notices other processes' writes, though it left no
/// trace before they came.
#[test]
fn a_reader_sees_who_comes_later() {
    if !is_root() {
        return;
    }
    everywhere(|name, on_disk, how| {
        let folder = Folder::new(&format!("later-{name}"), on_disk, 0o755);
        let path = folder.file("file", 0o644);
        let (mut reader, opened) = User::open(OWNER, &path, how.replace("write", "read").as_str());
        assert_eq!((&*opened, &*reader.does("read 4")), ("ok", "----"));
        for round in 0..40 {
            let (mut writer, opened) = User::open(OWNER, &path, how);
            assert_eq!(opened, "ok");
            let text = format!("{round:04}");
            assert_eq!(writer.does(&format!("write {text}")), "ok");
            assert_eq!(reader.does("read 4"), text, "not committed yet");
            assert_eq!(writer.does("sync"), "ok");
            assert_eq!(reader.does("read 4"), text);
            if round % 2 == 0 {
                writer.end()
            } else {
                writer.kill()
            }
            assert_eq!(reader.does("read 4"), text);
            if round == 20 {
                reader.end();
                assert!(comes_true(|| !folder.0.join(".famio").exists()));
                reader = User::open(OWNER, &path, how.replace("write", "read").as_str()).0;
                assert_eq!(reader.does("read 4"), text);
            }
        }
        reader.end();
    });
}

/// The file gets a journal with its first change.
fn with_journal() -> Settings {
    Settings { journal: JournalChoice::Always, ..Settings::default() }
}

/// Root's process at a user's file gives the user nothing of its own, and what the user does to the shared state ends
/// no process.
#[test]
fn a_user_can_end_no_process_of_roots() {
    if !is_root() {
        return;
    }
    for on_disk in [false, true] {
        let folder = Folder::new("root", on_disk, 0o755);
        let path = folder.file("file", 0o644);
        let opened = Opened::new(&path, &with_journal());
        opened.write(0, b"root");
        let arena = common::arenas::arena(&path);
        let stat = fs::metadata(&arena).unwrap();
        assert_eq!((stat.uid(), stat.mode() & 0o777), (0, 0o600));
        let control = common::arenas::control(&path).unwrap();
        assert_eq!(fs::metadata(&control).unwrap().uid(), OWNER);
        for noise in [vec![0x50; 4096], Vec::new()] {
            File::options().write(true).truncate(true).open(&control).unwrap().write_all(&noise).unwrap();
            let _ = opened.try_write(10, b"more");
            let _ = opened.atomic().sync();
            let _ = opened.read(0, 20);
            let _ = opened.atomic().hand_over();
        }
        drop(opened);
        let reports = recover_path(&folder.0, &Settings::default(), &Options::default(), &Silent).unwrap();
        assert!(reports.iter().all(|report| !matches!(report.outcome, Outcome::Failed(_))), "{reports:?}");
    }
}

/// A file that another user has put where the control file belongs is not used.
#[test]
fn a_strangers_control_file_is_not_used() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("stranger", false, 0o777);
    let path = folder.file("file", 0o644);
    let name = famio::journal::journal_name(&famio::journal::Identity::of_path(&path).unwrap());
    let control = folder.0.join(".famio").join(name.replace(".journal", ".control"));
    for (uid, mode) in [(STRANGER, 0o600), (STRANGER, 0o666), (OWNER, 0o666), (OWNER, 0o604)] {
        fs::create_dir(folder.0.join(".famio")).unwrap();
        fs::set_permissions(folder.0.join(".famio"), Permissions::from_mode(0o777)).unwrap();
        fs::write(&control, [0xFF; 4096]).unwrap();
        chown(&control, Some(uid), Some(GROUP)).unwrap();
        fs::set_permissions(&control, Permissions::from_mode(mode)).unwrap();
        let put = fs::metadata(&control).unwrap().ino();
        let opened = Opened::new(&path, &with_journal());
        opened.write(0, b"mine");
        let used = fs::metadata(common::arenas::control(&path).unwrap()).unwrap();
        assert!(used.ino() != put || used.mode() & 0o777 == 0o600, "{uid} {mode:o}");
        opened.atomic().sync().unwrap();
        drop(opened);
        assert_eq!(&fs::read(&path).unwrap()[..4], b"mine");
        let _ = fs::remove_dir_all(folder.0.join(".famio"));
    }
}

/// A pool where everybody may make files, and one has made another user's journal: the file could not be opened.
#[test]
fn a_strangers_journal_in_a_pool_keeps_nobody_from_a_file() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("squat", false, 0o777);
    let (path, pool) = (folder.file("file", 0o644), folder.0.join("pool"));
    fs::create_dir(&pool).unwrap();
    fs::set_permissions(&pool, Permissions::from_mode(0o1777)).unwrap();
    let name = famio::journal::journal_name(&famio::journal::Identity::of_path(&path).unwrap());
    fs::write(pool.join(&name), [0x11; 8192]).unwrap();
    chown(pool.join(&name), Some(STRANGER), Some(GROUP)).unwrap();
    let opened = Opened::new(&path, &Settings { pool: Some(pool.clone()), ..Settings::default() });
    opened.write(0, b"mine");
    opened.atomic().sync().unwrap();
    drop(opened);
    assert_eq!(&fs::read(&path).unwrap()[..4], b"mine");
    assert_eq!(fs::read(pool.join(&name)).unwrap(), [0x11; 8192]);
}

/// In a folder where everybody may create names, another user has created the name by which journals are found: then
/// files there are left to the kernel.
#[test]
fn a_strangers_famio_that_is_no_folder_keeps_nobody_from_a_file() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("taken", false, 0o1777);
    let beside = folder.0.join(".famio");
    for kind in ["file", "link", "loop"] {
        match kind {
            "file" => fs::write(&beside, b"").unwrap(),
            "link" => std::os::unix::fs::symlink("/tmp", &beside).unwrap(),
            _ => std::os::unix::fs::symlink(".famio", &beside).unwrap(),
        }
        std::os::unix::fs::lchown(&beside, Some(STRANGER), Some(OTHERS)).unwrap();
        let path = folder.file(kind, 0o644);
        let (mut owner, opened) = User::open(OWNER, &path, "write");
        assert_eq!(
            [opened, owner.does("write mine"), owner.does("sync"), owner.does("read 5")],
            ["ok", "ok", "ok", "mine-"]
        );
        owner.end();
        assert_eq!(&fs::read(&path).unwrap()[..5], b"mine-");
        fs::remove_file(&beside).unwrap();
    }
}

/// It was `EBUSY`: a session without any open data is handed over as it is, which a process that may only read cannot
/// own.
#[test]
fn root_reads_what_a_user_has_open_and_leaves_alone() {
    if !is_root() {
        return;
    }
    everywhere(|name, on_disk, how| {
        let folder = Folder::new(&format!("root-{name}"), on_disk, 0o755);
        let path = folder.file("file", 0o644);
        let (mut owner, opened) = User::open(OWNER, &path, how);
        assert_eq!([&*opened, &*owner.does("write one"), &*owner.does("sync")], ["ok"; 3]);
        let (mut root, opened) = User::open(0, &path, &how.replace("write", "read"));
        assert_eq!((&*opened, &*root.does("read 5")), ("ok", "one--"), "{name}");
        assert_eq!([owner.does("write two"), owner.does("sync"), root.does("read 5")], ["ok", "ok", "two--"], "{name}");
        root.end();
        owner.end();
    });
}
