use super::*;
use crate::beside::BESIDE;
use crate::journal::testing::Scratch;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::slice;

fn file_in(dir: &Scratch, mode: u32) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(dir.path("data")).unwrap();
    file.set_permissions(Permissions::from_mode(mode)).unwrap();
    file
}

fn name_of(file: &File) -> String {
    journal_name(&Identity::of_fd(file.as_fd()).unwrap())
}

fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_pool_beside_the_file_comes_and_goes() {
    let dir = Scratch::new();
    let file = file_in(&dir, 0o640);
    assert!(Pool::find(file.as_fd(), None).unwrap().is_none());
    let pool = Pool::make(file.as_fd(), None).unwrap();
    assert!(pool.is_beside() && pool.path() == dir.path(BESIDE));
    let name = name_of(&file);
    let journal = pool.create(file.as_fd(), &name).unwrap();
    assert_eq!(rustix::fs::fstat(&journal).unwrap().st_mode & 0o777, 0o640);
    pool.sync(Durability::Power, crate::pmem::medium(crate::pmem::Domain::PageCache, false)).unwrap();
    assert_eq!(pool.create(file.as_fd(), &name).unwrap_err().errno(), libc::EEXIST);
    assert!(pool.open(&name, Some(file.as_fd())).unwrap().is_some());
    File::create(pool.path_of("note.txt")).unwrap();
    assert_eq!(pool.list().unwrap(), slice::from_ref(&name));
    assert_eq!(Pool::at(pool.path(), None).unwrap().list().unwrap(), slice::from_ref(&name));
    pool.remove(&name).unwrap();
    pool.remove(&name).unwrap();
    assert!(pool.open(&name, Some(file.as_fd())).unwrap().is_none());
    pool.remove_if_empty();
    assert!(pool.path().exists(), "a foreign file is in it");
    fs::remove_file(pool.path_of("note.txt")).unwrap();
    pool.remove_if_empty();
    assert!(!pool.path().exists());
    pool.remove_if_empty();
}

#[test]
fn a_named_pool_must_be_there_and_stays() {
    let dir = Scratch::new();
    let file = file_in(&dir, 0o600);
    let path = dir.path("pool");
    let error = Pool::make(file.as_fd(), Some(&path)).err().unwrap();
    assert_eq!(error.errno(), libc::ENOENT);
    assert!(error.to_string().contains("pool") && error.to_string().contains("no such file; make"), "{error}");
    fs::create_dir(&path).unwrap();
    let pool = Pool::make(file.as_fd(), Some(&path)).unwrap();
    assert!(!pool.is_beside());
    pool.remove_if_empty();
    assert!(path.exists());
}

#[test]
fn the_folder_is_as_open_as_its_parent() {
    let dir = Scratch::new();
    fs::set_permissions(dir.root(), Permissions::from_mode(0o750)).unwrap();
    if am_root() {
        chown(dir.root(), Some(1234), Some(2345)).unwrap();
    }
    let file = file_in(&dir, 0o660);
    Pool::make(file.as_fd(), None).unwrap();
    let made = fs::metadata(dir.path(BESIDE)).unwrap();
    assert_eq!(made.mode() & 0o777, 0o750);
    if am_root() {
        assert_eq!((made.uid(), made.gid()), (1234, 2345));
    }
    fs::remove_dir(dir.path(BESIDE)).unwrap();
    fs::set_permissions(dir.root(), Permissions::from_mode(0o1777)).unwrap();
    let made = Pool::make(file.as_fd(), None).unwrap();
    let owner = fs::metadata(dir.path("data")).unwrap().uid();
    assert_eq!(made.path(), dir.path(&format!("{BESIDE}-{owner}")));
    let made = fs::metadata(made.path()).unwrap();
    assert_eq!((made.mode() & 0o777, made.uid()), (0o700, owner));
}

