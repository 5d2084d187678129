//! Missing rights: what can be protected is; everything else is reported, and left to the kernel before the first
//! write.

mod common;

use common::{Folder, build, succeed, under};
use famio::Settings;
use famio::recovery::{Options, Outcome, Silent, Use, recover_path};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65534;
const LEFT: &str = "demoted to an ordinary file because it can't be protected";

struct Bench {
    folder: Folder,
    program: PathBuf,
}

impl Bench {
    /// `None`: needs root, to become other users.
    fn new(name: &str) -> Option<Self> {
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("NOT TESTED: {name} takes root, to become another user");
            return None;
        }
        Some(Self { folder: Folder::new(name), program: build("rights") })
    }

    /// With the program that changes its rights; `disk`: whether the file lies on a disk.
    fn of_changes(name: &str, disk: bool) -> Option<Self> {
        let mut bench = Self::new(name)?;
        let rights = std::mem::replace(&mut bench.program, build("rights_changes"));
        let _ = std::fs::remove_file(rights);
        if disk {
            bench.folder = Folder::on_disk(name);
        }
        Some(bench)
    }

    fn ends_with(&self, text: &str) {
        assert_eq!(String::from_utf8_lossy(&self.folder.read("atomic")), text);
        assert_eq!(self.folder.names(), ["atomic"]);
    }

    /// A process without the right to remove its journal left it in state *clean*: the next process that opens the
    /// file removes it.
    fn ends_after_a_look_with(&self, text: &str) {
        assert_eq!(String::from_utf8_lossy(&self.folder.read("atomic")), text);
        let (out, said) = succeed(under(&self.folder, "cat").arg("atomic"));
        assert_eq!((&*out, &*said), (text, ""));
        assert!(!self.folder.names().contains(&".famio".into()) || self.journals() == 0);
    }

    fn journals(&self) -> usize {
        let names = std::fs::read_dir(self.folder.path().join(".famio")).unwrap().flatten();
        names.filter(|entry| entry.path().extension().is_some_and(|what| what == "journal")).count()
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.folder.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    /// A file of root's that everybody may write, in a folder of root's.
    fn file(&self, text: &str) {
        std::fs::write(self.folder.path().join("atomic"), text).unwrap();
        self.mode("atomic", 0o666);
    }

    fn command(&self, what: &str) -> Command {
        let mut command = under(&self.folder, &self.program);
        command.args(["atomic", what]);
        command
    }

    fn killed(&self, command: &mut Command) {
        let done = command.output().unwrap();
        assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.program);
    }
}

/// It used to fail with `EACCES` at the first write.
#[test]
fn a_file_made_read_only_is_protected() {
    let Some(bench) = Bench::new("rights-read-only") else { return };
    bench.mode(".", 0o777);
    bench.killed(bench.command("kill a read-only one").env("FAMIO_JOURNAL", "always"));
    assert_eq!(bench.folder.names(), [".famio", "atomic"]);
    let (_, said) = succeed(&mut bench.command("read"));
    assert_eq!(said, "");
    assert_eq!(bench.folder.names(), ["atomic"]);
    assert_eq!(bench.folder.read("atomic"), b"committed");
    let mode = std::fs::metadata(bench.folder.path().join("atomic")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o444);
}

/// It used to fail with `EACCES`.
#[test]
fn whose_folder_is_anothers_writes_through_the_kernel() {
    let Some(bench) = Bench::new("rights-folder") else { return };
    bench.file("as it was");
    let (_, said) = succeed(bench.command("be refused").env("FAMIO_REQUIRE", "1"));
    assert!(said.contains(".famio") && !said.contains(LEFT), "{said}");
    let (_, said) = succeed(&mut bench.command("write"));
    assert_eq!(said.matches(LEFT).count(), 1, "{said}");
    assert!(said.contains("/atomic: ") && said.contains(".famio"), "{said}");
    assert_eq!(bench.folder.names(), ["atomic"]);
}

