//! An open store.

/// What is done with a record, by key and value; whether to go on, where that is asked.
pub type See<'a, T> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<T, String>;

/// An open store.
pub trait Store {
    /// Reads a value; whether it is there.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, String>;
    /// Writes a value, durably.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String>;
    /// Reads at most this many records from this key on; how many there were.
    fn scan(&mut self, key: &[u8], most: u64) -> Result<u64, String>;
    /// All records, each through `see`.
    fn each(&mut self, see: See<'_, ()>) -> Result<(), String>;
}