#[test]
fn the_journal_is_the_owners() {
    if !am_root() {
        return;
    }
    let dir = Scratch::new();
    let file = file_in(&dir, 0o664);
    chown(dir.path("data"), Some(1234), Some(2345)).unwrap();
    let pool = Pool::make(file.as_fd(), None).unwrap();
    let journal = rustix::fs::fstat(pool.create(file.as_fd(), "j").unwrap()).unwrap();
    assert_eq!((journal.st_uid, journal.st_gid, journal.st_mode & 0o777), (1234, 2345, 0o664));
    chown(pool.path_of("j"), Some(99), None).unwrap();
    pool.open("j", Some(file.as_fd())).unwrap().expect("of one of the group that may write the file");
    fs::set_permissions(dir.path("data"), Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(pool.path_of("j"), Permissions::from_mode(0o644)).unwrap();
    let error = pool.open("j", Some(file.as_fd())).unwrap_err();
    assert!(error.to_string().contains("belongs to user 99"), "{error}");
    chown(pool.path(), Some(99), None).unwrap();
    let error = Pool::find(file.as_fd(), None).err().unwrap();
    assert!(error.to_string().contains("belongs to user 99"), "{error}");
}

/// A journal that another user made for a file of everybody's used to be private to that user, and refused.
#[test]
fn the_journal_of_a_file_of_everybodys_is_everybodys() {
    if !am_root() {
        return;
    }
    let dir = Scratch::new();
    let file = file_in(&dir, 0o666);
    let pool = Pool::make(file.as_fd(), None).unwrap();
    drop(pool.create(file.as_fd(), "j").unwrap());
    for (file_mode, journal_mode, trusted) in [
        (0o666, 0o666, true),
        (0o666, 0o600, true),
        (0o644, 0o644, false),
        (0o664, 0o664, false), // not the file's group
        (0o606, 0o606, false),
    ] {
        fs::set_permissions(dir.path("data"), Permissions::from_mode(file_mode)).unwrap();
        chown(pool.path_of("j"), Some(99), Some(99)).unwrap();
        fs::set_permissions(pool.path_of("j"), Permissions::from_mode(journal_mode)).unwrap();
        let opened = pool.open("j", Some(file.as_fd()));
        assert_eq!(opened.is_ok(), trusted, "{file_mode:o} {journal_mode:o}");
    }
}

/// An access control list as the kernel wants it: (tag, permissions, id).
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        list.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

const NO_ID: u32 = u32::MAX;
const ACCESS: &str = "system.posix_acl_access";

fn list_of(file: impl AsFd) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 200];
    let len = rustix::fs::fgetxattr(file, ACCESS, &mut bytes[..]).ok()?;
    bytes.truncate(len);
    Some(bytes)
}

/// They got the list's mask as their group's permissions, and the default list of the folder: users who may only read
/// the file, or not even that, could write its journal.
#[test]
fn only_users_whom_the_files_list_lets_write_it_may_write_its_journal() {
    if !am_root() {
        return;
    }
    let dir = Scratch::new();
    let default = list(&[(1, 7, NO_ID), (2, 7, 2009), (4, 5, NO_ID), (16, 7, NO_ID), (32, 5, NO_ID)]);
    match rustix::fs::setxattr(dir.path("."), "system.posix_acl_default", &default, rustix::fs::XattrFlags::empty()) {
        Err(rustix::io::Errno::OPNOTSUPP) => return eprintln!("NOT TESTED: no access control lists here"),
        set => set.unwrap(),
    }
    let file = file_in(&dir, 0o660);
    rustix::fs::fremovexattr(&file, ACCESS).unwrap();
    file.set_permissions(Permissions::from_mode(0o660)).unwrap();
    let pool = Pool::make(file.as_fd(), None).unwrap();
    let journal = pool.create(file.as_fd(), "j").unwrap();
    assert_eq!((list_of(&pool.folder), list_of(&journal)), (None, None), "of the folder's default");
    assert_eq!(rustix::fs::fstat(&journal).unwrap().st_mode & 0o777, 0o660);

    let named = list(&[(1, 6, NO_ID), (2, 6, 2001), (4, 4, NO_ID), (16, 6, NO_ID), (32, 0, NO_ID)]);
    rustix::fs::fsetxattr(&file, ACCESS, &named, rustix::fs::XattrFlags::empty()).unwrap();
    let journal = pool.create(file.as_fd(), "k").unwrap();
    assert_eq!(list_of(&journal), Some(named), "the file's");
    for (user, list_of_it, is_trusted) in [
        (2001, Some(&[(1, 6, NO_ID), (2, 6, 2001), (4, 4, NO_ID), (16, 6, NO_ID), (32, 0, NO_ID)][..]), true),
        (2001, None, true),
        (2002, None, false),
        (0, Some(&[(1, 6, NO_ID), (2, 6, 2002), (4, 4, NO_ID), (16, 6, NO_ID), (32, 0, NO_ID)][..]), false),
        (0, Some(&[(1, 6, NO_ID), (2, 6, 2001), (4, 6, NO_ID), (16, 6, NO_ID), (32, 0, NO_ID)][..]), false),
    ] {
        chown(pool.path_of("k"), Some(user), None).unwrap();
        rustix::fs::fremovexattr(&journal, ACCESS).unwrap();
        fs::set_permissions(pool.path_of("k"), Permissions::from_mode(0o600)).unwrap();
        if let Some(entries) = list_of_it {
            rustix::fs::fsetxattr(&journal, ACCESS, &list(entries), rustix::fs::XattrFlags::empty()).unwrap();
        }
        let opened = pool.open("k", Some(file.as_fd()));
        assert_eq!(opened.is_ok(), is_trusted, "{user} {list_of_it:?}: {:?}", opened.err());
        fs::set_permissions(pool.path_of("k"), Permissions::from_mode(0o600)).unwrap();
        rustix::fs::fsetxattr(&journal, ACCESS, &list_of(&file).unwrap(), rustix::fs::XattrFlags::empty()).unwrap();
    }
}

