//! What a crash left.

use super::names::Names;
use super::object::{Content, ObjectId};
use xxhash_rust::xxh3::Xxh3;

/// What a crash left: the bytes of each object, and the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub(super) objects: Vec<Content>,
    /// Mark and journal; empty if no [`Place`](super::Place) was given.
    pub names: Names,
}

impl Image {
    /// The bytes of an object; for a file, as many as its size. `None`: it was not watched yet.
    pub fn get(&self, object: ObjectId) -> Option<Vec<u8>> {
        self.objects.get(object.0).map(Content::to_vec)
    }

    /// The same, without trailing zeros.
    pub fn content(&self, object: ObjectId) -> Option<&Content> {
        self.objects.get(object.0)
    }

    /// The same with some bits of one byte flipped.
    pub fn with_changed_byte(&self, object: ObjectId, at: usize, change: u8) -> Image {
        let mut image = self.clone();
        if let Some(byte) = image.objects.get_mut(object.0).and_then(|content| content.bytes.get_mut(at)) {
            *byte ^= change;
        }
        image
    }

    /// A hash of what can be reached: the file, its mark, and the names and bytes of its journal and of records.
    pub fn hash(&self, file: ObjectId) -> u128 {
        let mut hash = Xxh3::new();
        let records = self.names.records.values().copied();
        for object in [Some(file), self.names.journal].into_iter().flatten().chain(records) {
            if let Some(content) = self.content(object) {
                let bytes = content.trimmed();
                hash.update(&content.size.to_le_bytes());
                hash.update(&(bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
        }
        let names = [self.names.nameless, self.names.pool.is_some(), self.names.journal.is_some()];
        hash.update(&names.map(u8::from));
        hash.update(self.names.mark.as_deref().unwrap_or(b"none"));
        if self.names.folder.is_some() {
            hash.update(b"folder");
            self.names.records.keys().for_each(|name| hash.update(name.as_bytes()));
        }
        hash.digest128()
    }
}
