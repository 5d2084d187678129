use super::life::{Life, Lives};
use super::*;
use std::os::fd::{AsFd, OwnedFd};

fn open(like: &OwnedFd, dev: u64, ino: u64) -> Door {
    let door = Door::of(dev, ino);
    door.come(like.as_fd(), || Ok(false)).unwrap();
    door
}

fn key() -> (OwnedFd, u64, u64) {
    let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let ino = rustix::fs::fstat(&file).unwrap().st_ino;
    (file, 0xfa311 + u64::from(std::process::id()), ino)
}

/// As a kill: nothing was said, and the place goes. By name: a child that another test starts may hold a duplicate for a moment.
fn killed(door: Door) {
    assert!(door.file.lock().as_ref().is_some_and(|file| lock(file, libc::F_UNLCK, door.me().place)));
}

#[test]
fn the_last_removes_it() {
    let (file, dev, ino) = key();
    let first = open(&file, dev, ino);
    let second = open(&file, dev, ino);
    assert!(first.has_others() && second.has_others());
    assert_ne!(first.me(), second.me());
    assert!(first.leave());
    assert!(!second.has_others());
    assert!(std::path::Path::new(&name_of(dev, ino)).exists());
    assert!(second.leave());
    assert!(!std::path::Path::new(&name_of(dev, ino)).exists());
}

#[test]
fn a_writer_is_open_over_or_dead() {
    let (file, dev, ino) = key();
    let mine = open(&file, dev, ino);
    let other = open(&file, dev, ino);
    let wrote = other.me();
    assert_eq!((mine.standing(wrote), mine.standing(mine.me())), (Standing::Open, Standing::Open));
    other.end_tenure();
    assert_eq!(mine.standing(wrote), Standing::Over);
    let wrote = other.me();
    mine.rely_on(wrote);
    assert_eq!(mine.standing(wrote), Standing::Over);
    let (wrote, before) = (other.me(), mine.me());
    killed(other);
    assert_eq!((mine.standing(wrote), mine.standing(before)), (Standing::Dead, Standing::Open));
    assert!(mine.leave());
}

#[test]
fn what_travels_keeps_the_last_one_in_and_the_place_of_a_dead_one() {
    let (file, dev, ino) = key();
    let mine = open(&file, dev, ino);
    let other = open(&file, dev, ino);
    let number = other.number();
    std::fs::write(other.epoch_path(number), "x").unwrap();
    other.set_epoch(number);
    let wrote = other.me();
    killed(other);
    let third = open(&file, dev, ino);
    assert_eq!(third.standing(wrote), Standing::Dead);
    assert!(third.leave());
    assert!(!mine.leave());
    mine.forget_epoch();
    assert!(!std::path::Path::new(&mine.epoch_path(number)).exists());
    assert!(mine.leave());
}

fn left_door(dev: u64, ino: u64) -> InternalFd {
    internal::open(CWD, &*name_of(dev, ino), OFlags::RDWR, Mode::empty()).unwrap()
}

#[test]
fn what_the_dead_left_is_swept() {
    let (file, dev, ino) = key();
    let mine = open(&file, dev, ino);
    let (left, kept) = (mine.number(), mine.number());
    let exists = |number| std::path::Path::new(&mine.epoch_path(number)).exists();
    mine.page().unfinished.store(left, Ordering::Release);
    std::fs::write(mine.epoch_path(left), "x").unwrap();
    std::fs::write(mine.epoch_path(kept), "x").unwrap();
    mine.page().epoch.store(kept, Ordering::Release);
    mine.change(TRAVELS, true);
    let name = std::ffi::CString::new(name_of(dev, ino).rsplit('/').next().unwrap()).unwrap();
    sweep_door(&name);
    assert!(exists(kept), "somebody is there");
    let all = [name_of(dev, ino), mine.epoch_path(kept), mine.epoch_path(left)];
    killed(mine);
    let death = Door::of(dev, ino);
    death.page.store(map(&left_door(dev, ino), core::ptr::null_mut()).unwrap().as_ptr(), Ordering::Release);
    death.set_session(true);
    sweep_door(&name);
    assert!(all.iter().all(|path| !std::path::Path::new(path).exists()), "{all:?}");
    // There may be a journal: who has the file open already, but had not come yet, is to hear of it.
    let next = Door::of(dev, ino);
    next.come(file.as_fd(), || Ok(true)).unwrap();
    assert_eq!(next.state() & SESSION, SESSION);
    assert!(next.leave());
}

