//! Access control lists (POSIX ACLs, `acl(5)`): who may read and write a file beyond what its mode says. A file with a
//! list has the list's mask in place of its group's permissions, and what is created in a folder with a default list
//! gets a list of its own.

use crate::error::Result;
use rustix::fs::{Stat, XattrFlags, fgetxattr, fremovexattr, fsetxattr, getxattr};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";
const VERSION: u32 = 2;

const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP: u16 = 4;
const NAMED_GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;
const NOBODY: u32 = u32::MAX;

/// Bytes of a list: of its version, and of each entry.
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// Longer lists count as damaged.
const LONGEST: usize = HEAD + 1000 * ENTRY;

pub(super) const WRITE: u32 = 2;
pub(super) const READ_WRITE: u32 = 6;

/// A user, or a group, that a list names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name {
    User(u32),
    Group(u32),
}

/// What users other than the owner may do with a file: bits as in a mode's last digit.
#[derive(Debug)]
pub(super) struct Permissions {
    owner: u32,
    gid: u32,
    group: u32,
    others: u32,
    /// Of users and groups that a list names.
    named: Vec<(Name, u32)>,
}

impl Permissions {
    /// Those of a file, of which `stat` is. The descriptor may be an `O_PATH` one.
    pub fn of(file: BorrowedFd<'_>, stat: &Stat) -> Result<Self> {
        let get = |to: &mut [u8]| match fgetxattr(file, ACCESS, &mut *to) {
            Err(Errno::BADF) => getxattr(&*link_to(file), ACCESS, to),
            got => got,
        };
        Ok(Self::with(stat, read(get)?))
    }

    /// As [`of`](Self::of), of a descriptor that is most likely an `O_PATH` one.
    pub fn of_looked_at(file: BorrowedFd<'_>, stat: &Stat) -> Result<Self> {
        let get = |to: &mut [u8]| match getxattr(&*link_to(file), ACCESS, &mut *to) {
            Err(Errno::NOENT | Errno::NOTDIR) => fgetxattr(file, ACCESS, to), // no `/proc`
            got => got,
        };
        Ok(Self::with(stat, read(get)?))
    }

    fn with(stat: &Stat, list: Option<Vec<u8>>) -> Self {
        let (group, others) = (stat.st_mode >> 3 & 7, stat.st_mode & 7);
        let mut all = Self { owner: stat.st_uid, gid: stat.st_gid, group, others, named: Vec::new() };
        let Some(list) = list else { return all };
        let mask = group;
        for entry in list[HEAD..].chunks_exact(ENTRY) {
            let [tag, bits] = [0, 2].map(|at| u16::from_le_bytes([entry[at], entry[at + 1]]));
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let bits = u32::from(bits) & 7;
            match tag {
                USER => all.named.push((Name::User(id), bits & mask)),
                NAMED_GROUP => all.named.push((Name::Group(id), bits & mask)),
                GROUP => all.group = bits & mask,
                _ => {} // the owner, who may change it; the mask and the others, as in the mode
            }
        }
        all
    }

    /// What each that a list names may do.
    fn of_each_named(&self) -> u32 {
        self.named.iter().fold(7, |all, (_, bits)| all & bits)
    }

    /// Permissions that all of them have. Somebody whom a list names is not among the others.
    fn everybodys(&self) -> u32 {
        self.group & self.others & self.of_each_named()
    }

    /// Whether everybody may write it.
    pub fn are_everybodys_to_write(&self) -> bool {
        self.everybodys() & WRITE != 0
    }

    /// The permissions of something that has no list and the group `gid`, so that nobody may do more with it: bits as in
    /// a mode.
    pub fn as_mode(&self, gid: u32) -> u32 {
        let least = self.of_each_named();
        let [group, others] = if gid == self.gid { [self.group, self.others] } else { [self.everybodys(); 2] };
        (group & least) << 3 | others & least
    }

    /// With read and write permission for those who may write it, and none for anybody else.
    pub fn of_writers(mut self) -> Self {
        let of_writer = |bits: &mut u32| *bits = if *bits & WRITE != 0 { READ_WRITE } else { 0 };
        of_writer(&mut self.group);
        of_writer(&mut self.others);
        self.named.iter_mut().for_each(|(_, bits)| of_writer(bits));
        self
    }