/// It was named twice, and nothing was said of what to do.
#[test]
fn an_error_of_an_open_names_the_file_once() {
    let folder = Folder::new("rights-named-once");
    std::fs::write(folder.path().join("atomic"), [b'x'; 8192]).unwrap();
    let mut shell = under(&folder, "sh");
    let done = shell.args(["-c", ": 3<>atomic"]).env("FAMIO_POOL", "/no/such/pool").output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success() && said.contains("make the folder first"), "{said}");
    let line = said.lines().find(|line| line.starts_with("famio: ")).unwrap();
    assert_eq!(line.matches("/atomic: ").count(), 1, "{line}");
}

/// As above: of another process's control file, if only root may open it.
#[test]
fn a_control_file_of_others_is_named_with_what_to_do() {
    const HOLDER: &str = "
import os, sys
fd = os.open('atomic', os.O_RDWR)
os.pwrite(fd, b'y', 5)
os.fsync(fd)
print('ready', flush=True)
sys.stdin.read()";
    let Some(bench) = Bench::new("rights-control") else { return };
    bench.file(&"x".repeat(8192));
    let mut holder = under(&bench.folder, "python3");
    let mut holder = holder
        .env("FAMIO_JOURNAL", "always")
        .args(["-c", HOLDER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    for entry in std::fs::read_dir(bench.folder.path().join(".famio")).unwrap().flatten() {
        std::fs::set_permissions(entry.path(), PermissionsExt::from_mode(0o600)).unwrap();
    }
    let done = under(&bench.folder, "sh").args(["-c", ": 3<>atomic"]).uid(NOBODY).gid(NOBODY).output();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let said = String::from_utf8(done.unwrap().stderr).unwrap();
    let line = said.lines().find(|line| line.starts_with("famio: ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("control file") && line.contains("run the program as a user who may write"), "{line}");
    assert_eq!(line.matches("/atomic: ").count(), 1, "{line}");
}

/// A file that grew has a mark, by which a recovery would cut what the kernel has written since.
#[test]
fn what_grew_where_there_is_no_place_for_a_journal_is_left_without_a_mark() {
    for disk in [false, true] {
        let Some(bench) = Bench::of_changes("rights-no-session", disk) else { return };
        bench.file("");
        chown(bench.folder.path().join("atomic"), Some(NOBODY), Some(NOBODY)).unwrap();
        let (_, said) = succeed(&mut bench.command("grow where there can be no session"));
        assert_eq!(said.matches(LEFT).count(), 1, "{said}");
        bench.ends_with("Progra");
    }
}

#[test]
fn whose_folder_is_anothers_is_protected_by_a_pool() {
    let Some(bench) = Bench::new("rights-pool") else { return };
    bench.file("as it was");
    let pool = bench.folder.path().join("pool");
    std::fs::create_dir(&pool).unwrap();
    chown(&pool, Some(NOBODY), Some(NOBODY)).unwrap();
    bench.killed(bench.command("kill").env("FAMIO_POOL", &pool));
    let (_, said) = succeed(bench.command("read").env("FAMIO_POOL", &pool));
    assert_eq!(said, "");
    assert_eq!(bench.folder.read("atomic"), b"committed");
    assert_eq!(std::fs::read_dir(&pool).unwrap().count(), 0);
}

/// `open` used to fail with `ENOENT`.
#[test]
fn a_root_without_proc_and_dev() {
    let Some(bench) = Bench::new("rights-chroot") else { return };
    let (_, said) = succeed(&mut bench.command("chroot"));
    assert_eq!(said.matches(LEFT).count(), 1, "{said}");
    assert_eq!(bench.folder.read("jail/atomic"), b"in jail");
}

/// The second used to fail with `EBUSY`.
#[test]
fn workers_that_gave_up_root_write_through_the_kernel() {
    let Some(bench) = Bench::new("rights-workers") else { return };
    bench.file("................");
    let (_, said) = succeed(&mut bench.command("workers"));
    assert_eq!(said.matches(LEFT).count(), 2, "{said}");
    assert_eq!(bench.folder.names(), ["atomic"]);
}

/// There used to be no message: the file was left to the kernel when it was only read.
#[test]
fn what_was_left_when_it_was_read_is_said_when_it_is_written() {
    let Some(bench) = Bench::of_changes("rights-read-first", false) else { return };
    bench.file("as it was");
    let (_, said) = succeed(&mut bench.command("read, then write"));
    assert_eq!(said.matches(LEFT).count(), 1, "{said}");
    bench.ends_with("kernel'ss");
}

/// The bits were lost as a growing file was cut to its committed size for a session; and they stayed where the file
/// system refuses a direct write, after the kernel has removed them.
#[test]
fn bits_stay_while_a_file_grows_and_go_with_a_write_that_fails() {
    for disk in [false, true] {
        let Some(bench) = Bench::of_changes("rights-grown", disk) else { return };
        bench.mode(".", 0o777);
        succeed(&mut bench.command("set-user-id, while it grows"));
        std::fs::remove_file(bench.folder.path().join("atomic")).unwrap();
        if disk {
            succeed(&mut bench.command("set-user-id, and a direct write that fails"));
        }
    }
}

/// The bits were lost at the end of the session, which had no right to keep them, and by a session that only brought
/// home what had been written before they were set.
#[test]
fn bits_set_after_a_write_stay() {
    for disk in [false, true] {
        let Some(bench) = Bench::of_changes("rights-bits", disk) else { return };
        let mode = || std::fs::metadata(bench.folder.path().join("atomic")).unwrap().permissions().mode() & 0o7777;
        succeed(&mut bench.command("set-user-id, then setuid"));
        assert_eq!(mode(), 0o4755);
        bench.ends_after_a_look_with("program");
        let _ = std::fs::remove_dir_all(bench.folder.path().join(".famio"));
        std::fs::remove_file(bench.folder.path().join("atomic")).unwrap();
        bench.mode(".", 0o777);
        succeed(&mut bench.command("set-group-id, and a change of hands"));
        std::fs::remove_file(bench.folder.path().join("atomic")).unwrap();
        succeed(&mut bench.command("set-group-id, and what travels"));
        assert_eq!(mode(), 0o755);
        std::fs::remove_file(bench.folder.path().join("atomic")).unwrap();
        succeed(&mut bench.command("set-group-id, and the session a child's"));
        assert_eq!(mode(), 0o755);
        bench.ends_with("Program");
    }
}

/// Its file in `/dev/shm` was left: the process that committed had no right to remove it, and none tried again.
#[test]
fn an_epoch_that_travelled_is_gone() {
    let Some(bench) = Bench::of_changes("rights-epoch", false) else { return };
    std::fs::write(bench.folder.path().join("atomic"), "").unwrap();
    let file = std::fs::metadata(bench.folder.path().join("atomic")).unwrap();
    succeed(&mut bench.command("sync what travels as another"));
    bench.ends_with("program");
    let begins = format!("famio-{:x}-{:x}-", file.dev(), file.ino());
    let names = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with(&begins)).collect::<Vec<_>>(), [""; 0]);
}

/// The journal used to stay.
#[test]
fn what_was_closed_as_another_user_is_tidied_up_at_the_end() {
    let Some(bench) = Bench::of_changes("rights-close", false) else { return };
    for what in ["close as another", "close as another, and exec"] {
        succeed(&mut bench.command(what));
        bench.ends_with("program");
    }
}

/// It used to be removed only at the end, when the file may be gone.
#[test]
fn what_was_closed_as_another_user_is_tidied_up_when_the_program_comes_back() {
    let Some(bench) = Bench::of_changes("rights-back", false) else { return };
    succeed(&mut bench.command("close as another, and come back"));
    bench.ends_with("other");
}

/// These used to fail with `ENOENT`, `EBUSY` and `EFBIG`.
#[test]
fn a_child_that_gives_up_its_root_its_user_or_room_writes() {
    for what in ["chroot in a child", "setuid in a child", "a limit in a child"] {
        for disk in [false, true] {
            let Some(bench) = Bench::of_changes("rights-child", disk) else { return };
            succeed(&mut bench.command(what));
            bench.ends_after_a_look_with("parent'schild's!");
        }
    }
}

/// The write used to go to offset 0.
#[test]
fn a_write_by_offset_to_an_appending_descriptor_that_was_demoted() {
    let Some(bench) = Bench::of_changes("rights-append", false) else { return };
    succeed(&mut bench.command("append, demoted"));
    bench.ends_with("stream!");
}

/// A `link` made the file atomic again while the kernel had descriptors of it: writes went to the wrong place, or
/// were not seen.
#[test]
fn a_file_that_was_demoted_stays_the_kernels() {
    let Some(bench) = Bench::of_changes("rights-stays", false) else { return };
    let (_, said) = succeed(&mut bench.command("limit, demoted"));
    assert_eq!(said.matches(LEFT).count(), 1, "{said}");
    bench.ends_with("End!");
}

/// They used to succeed.
#[test]
fn direct_writes_are_aligned_as_the_kernel_wants_them() {
    let Some(bench) = Bench::of_changes("rights-direct", true) else { return };
    succeed(&mut bench.command("direct, unaligned"));
}

/// The journal stayed readable for users who may not read the file any more.
#[test]
fn a_journal_is_no_more_open_than_its_file_is_now() {
    for disk in [false, true] {
        let Some(bench) = Bench::of_changes("rights-modes", disk) else { return };
        succeed(bench.command("modes").env("FAMIO_JOURNAL", "always"));
        bench.ends_with("MODES");
    }
}

/// The journal kept its mode, and a process that was to recover the file refused it.
#[test]
fn a_journal_follows_its_files_mode_from_another_root() {
    for disk in [false, true] {
        let Some(bench) = Bench::of_changes("rights-modes-root", disk) else { return };
        let ended = bench.command("modes in another root").output().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.status), Some(libc::SIGKILL), "{ended:?}");
        let (out, _) = succeed(under(&bench.folder, "cat").arg("atomic"));
        assert_eq!(out, "modes");
        bench.ends_after_a_look_with("modes");
    }
}

