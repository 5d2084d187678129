//! What is recorded: files and pieces of memory.

/// A watched object: a file, including its mappings, or a piece of memory. Numbered in order of appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub usize);

/// The bytes of an object: zeros from the end of `bytes` to `size`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Content {
    /// What it begins with.
    pub bytes: Vec<u8>,
    /// How long it is.
    pub size: u64,
}

impl Content {
    /// The bytes, without zeros at the end.
    pub fn trimmed(&self) -> &[u8] {
        let bytes = &self.bytes[..self.bytes.len().min(self.size as usize)];
        &bytes[..bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)]
    }

    /// All its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = self.trimmed().to_vec();
        all.resize(self.size as usize, 0);
        all
    }
}