/// The process of the next test: its children have all that it has, and live as long as they like.
#[test]
fn sweeps_while_it_forks() {
    if std::env::var_os("FAMIO_SWEEPS").is_none() {
        return;
    }
    let (file, dev, ino) = key();
    let mine = open(&file, dev, ino);
    let name = std::ffi::CString::new(name_of(dev, ino).rsplit('/').next().unwrap()).unwrap();
    let children: Vec<_> = std::thread::scope(|scope| {
        let forks = scope.spawn(|| {
            // SAFETY: the child does nothing but wait for its kill.
            let fork = || match unsafe { libc::fork() } {
                0 => loop {
                    // SAFETY: a system call without arguments.
                    unsafe { libc::pause() };
                },
                child => rustix::process::Pid::from_raw(child.max(0)).expect("no fork"),
            };
            (0..50).map(|_| fork()).collect()
        });
        while !forks.is_finished() {
            sweep_door(&name);
        }
        forks.join().unwrap()
    });
    let locked = lock_door(&left_door(dev, ino));
    for &child in &children {
        rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
        rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
    }
    locked.unwrap();
    assert!(mine.leave());
}

/// A child that was forked meanwhile had a duplicate, and with it the lock: who came waited for its end, or in vain.
#[test]
fn a_sweep_leaves_no_lock_to_a_child() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "index::door::tests::sweeps_while_it_forks", "--nocapture"]).env("FAMIO_SWEEPS", "1");
    assert!(command.stdout(std::process::Stdio::null()).status().unwrap().success());
}

#[test]
fn who_comes_after_all_have_died_finds_nothing_of_theirs() {
    let (file, dev, ino) = key();
    let dead = open(&file, dev, ino);
    let number = dead.number();
    std::fs::write(dead.epoch_path(number), "x").unwrap();
    dead.set_epoch(number);
    dead.set_session(true);
    let path = dead.epoch_path(number);
    killed(dead);
    let next = open(&file, dev, ino);
    assert!(next.state() & (SESSION | TRAVELS) == 0 && !std::path::Path::new(&path).exists());
    assert!(next.leave());
}

#[test]
fn one_that_ended_is_dead_though_its_locks_stay_a_while() {
    let (file, dev, ino) = key();
    let mine = open(&file, dev, ino);
    let other = open(&file, dev, ino);
    let wrote = other.me();
    std::thread::spawn({
        let life = &other.page().members[wrote.place as usize].life;
        let life = core::ptr::from_ref(life).expose_provenance();
        move || {
            let lives: &'static Lives = Box::leak(Box::new(Lives::new()));
            lives.keep();
            // SAFETY: in the page of `other`, which is there until the end of this test.
            lives.add(unsafe { &*core::ptr::with_exposed_provenance::<Life>(life) });
        }
    })
    .join()
    .unwrap();
    while mine.standing(wrote) == Standing::Open {
        std::thread::yield_now();
    }
    assert_eq!(mine.standing(wrote), Standing::Dead);
    assert_eq!(mine.dead(), [(wrote.place as usize, wrote.id)]);
    assert!(!mine.has_others() && is_locked(&left_door(dev, ino), i64::from(wrote.place), 1));
    assert!(mine.leave());
}

#[test]
fn one_who_comes_waits_for_one_who_takes_long() {
    let (file, dev, ino) = key();
    let first = open(&file, dev, ino);
    let slow = left_door(dev, ino);
    rustix::fs::flock(&slow, FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| open(&file, dev, ino));
        // Longer than it takes to sweep, as if it had no processor meanwhile.
        std::thread::sleep(std::time::Duration::from_millis(150));
        rustix::fs::flock(&slow, FlockOperation::Unlock).unwrap();
        assert!(second.join().unwrap().leave());
    });
    assert!(first.leave());
}

/// The process of the next test.
#[test]
fn makes_shadows_until_it_is_killed() {
    use std::io::Write;
    let Ok(ino) = std::env::var("FAMIO_DOOR_OF") else { return };
    let (file, dev, _) = key();
    let door = open(&file, dev + 1000 - u64::from(std::process::id()), ino.parse().unwrap());
    std::io::stderr().write_all(b"ready\n").unwrap();
    loop {
        let path = door.shadow_path(door.begin_shadow());
        std::fs::write(path, b"").unwrap();
        door.set_shadow();
        door.forget_shadow();
    }
}

/// Its number was taken from the page before the memory was removed: who was killed in between left it for good.
#[test]
fn a_shadow_is_known_until_it_is_gone() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let (file, dev, _) = key();
    let (dev, ino) = (dev + 1000 - u64::from(std::process::id()), std::process::id().into());
    let door = open(&file, dev, ino);
    for kill in 0..200 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "index::door::tests::makes_shadows_until_it_is_killed", "--nocapture"]);
        command.env("FAMIO_DOOR_OF", ino.to_string()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
        (0..kill * 997 % 20_000).for_each(|_| core::hint::spin_loop());
        child.kill().unwrap();
        child.wait().unwrap();
        door.forget_shadow();
        let beside = name_of(dev, ino).replace("/dev/shm/", "").replace(".door", ".shadow.");
        let left = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(&beside)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(door.leave());
}