/// A `stat` by name has only an `O_PATH` descriptor of the file, which cannot be asked for its list; it showed a growing
/// file's size with its reserve.
#[test]
fn a_file_that_was_only_looked_at_has_its_journal() {
    let dir = Scratch::new();
    let file = file_in(&dir, 0o644);
    let pool = Pool::make(file.as_fd(), None).unwrap();
    drop(pool.create(file.as_fd(), "j").unwrap());
    let looked = rustix::fs::open(dir.path("data"), OFlags::PATH, Mode::empty()).unwrap();
    pool.open_read_only("j", Some(looked.as_fd())).unwrap().unwrap();
    assert!(pool.is_trusted("j", looked.as_fd()));
}

/// In a folder where everybody may make files, a file gets the folder's group although its owner is not a member.
#[test]
fn a_group_proves_nothing_where_everybody_may_make_files() {
    if !am_root() {
        return;
    }
    let dir = Scratch::new();
    let file = file_in(&dir, 0o664);
    chown(dir.path("data"), Some(0), Some(3000)).unwrap();
    fs::create_dir(dir.path("pool")).unwrap();
    for (mode, is_trusted) in [(0o2770, true), (0o3777, false), (0o1777, false)] {
        fs::set_permissions(dir.path("pool"), Permissions::from_mode(mode)).unwrap();
        let pool = Pool::find(file.as_fd(), Some(&dir.path("pool"))).unwrap().unwrap();
        drop(pool.create(file.as_fd(), "j").unwrap());
        chown(pool.path_of("j"), Some(2009), Some(3000)).unwrap();
        assert_eq!(pool.open("j", Some(file.as_fd())).is_ok(), is_trusted, "{mode:o}");
        pool.remove("j").unwrap();
    }
}

#[test]
fn planted_files_are_refused() {
    let dir = Scratch::new();
    let file = file_in(&dir, 0o644);
    let pool = Pool::make(file.as_fd(), None).unwrap();
    let refused = |name: &str, why: &str| {
        let error = pool.open(name, Some(file.as_fd())).unwrap_err();
        assert!(error.to_string().contains(why) && error.to_string().contains(name), "{error}");
        assert_eq!(error.errno(), libc::EACCES);
    };
    symlink("/etc/passwd", pool.path_of("link")).unwrap();
    refused("link", "symbolic link");
    assert_eq!(pool.create(file.as_fd(), "link").unwrap_err().errno(), libc::EEXIST);
    rustix::fs::mknodat(&pool.folder, "fifo", FileType::Fifo, Mode::RWXU, 0).unwrap();
    refused("fifo", "not a regular file");
    fs::write(pool.path_of("one"), "").unwrap();
    fs::hard_link(pool.path_of("one"), pool.path_of("two")).unwrap();
    refused("two", "has 2 names");
    fs::write(pool.path_of("open"), "").unwrap();
    fs::set_permissions(pool.path_of("open"), Permissions::from_mode(0o666)).unwrap();
    refused("open", "lets users write it who may not write the file");
    symlink(dir.root(), dir.path("sub")).unwrap();
    fs::remove_dir_all(pool.path()).unwrap();
    symlink(dir.root(), dir.path(BESIDE)).unwrap();
    assert!(Pool::find(file.as_fd(), None).is_err(), "a link in the place of .famio");
}

#[test]
fn two_that_make_and_remove_do_not_meet() {
    let dir = Scratch::new();
    let files: Vec<File> = (0..3).map(|i| File::create(dir.path(&format!("f{i}"))).unwrap()).collect();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(move || {
                for _ in 0..200 {
                    let name = name_of(file);
                    let (pool, _journal) = Pool::create_for(file.as_fd(), None, &name).unwrap();
                    pool.remove(&name).unwrap();
                    pool.remove_if_empty();
                }
            });
        }
    });
    assert!(!dir.path(BESIDE).exists());
}

#[test]
fn names_are_told() {
    assert!(is_journal_name("00112233445566778899aabbccddeeff.journal"));
    for other in ["", ".journal", "00112233445566778899aabbccddeef.journal", "00112233445566778899AABBCCDDEEFF.journal"]
    {
        assert!(!is_journal_name(other));
    }
}
