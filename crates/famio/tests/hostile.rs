//! A malicious journal in place: all its checks are right, and its contents point outside. `EIO`, both files named,
//! nothing changed.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::Scratch;
use crash::{Crashed, in_place};
use famio::recovery::{Outcome, Use};
use xxhash_rust::xxh3::xxh3_64;

#[test]
fn crash_child() {
    crash::child();
}

const SLOTS: usize = 4096;
const SEGMENT: usize = 8192;
const ENTRIES: usize = SEGMENT + 64;
const BLOCKS: u64 = 1 << 36; // of 4 KiB: 256 TiB

/// The journal's check words, computed as in `docs/format.md`.
struct Forger {
    key: u64,
    bytes: Vec<u8>,
}

impl Forger {
    fn new(journal: &[u8]) -> Self {
        let copy: [u8; 2048] = journal[..2048].try_into().unwrap();
        let header = famio::journal::Header::decode(&copy).unwrap();
        let [a, b] = [0, 8].map(|at| u64::from_le_bytes(header.journal_id.0[at..at + 8].try_into().unwrap()));
        Self { key: a ^ b.rotate_left(32), bytes: journal.to_vec() }
    }

    fn check(&self, number: u64, words: &[u64]) -> u64 {
        let all: Vec<u8> = [self.key, number].iter().chain(words).flat_map(|word| word.to_le_bytes()).collect();
        0xFA31 << 48 | xxh3_64(&all) >> 16
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    fn put(&mut self, at: usize, word: u64) {
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn slot(&mut self, epoch: u64, size: u64) {
        let slot = (epoch % 8) as usize;
        for copy in 0..2 {
            let at = SLOTS + slot * 256 + copy * 32;
            let words = [epoch, size, size];
            let check = self.check((slot * 2 + copy) as u64, &words);
            for (i, word) in words.into_iter().chain([check]).enumerate() {
                self.put(at + 8 * i, word);
            }
        }
    }

    fn entry(&mut self, number: usize, block: u64, class: u8, versions: [(u64, u64, u64); 2]) {
        let at = ENTRIES + 64 * number;
        let word = block | u64::from(class) << 56;
        let check = self.check(number as u64, &[word]);
        self.put(at, check);
        self.put(at + 8, word);
        for (i, (kind, epoch, granules)) in versions.into_iter().enumerate() {
            let payload = epoch | kind << 54;
            let fold = payload.to_le_bytes()[..7].iter().fold(0xA5, |sum, byte| sum ^ byte);
            let packed = if epoch == 0 { 0 } else { payload | u64::from(fold) << 56 };
            self.put(at + 16 + 24 * i, packed);
            self.put(at + 24 + 24 * i, granules);
            self.put(at + 32 + 24 * i, !granules);
        }
    }

    /// The last commit: (epoch, size).
    fn last(&self) -> (u64, u64) {
        let slots = (0..8).map(|slot| SLOTS + slot * 256).map(|at| (self.word(at), self.word(at + 8)));
        slots.max().unwrap()
    }

    fn free_entry(&self) -> usize {
        (0..64).find(|i| self.word(ENTRIES + 64 * i) == 0).unwrap()
    }

    fn used_entry(&self) -> usize {
        (0..64).find(|i| self.word(ENTRIES + 64 * i) != 0).unwrap()
    }
}

#[test]
fn the_forger_forges_what_is_believed() {
    for settings in in_place() {
        let crashed = Crashed::usual(Scratch::on_tmpfs("forged"), &settings);
        let mut forger = Forger::new(&crashed.journal);
        // The same commit again, and an entry with an empty version.
        let (epoch, size) = forger.last();
        forger.slot(epoch, size);
        let free = forger.free_entry();
        forger.entry(free, 1000, 12, [(2, epoch, 0), (0, 0, 0)]);
        crashed.put_journal(&forger.bytes);
        crashed.forget_arena();
        assert!(crashed.is_told_or_right(&forger.bytes, "forged and harmless"), "{settings:?}: told");
    }
}

fn each(what: &str, forge: impl Fn(&mut Forger)) {
    for (i, settings) in in_place().into_iter().enumerate() {
        let crashed = Crashed::usual(Scratch::on_tmpfs(&format!("{what}{i}").replace(' ', "-")), &settings);
        let mut forger = Forger::new(&crashed.journal);
        forge(&mut forger);
        crashed.put_journal(&forger.bytes);
        crashed.forget_arena();
        let checked = famio::recovery::check(&crashed.path, &settings).unwrap();
        let problem = checked[0].problems.iter().find(|problem| problem.at.is_some());
        assert!(problem.is_some(), "{settings:?}, {what}: not named: {checked:?}");
        assert!(!crashed.is_told_or_right(&forger.bytes, what), "{settings:?}, {what}: recovered");
        let report = crashed.recover(famio::recovery::Use::Journal);
        assert!(crash::is_stopped(&report.outcome), "{what}: {report:?}");
        assert!(std::fs::read(&crashed.path).unwrap() == crashed.raw, "{what}");
    }
}

#[test]
fn a_commit_with_a_size_that_no_file_has() {
    for (i, size) in [u64::MAX, 1 << 63, BLOCKS * 4096 + 1].into_iter().enumerate() {
        each(&format!("size {i}"), |forger| {
            let (epoch, _) = forger.last();
            forger.slot(epoch, size);
        });
    }
}

#[test]
fn an_entry_of_a_block_that_no_file_has() {
    for (i, block) in [BLOCKS, (1 << 56) - 1].into_iter().enumerate() {
        each(&format!("block {i}"), |forger| {
            let ((epoch, _), free) = (forger.last(), forger.free_entry());
            forger.entry(free, block, 12, [(2, epoch, 1), (0, 0, 0)]);
        });
    }
}

#[test]
fn an_entry_of_a_class_that_there_is_not() {
    for class in [0, 11, 13, 21, 255] {
        each(&format!("class {class}"), |forger| {
            let ((epoch, _), free) = (forger.last(), forger.free_entry());
            forger.entry(free, 1, class, [(2, epoch, 1), (0, 0, 0)]);
        });
    }
}

#[test]
fn an_entry_of_an_epoch_that_is_not_yet() {
    for (i, beyond) in [2u64, 1 << 20, (1 << 54) - 100].into_iter().enumerate() {
        each(&format!("epoch {i}"), |forger| {
            let ((epoch, _), free) = (forger.last(), forger.free_entry());
            forger.entry(free, 100, 12, [(2, (epoch + beyond).min((1 << 54) - 1), 1), (0, 0, 0)]);
        });
    }
}

#[test]
fn an_entry_of_a_kind_that_there_is_not() {
    each("kind", |forger| {
        let ((epoch, _), free) = (forger.last(), forger.free_entry());
        forger.entry(free, 100, 12, [(3, epoch, 1), (0, 0, 0)]);
    });
}

#[test]
fn two_entries_of_one_block() {
    each("twice", |forger| {
        let ((epoch, _), free, used) = (forger.last(), forger.free_entry(), forger.used_entry());
        let block = forger.word(ENTRIES + 64 * used + 8) & ((1 << 56) - 1);
        forger.entry(free, block, 12, [(2, epoch, 1), (0, 0, 0)]);
    });
}

#[test]
fn a_segment_that_lies_elsewhere() {
    for (i, (field, value)) in [(1, 7u64), (2, 1 << 40), (3, u64::MAX), (3, 0)].into_iter().enumerate() {
        each(&format!("segment {i}"), |forger| {
            forger.put(SEGMENT + 8 * field, value);
            let words: Vec<u64> = (0..4).map(|i| forger.word(SEGMENT + 8 * i)).collect();
            let check = forger.check(SEGMENT as u64, &words);
            forger.put(SEGMENT + 32, check);
        });
    }
}

#[test]
fn no_commit_at_all() {
    each("no slot", |forger| forger.bytes[SLOTS..SLOTS + 4096].fill(0));
}

/// A redo copy was in the file, and its bit about to be cleared, when the power failed; and again after recovery had
/// cut the file, but not made that durable yet. File and log then differ above the size, where it does not matter.
#[test]
fn granules_and_mirror_that_differ_where_nothing_counts() {
    use crash::{Size, Sync, write};
    let steps = [write(0, 100, 1), Size(15_990), Sync, write(0, 50, 2)];
    for (i, settings) in in_place().into_iter().enumerate() {
        let crashed = Crashed::new(Scratch::on_tmpfs(&format!("mirror{i}")), &settings, &steps);
        let mut forger = Forger::new(&crashed.journal);
        let ((epoch, size), free, granule) = (forger.last(), forger.free_entry(), 57);
        let (from, end) = (3 * 4096 + granule * 64, size as usize);
        forger.entry(free, 3, 12, [(2, epoch, 0), (0, 0, 0)]);
        forger.put(ENTRIES + 64 * free + 32, !(1 << granule));
        let log = 16_384 + 4096 * free + granule * 64;
        forger.bytes[log..log + 64].fill(0xEE);
        forger.bytes[log..log + end - from].copy_from_slice(&crashed.raw[from..end]);
        crashed.put_journal(&forger.bytes);
        crashed.forget_arena();
        let checked = famio::recovery::check(&crashed.path, &settings).unwrap();
        assert!(checked[0].problems.is_empty(), "{settings:?}: {checked:?}");
        assert!(crashed.is_told_or_right(&forger.bytes, "differs above the size"), "{settings:?}: told");
        // Below the size, it is damage.
        crashed.restore();
        forger.bytes[log] ^= 1;
        crashed.put_journal(&forger.bytes);
        crashed.forget_arena();
        assert!(!crashed.is_told_or_right(&forger.bytes, "differs below the size"), "{settings:?}: recovered");
    }
}

/// Cuts the journal after recovery has checked it and begins to copy.
struct Cuts<'a>(&'a std::path::Path);

impl famio::recovery::Progress for Cuts<'_> {
    fn begin(&self, _bytes: u64) {
        std::fs::File::options().write(true).open(self.0).unwrap().set_len(12_288).unwrap();
    }
    fn advance(&self, _bytes: u64) {}
    fn end(&self) {}
}