/// Recovery refused the journal that a process had made after it became another user, although that user may write the
/// file. If the user may not, no process would trust the journal, so the file is the kernel's.
#[test]
fn a_journal_made_as_another_user_is_recovered_or_is_not_made() {
    for (what, notices) in [("everybody's", 0), ("only its owner's", 1)] {
        for disk in [false, true] {
            let Some(bench) = Bench::of_changes("rights-other-journal", disk) else { return };
            std::fs::write(bench.folder.path().join("atomic"), "..............").unwrap();
            bench.mode(".", 0o777);
            let ended = bench.command(&format!("a journal as another user, {what}")).output().unwrap();
            assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{ended:?}");
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(said.matches(LEFT).count(), notices, "{said}");
            let (out, said) = succeed(under(&bench.folder, "cat").arg("atomic"));
            assert_eq!((&*out, said.contains("not used")), ("program.......", false), "{said}");
            bench.ends_after_a_look_with("program.......");
        }
    }
}

/// Its owner and root could not recover it, not even with `--use=file`. That the session has ended is not believed where
/// others could have put another journal in the place of the member's.
#[test]
fn a_file_that_is_taken_from_its_group_while_a_member_writes_it() {
    for case in 0..8 {
        let [killed, protected, disk] = [1, 2, 4].map(|bit| case & bit != 0);
        let Some(bench) = Bench::of_changes("rights-group", disk) else { return };
        std::fs::write(bench.folder.path().join("atomic"), "..............").unwrap();
        bench.mode(".", 0o777);
        let mut command = bench.command("a member, until the file is its owner's alone");
        let mut member = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(member.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "written\n");
        bench.mode("atomic", 0o644);
        if protected {
            bench.mode(".famio", 0o755);
        }
        if killed {
            member.kill().unwrap();
        }
        drop(member.stdin.take());
        member.wait().unwrap();
        if killed || !protected {
            let refused = under(&bench.folder, "cat").arg("atomic").output().unwrap();
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && said.contains("belongs to user"), "{said}");
            let options = Options { on_conflict: Use::File, ..Options::default() };
            let reports = recover_path(&bench.folder.path().join("atomic"), &Settings::default(), &options, &Silent);
            assert!(matches!(reports.unwrap()[0].outcome, Outcome::Discarded));
            succeed(under(&bench.folder, "cat").arg("atomic"));
            assert_eq!(bench.folder.names(), ["atomic"]);
        }
        if !killed {
            bench.ends_after_a_look_with("Program.......");
        }
    }
}

