//! Record locks of one file as the kernel keeps them: per owner a sorted list of ranges, in which neighbours of the
//! same kind are merged. Plain data: the caller decides about owners and places.

/// What a lock allows others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Others may lock for reading.
    Read,
    /// Others may not lock.
    Write,
}

/// The owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The process (`F_SETLK`).
    Process,
    /// An open file description (`F_OFD_SETLK`), by a number of its own.
    Description(usize),
}

/// Bytes of a file, including the last one; `i64::MAX` means up to the end, wherever that will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub start: i64,
    /// The last byte.
    pub last: i64,
}

impl Range {
    /// The whole file.
    pub const ALL: Self = Self { start: 0, last: i64::MAX };

    /// From the start and length of a `struct flock` with `SEEK_SET`. `Err`: the kernel's errno.
    pub fn from_flock(start: i64, len: i64) -> Result<Self, i32> {
        if start < 0 {
            return Err(libc::EINVAL);
        }
        match len {
            0 => Ok(Self { start, last: i64::MAX }),
            1.. if len - 1 > i64::MAX - start => Err(libc::EOVERFLOW),
            1.. => Ok(Self { start, last: start + (len - 1) }),
            _ if start.checked_add(len).is_none_or(|first| first < 0) => Err(libc::EINVAL),
            _ => Ok(Self { start: start + len, last: start - 1 }),
        }
    }

    /// The length in a `struct flock`.
    pub fn flock_length(self) -> i64 {
        if self.last == i64::MAX { 0 } else { self.last - self.start + 1 }
    }

    fn meets(self, other: Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }
}

/// One lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Its owner.
    pub owner: Owner,
    /// Its kind.
    pub kind: Kind,
    /// The bytes.
    pub range: Range,
}