/// A journal's owner may cut it at any moment: an error, not a SIGBUS, which would end root's recovery of all other
/// files.
#[test]
fn a_journal_that_is_cut_while_it_is_recovered() {
    for (i, settings) in in_place().into_iter().enumerate() {
        let crashed = Crashed::usual(Scratch::on_tmpfs(&format!("cut{i}")), &settings);
        let options = famio::recovery::Options::default();
        let reports = famio::recovery::recover_path(&crashed.path, &settings, &options, &Cuts(&crashed.journal_path));
        let outcome = &reports.unwrap()[0].outcome;
        assert!(matches!(outcome, Outcome::Failed(e) if e.to_string().contains("cut short")), "{outcome:?}");
    }
}

fn am_root() -> bool {
    // SAFETY: a question.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("SKIPPED: needs root, for other users");
    }
    root
}

/// Nothing that another user writes makes root write to a file: not that user's journal for it, not even with
/// `--use=journal`.
#[test]
fn a_journal_of_another_user() {
    if !am_root() {
        return;
    }
    const VICTIM: u32 = 1235;
    const STRANGER: u32 = 1234;
    for (i, settings) in in_place().into_iter().enumerate() {
        let crashed = Crashed::usual(Scratch::on_tmpfs(&format!("stranger{i}")), &settings);
        let own = |path: &std::path::Path, user| std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
        own(&crashed.path, VICTIM);
        own(crashed.journal_path.parent().unwrap(), STRANGER);
        for (folder, journal) in [(STRANGER, VICTIM), (VICTIM, STRANGER), (0, STRANGER)] {
            own(crashed.journal_path.parent().unwrap(), folder);
            own(&crashed.journal_path, journal);
            for place in [&crashed.path, &crashed.dir.path().to_path_buf()] {
                for on_conflict in [Use::Refuse, Use::Journal] {
                    let options = famio::recovery::Options { on_conflict, ..Default::default() };
                    let silent = famio::recovery::Silent;
                    let reports = famio::recovery::recover_path(place, &settings, &options, &silent).unwrap();
                    assert!(reports.iter().all(|report| crash::is_stopped(&report.outcome)), "{reports:?}");
                    assert!(std::fs::read(&crashed.path).unwrap() == crashed.raw);
                }
            }
        }
        own(crashed.journal_path.parent().unwrap(), VICTIM);
        own(&crashed.journal_path, VICTIM);
        assert!(matches!(crashed.recover(Use::Refuse).outcome, Outcome::Recovered));
        crashed.assert_recovered();
    }
}

