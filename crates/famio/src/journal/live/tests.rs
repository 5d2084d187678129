use super::*;
use crate::journal::header::COPY_LEN;
use crate::journal::records::Keeper;
use crate::journal::testing::Scratch;
use crate::pmem::medium;
use crate::pmem::record::{Call, Recorder};
use core::sync::atomic::Ordering;

/// A first write failed with `ENOENT` if its folder was removed at that moment, by the close of another file
/// beside it.
#[test]
fn journals_come_and_go_beside_each_other() {
    let dir = Scratch::new();
    let medium = medium(Domain::PageCache, false);
    std::thread::scope(|scope| {
        for name in ["one", "two", "three"] {
            let path = dir.path(name);
            scope.spawn(move || {
                std::fs::write(&path, b"x").unwrap();
                let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
                let settings = Settings { durability: Durability::Process, ..Settings::default() };
                for _ in 0..200 {
                    let domains = (Domain::Process, Domain::Process);
                    let live = Live::create(file.as_fd(), &settings, Kind::InPlace, domains, medium, None).unwrap();
                    live.activate(file.as_fd()).unwrap();
                    live.retire(file.as_fd()).unwrap();
                }
            });
        }
    });
}

/// A file with an active journal.
fn active(dir: &Scratch) -> (PathBuf, std::fs::File, Arc<Live>) {
    let path = dir.path("file");
    std::fs::write(&path, b"x").unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let domains = (Domain::PageCache, Domain::PageCache);
    let medium = medium(Domain::PageCache, false);
    let live = Live::create(file.as_fd(), &Settings::default(), Kind::Records, domains, medium, None).unwrap();
    live.activate(file.as_fd()).unwrap();
    let states = [(); 3].map(|()| {
        let now = stored(&live);
        live.flush(Some(file.as_fd())).unwrap();
        now
    });
    // Short sessions do without.
    assert_eq!(states, [State::AsMarked, State::AsMarked, State::Active]);
    (path, file, live)
}

fn stored(live: &Live) -> State {
    let (bytes, length) = first_bytes(live.file().as_fd()).unwrap();
    Header::read(&bytes[..length]).unwrap().0.state
}

/// A joint commit could be tried again after a failed flush, and succeeded: the kernel had dropped the header's page.
#[test]
fn a_flush_that_failed_before_a_joint_commit_fails_for_good() {
    let dir = Scratch::new();
    std::fs::write(dir.path("file"), b"x").unwrap();
    let file = std::fs::File::options().read(true).write(true).open(dir.path("file")).unwrap();
    let recorder = Recorder::new(Domain::PageCache);
    let (settings, domains) = (Settings::default(), (Domain::PageCache, Domain::PageCache));
    let live = Live::create(file.as_fd(), &settings, Kind::Records, domains, recorder, None).unwrap();
    live.activate(file.as_fd()).unwrap();
    live.due.store(MARK, Ordering::Relaxed); // as where the order is kept
    recorder.fail(Call::Fsync, 1, libc::EIO);
    let errno = |made: Result<()>| made.unwrap_err().errno();
    assert_eq!(errno(live.make_mark_durable(file.as_fd())), libc::EIO);
    assert_eq!(errno(live.make_mark_durable(file.as_fd())), libc::EIO, "tried again");
    assert_eq!(errno(live.flush(Some(file.as_fd()))), libc::EIO, "a commit of the file alone");
    live.abandon(file.as_fd());
}

/// A SYNC that looked for the journal waited for the end of a session, which waited for the SYNC.
#[test]
fn no_lock_is_held_while_the_file_is_asked_for() {
    let dir = Scratch::new();
    let (path, file, live) = active(&dir);
    let free = || live.place.try_lock().is_some() && live.header.try_lock().is_some();
    let is_named = live.is_named(
        true,
        || {
            assert!(free());
            Some(path.with_file_name("elsewhere"))
        },
        || {
            assert!(free());
            1
        },
    );
    assert!(is_named);
    live.retire(file.as_fd()).unwrap();
}

/// A crash before the mark's flush may leave the header *active*, but only with the mark as it was.
#[test]
fn where_the_order_is_kept_the_flush_of_the_mark_takes_the_header() {
    let dir = Scratch::new();
    let (path, file, live) = active(&dir);
    live.keeps_order.store(true, Ordering::Relaxed);
    live.store_end_before_unmark().unwrap();
    let (bytes, length) = first_bytes(live.file().as_fd()).unwrap();
    assert_eq!(Header::read(&bytes[..length]).unwrap().0.state, State::AsMarked);
    let found = [0, COPY_LEN].map(|copy| {
        let mut bytes = bytes.clone();
        bytes[copy..copy + COPY_LEN].fill(0);
        Header::read(&bytes[..length]).unwrap().0.state
    });
    assert!(found.contains(&State::Active) && found.contains(&State::AsMarked), "{found:?}");
    assert!(matches!(mark::get(file.as_fd()), Ok(Some(mark)) if !mark.is_closing));
    live.retire(file.as_fd()).unwrap();
    assert!(matches!(mark::get(file.as_fd()), Ok(None)));
    assert!(!path.with_file_name(".famio").exists());
}

#[test]
fn a_journal_that_has_ended_stays_clean() {
    let dir = Scratch::new();
    let (_, file, live) = active(&dir);
    let state = || stored(&live);
    live.retire(file.as_fd()).unwrap();
    live.suspect();
    assert_eq!(state(), State::Clean);
}