    fn of_name(&self, name: Name) -> Option<u32> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, bits)| *bits)
    }

    /// Whether the list names writers.
    pub fn name_writers(&self) -> bool {
        self.named.iter().any(|(_, bits)| bits & WRITE != 0)
    }

    /// Whether the list names this user as a writer.
    pub fn names_writer(&self, user: u32) -> bool {
        self.of_name(Name::User(user)).is_some_and(|bits| bits & WRITE != 0)
    }

    /// Whether it has the group of `file`, and that group may write both.
    pub fn has_group_that_writes(&self, file: &Self) -> bool {
        self.gid == file.gid && self.group & file.group & WRITE != 0
    }

    /// Whether these give any of `bits` to a user to whom `file` gives no write permission.
    pub fn exceed_writers_of(&self, file: &Self, bits: u32) -> bool {
        // Users whom only the file's list names belong to the group or the others here.
        let unnamed = file.named.iter().filter(|(name, _)| self.of_name(*name).is_none());
        let least = unnamed.fold(7, |all, (_, bits)| all & bits);
        let class = |ours: u32, files: u32| ours & bits != 0 && files & least & WRITE == 0;
        let same_group = self.gid == file.gid;
        let everybodys = file.everybodys();
        let group = class(self.group, if same_group { file.group } else { everybodys });
        let others = class(self.others, if same_group { file.others } else { everybodys.max(self.named_group(file)) });
        let named = self.named.iter().any(|&(name, ours)| {
            let may_write = match name {
                Name::User(id) if id == file.owner => WRITE,
                Name::User(_) => file.of_name(name).unwrap_or(0),
                Name::Group(id) if id == file.gid => file.group & least,
                Name::Group(_) => file.of_name(name).unwrap_or(0) & least,
            };
            ours & bits != 0 && may_write & WRITE == 0
        });
        group || others || named
    }

    /// What `file` gives to its others, if its group is named here with no more than it has there.
    fn named_group(&self, file: &Self) -> u32 {
        let named = self.of_name(Name::Group(file.gid));
        if named.is_some_and(|bits| bits & !file.group == 0) { file.others } else { 0 }
    }

    /// Whether a list is needed to say them.
    pub fn need_list(&self) -> bool {
        !self.named.is_empty()
    }

    /// Gives them, as far as they are among `most`, to one of our files, which has this owner and group. The owner gets
    /// all of `most`.
    pub fn set_list(&self, ours: BorrowedFd<'_>, (owner, gid): (u32, u32), most: u32) -> rustix::io::Result<()> {
        let group = if gid == self.gid { self.group } else { self.everybodys() };
        let mut entries =
            vec![(OWNER, NOBODY, most), (GROUP, NOBODY, group), (MASK, NOBODY, most), (OTHERS, NOBODY, self.others)];
        let is_an_owner = |name: Name| [owner, self.owner].map(Name::User).contains(&name);
        entries.extend(self.named.iter().filter(|(name, _)| !is_an_owner(*name)).map(|&(name, bits)| match name {
            Name::User(id) => (USER, id, bits),
            Name::Group(id) => (NAMED_GROUP, id, bits),
        }));
        if owner != self.owner {
            entries.push((USER, self.owner, most));
        }
        if gid != self.gid && self.of_name(Name::Group(self.gid)).is_none() {
            entries.push((NAMED_GROUP, self.gid, self.group));
        }
        entries.sort_unstable(); // the kernel wants them so
        let mut list = VERSION.to_le_bytes().to_vec();
        for (tag, id, bits) in entries {
            list.extend_from_slice(&tag.to_le_bytes());
            list.extend_from_slice(&((bits & most) as u16).to_le_bytes());
            list.extend_from_slice(&id.to_le_bytes());
        }
        fsetxattr(ours, ACCESS, &list, XattrFlags::empty())
    }
}

fn link_to(file: BorrowedFd<'_>) -> String {
    format!("/proc/thread-self/fd/{}", file.as_raw_fd())
}

/// Whether a file, which is no `O_PATH` one, has a list.
pub(super) fn is_on(file: BorrowedFd<'_>) -> bool {
    has(file, ACCESS)
}

fn has(file: BorrowedFd<'_>, name: &CStr) -> bool {
    matches!(fgetxattr(file, name, &mut [0u8; 0]), Ok(_) | Err(Errno::RANGE))
}