/// A journal may name any path: what lies there is examined without opening it, until it is known to be the journal's
/// file. Opening it for writing would break a lease, wait at a FIFO, or trigger a device.
#[test]
fn what_a_hint_leads_to_is_not_opened() {
    use std::os::fd::AsRawFd;
    let dir = Scratch::on_tmpfs("hints");
    let pool = dir.path().join(".famio");
    std::fs::create_dir(&pool).unwrap();
    let leased = dir.path().join("leased");
    std::fs::write(&leased, "x").unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&leased).unwrap();
    // SAFETY: calls on an open descriptor. The signal of a lease break is ignored.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        assert_eq!(libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK), 0);
    }
    let fifo = dir.path().join("fifo");
    let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: a path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let other = famio::journal::Identity::of_path(dir.path()).unwrap();
    let hints = [&leased, &fifo, std::path::Path::new("/dev/ptmx"), std::path::Path::new("/proc/self/mem")];
    for (i, hint) in hints.into_iter().enumerate() {
        let mut identity = other.encode();
        identity[8] ^= 1 + i as u8; // of no file
        let identity = famio::journal::Identity::decode(&identity).unwrap();
        let domain = famio::pmem::Domain::Process;
        let kind = famio::journal::Kind::Records;
        let mut header = famio::journal::Header::new(kind, domain, domain, identity, hint).unwrap();
        header.state = famio::journal::State::Active;
        let journal = pool.join(famio::journal::journal_name(&identity));
        std::fs::write(journal, [header.encode(), header.encode()].concat()).unwrap();
    }
    for on_conflict in [Use::Refuse, Use::Journal, Use::File] {
        let options = famio::recovery::Options { on_conflict, ..Default::default() };
        let settings = famio::Settings::default();
        let reports = famio::recovery::recover_path(dir.path(), &settings, &options, &famio::recovery::Silent).unwrap();
        assert!(reports.len() == 4 && reports.iter().all(|report| crash::is_stopped(&report.outcome)), "{reports:?}");
        famio::recovery::check(dir.path(), &settings).unwrap();
        famio::recovery::survey(dir.path(), &settings).unwrap();
        // SAFETY: queries an open descriptor.
        let lease = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) };
        assert_eq!(lease, libc::F_WRLCK, "the file of another journal's hint was opened");
    }
}

