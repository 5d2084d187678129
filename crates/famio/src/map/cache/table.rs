//! Kept values by key and in the order of use: a hash table over slots that form a linked list.

use super::key::Key;
use std::collections::HashMap;

const NONE: usize = usize::MAX;

/// Values with a cost; the least recently used is dropped first.
#[derive(Debug)]
pub(super) struct Table<T> {
    places: Vec<Place<T>>,
    free: Vec<usize>,
    by_key: HashMap<Key, usize>,
    /// The slots used last and first; `NONE` when empty.
    newest: usize,
    oldest: usize,
    bytes: u64,
}

#[derive(Debug)]
struct Place<T> {
    key: Key,
    value: Option<T>,
    bytes: u64,
    newer: usize,
    older: usize,
}

impl<T> Table<T> {
    pub fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), by_key: HashMap::new(), newest: NONE, oldest: NONE, bytes: 0 }
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Adds a value as the newest; returns it if the key is present.
    pub fn add(&mut self, key: Key, value: T, bytes: u64) -> Option<T> {
        if self.by_key.contains_key(&key) {
            return Some(value);
        }
        let place = Place { key, value: Some(value), bytes, newer: NONE, older: self.newest };
        let at = match self.free.pop() {
            Some(at) => {
                self.places[at] = place;
                at
            }
            None => {
                self.places.push(place);
                self.places.len() - 1
            }
        };
        match self.newest {
            NONE => self.oldest = at,
            newest => self.places[newest].newer = at,
        }
        self.newest = at;
        self.bytes += bytes;
        self.by_key.insert(key, at);
        None
    }

    pub fn take(&mut self, key: &Key) -> Option<T> {
        let at = self.by_key.remove(key)?;
        let (newer, older) = (self.places[at].newer, self.places[at].older);
        match newer {
            NONE => self.newest = older,
            newer => self.places[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.places[older].newer = newer,
        }
        self.bytes -= self.places[at].bytes;
        self.free.push(at);
        self.places[at].value.take()
    }

    /// Takes the least recently used value.
    pub fn take_oldest(&mut self) -> Option<T> {
        let key = self.places.get(self.oldest)?.key;
        self.take(&key)
    }

    /// Takes all values that match.
    pub fn take_if(&mut self, mut like: impl FnMut(&Key, &T) -> bool) -> Vec<T> {
        let places = &self.places;
        let likes =
            |(key, &at): (&Key, &usize)| places[at].value.as_ref().is_some_and(|v| like(key, v)).then_some(*key);
        let keys: Vec<Key> = self.by_key.iter().filter_map(likes).collect();
        keys.iter().filter_map(|key| self.take(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64) -> Key {
        Key { device: 1, inode, born: (0, 0), size: 10, writable: false }
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let mut table = Table::new();
        for i in 0..4 {
            assert_eq!(table.add(key(i), i, 10), None);
        }
        assert_eq!(table.take(&key(0)), Some(0));
        assert_eq!(table.add(key(0), 0, 10), None); // used again
        assert_eq!(table.take(&key(2)), Some(2)); // from the middle
        assert_eq!((table.bytes(), table.len()), (30, 3));
        assert_eq!([table.take_oldest(), table.take_oldest(), table.take_oldest()], [Some(1), Some(3), Some(0)]);
        assert_eq!((table.take_oldest(), table.bytes(), table.len()), (None, 0, 0));
        assert_eq!(table.add(key(9), 9, 5), None);
        assert_eq!((table.take_oldest(), table.places.len()), (Some(9), 4), "places are used again");
    }

    #[test]
    fn one_value_a_key_and_another_kind_of_map_is_another_key() {
        let mut table = Table::new();
        assert_eq!(table.add(key(1), 'a', 1), None);
        assert_eq!(table.add(key(1), 'b', 1), Some('b'));
        for other in [
            Key { device: 2, ..key(1) },
            Key { born: (0, 1), ..key(1) },
            Key { size: 11, ..key(1) },
            Key { writable: true, ..key(1) },
        ] {
            assert_eq!(table.take(&other), None);
            assert_eq!(table.add(other, 'c', 1), None);
        }
        assert_eq!(table.take_if(|key, _| key.inode == 1 && key.device == 1).len(), 4);
        assert_eq!(table.bytes(), 1);
    }
}