/// Writes failed with `EINVAL`: the file's folder belongs to a user whom the namespace does not know.
#[test]
fn the_root_of_a_user_namespace_writes_its_file_in_anothers_folder() {
    for disk in [false, true] {
        let Some(bench) = Bench::of_changes("rights-namespace", disk) else { return };
        std::fs::write(bench.folder.path().join("atomic"), ".......").unwrap();
        chown(bench.folder.path().join("atomic"), Some(1234), Some(1234)).unwrap();
        bench.mode(".", 0o777);
        let done = bench.command("root of a user namespace").output().unwrap();
        if done.status.code() == Some(77) {
            eprintln!("NOT TESTED: there are no user namespaces here");
            return;
        }
        assert!(done.status.success(), "{done:?}");
        assert!(!String::from_utf8_lossy(&done.stderr).contains(LEFT), "{done:?}");
        bench.ends_after_a_look_with("Program");
    }
}

/// The kernel gives a lease back only to the file's owner and root: a process that opened the file waited for 45 s.
#[test]
fn a_program_that_becomes_another_user_has_no_lease() {
    let Some(bench) = Bench::of_changes("rights-lease", false) else { return };
    succeed(&mut bench.command("a lease, and another user"));
}

/// Two processes at one file of root's: one that cannot protect it, then one that could.
fn beside_a_demoted_one(how: &str, mode: u32, folder: u32, notices: usize) {
    for disk in [false, true] {
        let name = format!("rights-beside-{}", how.replace(' ', "-"));
        let Some(mut bench) = Bench::of_changes(&name, disk) else { return };
        let other = std::mem::replace(&mut bench.program, build("beside_demoted"));
        let _ = std::fs::remove_file(other);
        bench.file("........");
        bench.mode("atomic", mode);
        bench.mode(".", folder);
        let mut command = bench.command(how);
        if how == "required" {
            command.env("FAMIO_JOURNAL", "always"); // only a session removes what a dead process has noted
        }
        let (_, said) = succeed(&mut command);
        assert_eq!(said.matches(LEFT).count(), notices, "{how}, {disk}: {said}");
        let _ = std::fs::remove_dir_all(bench.folder.path().join(".famio")); // perhaps of a user who could not remove it
        bench.ends_with(match how {
            "required" | "mapped by itself" => "..c.e...",
            "left by itself" => "..c.eg..",
            _ => "..cdeg..",
        });
    }
}

/// What the first one synced was overwritten by the second one's session.
#[test]
fn a_process_leaves_a_file_to_the_kernel_that_another_one_has_left_to_it() {
    beside_a_demoted_one("in a folder of another user", 0o666, 0o755, 2);
    beside_a_demoted_one("opened as root", 0o644, 0o777, 2);
    beside_a_demoted_one("inherited", 0o644, 0o777, 2);
    beside_a_demoted_one("continued by a child", 0o666, 0o755, 2);
}

/// A child of it was refused (`EBUSY`), because of its parent.
#[test]
fn a_process_that_has_left_a_file_to_the_kernel_as_another_user_protects_it_later() {
    beside_a_demoted_one("left by itself", 0o644, 0o777, 1);
    beside_a_demoted_one("mapped by itself", 0o644, 0o777, 1);
}

#[test]
fn a_process_that_requires_protection_is_refused_beside_a_demoted_one_until_that_ends() {
    beside_a_demoted_one("required", 0o666, 0o755, 1);
}