/// A journal of records with terabytes of holes is read quickly: holes are skipped.
#[test]
fn a_journal_of_holes() {
    use std::os::unix::fs::FileExt;
    const SEGMENT: u64 = 1 << 30;
    const SEGMENTS: u64 = 4096;
    let dir = Scratch::on_tmpfs("holes");
    let path = dir.path().join("app.db");
    std::fs::write(&path, "x").unwrap();
    let identity = famio::journal::Identity::of_path(&path).unwrap();
    let domain = famio::pmem::Domain::PageCache;
    let kind = famio::journal::Kind::Records;
    let mut header = famio::journal::Header::new(kind, domain, domain, identity, &path).unwrap();
    header.state = famio::journal::State::Suspect;
    header.geometry[..4].copy_from_slice(&[SEGMENT, SEGMENT, SEGMENT, SEGMENTS]);
    let pool = dir.path().join(".famio");
    std::fs::create_dir(&pool).unwrap();
    let journal = std::fs::File::create(pool.join(famio::journal::journal_name(&identity))).unwrap();
    journal.write_all_at(&[header.encode(), header.encode()].concat(), 0).unwrap();
    journal.set_len(4096 + SEGMENTS * SEGMENT).unwrap();
    for segment in 0..SEGMENTS {
        journal.write_all_at(b"no head of a segment", 4096 + segment * SEGMENT).unwrap();
    }
    drop(journal);
    let options = famio::recovery::Options { on_conflict: Use::Journal, ..Default::default() };
    let settings = famio::Settings::default();
    let reports = famio::recovery::recover_path(&path, &settings, &options, &famio::recovery::Silent).unwrap();
    assert!(
        matches!(reports[..], [famio::recovery::Report { outcome: Outcome::Recovered, epoch: 0, .. }]),
        "{reports:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"x");
}

/// Any user who may write the folder can create a `.famio` there. No journal in it is used, and a file without a mark
/// can be opened and read all the same.
#[test]
fn a_famio_that_is_not_trusted_hinders_no_reader() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let dir = Scratch::on_tmpfs("not-trusted");
    let path = dir.path().join("app.db");
    let famio = dir.path().join(".famio");
    std::fs::write(&path, "as it is").unwrap();
    let opens = |what: &str| {
        let opened =
            common::Opened::try_new(&path, &famio::Settings::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(opened.read(0, 100), b"as it is", "{what}");
    };
    let name = std::ffi::CString::new(famio.to_str().unwrap()).unwrap();
    // SAFETY: a path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    opens("a FIFO");
    std::fs::remove_file(&famio).unwrap();
    symlink("/", &famio).unwrap();
    opens("a symbolic link");
    std::fs::remove_file(&famio).unwrap();
    if am_root() {
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        std::fs::create_dir(&famio).unwrap();
        chown(&famio, Some(1234), Some(1234)).unwrap();
        opens("a stranger's folder");
    }
}