/// The record locks of a file.
#[derive(Debug, Default)]
pub(in crate::file) struct Ranges {
    /// By owner, in order of the owners' first locks; each owner's by offset.
    locks: Vec<Lock>,
}

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lock> {
        self.locks.iter()
    }

    pub fn clear(&mut self) {
        self.locks.clear();
    }

    /// Whether the owner has all bytes of `wanted` locked by one lock of its kind.
    #[inline]
    pub fn have(&self, wanted: Lock) -> bool {
        let covers = |lock: &Lock| lock.range.start <= wanted.range.start && wanted.range.last <= lock.range.last;
        self.locks.iter().any(|lock| lock.owner == wanted.owner && lock.kind == wanted.kind && covers(lock))
    }

    /// The first lock of another owner that conflicts with `wanted`.
    #[inline]
    pub fn conflict(&self, wanted: Lock) -> Option<Lock> {
        let excludes = |lock: &&Lock| {
            lock.owner != wanted.owner
                && lock.range.meets(wanted.range)
                && (lock.kind == Kind::Write || wanted.kind == Kind::Write)
        };
        self.locks.iter().find(excludes).copied()
    }

    /// Sets `lock`, which has no conflict: replaces what its owner had there, and merges it with neighbours of its
    /// kind.
    #[inline]
    pub fn set(&mut self, lock: Lock) {
        let mut joined = lock;
        self.replace(lock.owner, lock.range, |old| {
            let touches = old.kind == lock.kind
                && old.range.start <= lock.range.last.saturating_add(1)
                && lock.range.start <= old.range.last.saturating_add(1);
            if touches {
                joined.range.start = joined.range.start.min(old.range.start);
                joined.range.last = joined.range.last.max(old.range.last);
            }
            touches
        });
        let is_before = |old: &Lock| old.owner == lock.owner && old.range.start > joined.range.start;
        let of_owner = self.locks.iter().rposition(|old| old.owner == lock.owner);
        let place = self.locks.iter().position(is_before).or(of_owner.map(|last| last + 1));
        self.locks.insert(place.unwrap_or(self.locks.len()), joined);
    }

    /// Removes the locks of `owner` in `range`.
    #[inline]
    pub fn unset(&mut self, owner: Owner, range: Range) {
        self.replace(owner, range, |_| false);
    }

    /// Removes all locks of `owner`.
    pub fn unset_all(&mut self, owner: Owner) {
        self.locks.retain(|lock| lock.owner != owner);
    }

    /// Cuts `range` out of the owner's locks; those for which `goes` returns true are removed entirely.
    fn replace(&mut self, owner: Owner, range: Range, mut goes: impl FnMut(&Lock) -> bool) {
        let mut at = 0;
        while at < self.locks.len() {
            let old = self.locks[at];
            if old.owner != owner {
                at += 1;
                continue;
            }
            if goes(&old) {
                self.locks.remove(at);
                continue;
            }
            if !old.range.meets(range) {
                at += 1;
                continue;
            }
            let before = (old.range.start < range.start).then(|| Range { last: range.start - 1, ..old.range });
            let after = (old.range.last > range.last).then(|| Range { start: range.last + 1, ..old.range });
            match (before, after) {
                (None, None) => {
                    self.locks.remove(at);
                }
                (Some(left), None) | (None, Some(left)) => {
                    self.locks[at].range = left;
                    at += 1;
                }
                (Some(before), Some(after)) => {
                    self.locks[at].range = before;
                    self.locks.insert(at + 1, Lock { range: after, ..old });
                    at += 2;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Owner = Owner::Process;

    fn lock(kind: Kind, start: i64, last: i64) -> Lock {
        Lock { owner: ME, kind, range: Range { start, last } }
    }

    fn shown(ranges: &Ranges) -> Vec<(Kind, i64, i64)> {
        ranges.iter().map(|lock| (lock.kind, lock.range.start, lock.range.last)).collect()
    }

    #[test]
    fn ranges_split_and_join() {
        let mut ranges = Ranges::default();
        ranges.set(lock(Kind::Read, 0, 9));
        ranges.set(lock(Kind::Read, 20, 29));
        ranges.set(lock(Kind::Read, 10, 19));
        assert_eq!(shown(&ranges), [(Kind::Read, 0, 29)]);
        ranges.set(lock(Kind::Write, 5, 7));
        assert_eq!(shown(&ranges), [(Kind::Read, 0, 4), (Kind::Write, 5, 7), (Kind::Read, 8, 29)]);
        ranges.set(lock(Kind::Read, 5, 7));
        assert_eq!(shown(&ranges), [(Kind::Read, 0, 29)]);
        assert!(ranges.have(lock(Kind::Read, 0, 29)) && ranges.have(lock(Kind::Read, 5, 6)));
        assert!(!ranges.have(lock(Kind::Read, 0, 30)) && !ranges.have(lock(Kind::Write, 5, 6)));
        ranges.unset(ME, Range { start: 1, last: 28 });
        assert_eq!(shown(&ranges), [(Kind::Read, 0, 0), (Kind::Read, 29, 29)]);
        ranges.set(lock(Kind::Write, 0, i64::MAX));
        assert_eq!(shown(&ranges), [(Kind::Write, 0, i64::MAX)]);
        ranges.unset(ME, Range { start: i64::MAX, last: i64::MAX });
        assert_eq!(shown(&ranges), [(Kind::Write, 0, i64::MAX - 1)]);
        ranges.unset(ME, Range::ALL);
        assert!(ranges.is_empty());
    }

    #[test]
    fn owners_keep_each_other_out() {
        let mut ranges = Ranges::default();
        let other = Owner::Description(1);
        ranges.set(lock(Kind::Read, 0, 9));
        ranges.set(lock(Kind::Write, 50, 59));
        let asked = |kind, start, last| Lock { owner: other, kind, range: Range { start, last } };
        assert_eq!(ranges.conflict(asked(Kind::Read, 0, 9)), None);
        assert_eq!(ranges.conflict(asked(Kind::Write, 9, 100)), Some(lock(Kind::Read, 0, 9)));
        assert_eq!(ranges.conflict(asked(Kind::Read, 0, 100)), Some(lock(Kind::Write, 50, 59)));
        assert_eq!(ranges.conflict(lock(Kind::Write, 0, 100)), None);
        ranges.set(asked(Kind::Read, 5, 5));
        ranges.unset_all(ME);
        assert_eq!(shown(&ranges), [(Kind::Read, 5, 5)]);
    }

    #[test]
    fn places_are_those_of_fcntl() {
        let of = |start, len| Range::from_flock(start, len).map(|range| (range.start, range.last));
        assert_eq!(of(5, 0), Ok((5, i64::MAX)));
        assert_eq!(of(5, 1), Ok((5, 5)));
        assert_eq!(of(5, -5), Ok((0, 4)));
        assert_eq!(of(5, -6), Err(libc::EINVAL));
        assert_eq!(of(-1, 5), Err(libc::EINVAL));
        assert_eq!(of(2, i64::MAX), Err(libc::EOVERFLOW));
        assert_eq!(of(1, i64::MAX), Ok((1, i64::MAX)));
        assert_eq!(of(0, i64::MIN), Err(libc::EINVAL));
    }
}