/// Removes the list of one of our files.
pub(super) fn remove(ours: BorrowedFd<'_>) -> rustix::io::Result<()> {
    match fremovexattr(ours, ACCESS) {
        Err(Errno::NODATA) => Ok(()),
        removed => removed,
    }
}

/// Removes what a folder made in `parent` has got from there: its list, and the one for what is made in it.
pub(super) fn remove_default(parent: BorrowedFd<'_>, ours: BorrowedFd<'_>) -> rustix::io::Result<()> {
    if !has(parent, DEFAULT) {
        return Ok(());
    }
    fremovexattr(ours, DEFAULT).or_else(|e| if e == Errno::NODATA { Ok(()) } else { Err(e) })?;
    remove(ours)
}

/// The list of a file, which `get` asks for; `None`: it has none.
fn read(get: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Result<Option<Vec<u8>>> {
    // Nearly always there is none.
    let mut few = [0; HEAD + 16 * ENTRY];
    let list = match get(&mut few) {
        Ok(len) => few[..len].to_vec(),
        Err(Errno::RANGE) => {
            let mut list = vec![0; LONGEST];
            let len = get(&mut list)?;
            list.truncate(len);
            list
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    if list.len() < HEAD || list[..HEAD] != VERSION.to_le_bytes() {
        return Err(Errno::OPNOTSUPP.into());
    }
    Ok(Some(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(mode: u32) -> Permissions {
        Permissions { owner: 1, gid: 10, group: mode >> 3 & 7, others: mode & 7, named: Vec::new() }
    }

    #[test]
    fn a_mode_never_gives_more_than_the_list() {
        let (file, other_group) = (mode(0o640), 11);
        assert_eq!((file.as_mode(10), file.as_mode(other_group)), (0o40, 0));
        let everybodys = mode(0o666);
        assert_eq!((everybodys.as_mode(10), everybodys.as_mode(other_group)), (0o66, 0o66));
        assert_eq!(mode(0o606).as_mode(other_group), 0, "the group has less than the others");
        let denied = Permissions { named: vec![(Name::User(7), 0)], ..mode(0o666) };
        assert_eq!((denied.as_mode(10), denied.are_everybodys_to_write()), (0, false));
        let more = Permissions { named: vec![(Name::User(7), 6)], ..mode(0o640) };
        assert_eq!((more.as_mode(10), more.names_writer(7), more.names_writer(8)), (0o40, true, false));
    }

    #[test]
    fn more_than_the_writers_have_is_seen() {
        let named = |of: u32, name, bits| Permissions { named: vec![(name, bits)], ..mode(of) };
        let [alice, bob] = [7, 8].map(Name::User);
        for (ours, file, exceeds) in [
            (mode(0o664), mode(0o664), false),
            (mode(0o664), mode(0o644), true),
            (mode(0o666), mode(0o664), true),
            (mode(0o644), mode(0o600), false), // reading is not writing
            (mode(0o660), named(0o660, alice, 4), true),
            (named(0o660, alice, 4), named(0o660, alice, 4), false),
            (named(0o640, alice, 6), named(0o640, alice, 6), false),
            (named(0o640, alice, 6), named(0o640, alice, 4), true),
            (named(0o640, bob, 6), named(0o640, alice, 6), true),
            (named(0o640, Name::User(1), 6), mode(0o640), false), // the file's owner
            (Permissions { gid: 11, ..mode(0o660) }, mode(0o660), true),
            (Permissions { gid: 11, ..named(0o600, Name::Group(10), 6) }, mode(0o660), false),
            (named(0o660, Name::Group(12), 6), named(0o660, Name::Group(12), 6), false),
            (
                named(0o660, Name::Group(12), 6),
                Permissions { named: vec![(bob, 4), (Name::Group(12), 6)], ..mode(0o660) },
                true, // one of them may only read now
            ),
            (Permissions { gid: 11, ..mode(0o606) }, mode(0o606), true),
            (Permissions { gid: 11, ..named(0o606, Name::Group(10), 0) }, mode(0o606), false),
        ] {
            assert_eq!(ours.exceed_writers_of(&file, WRITE), exceeds, "{ours:?} {file:?}");
        }
        let readers = named(0o600, alice, 4);
        assert!(readers.exceed_writers_of(&mode(0o600), READ_WRITE) && !readers.exceed_writers_of(&mode(0o600), WRITE));
    }
}
