//! Key-value stores of others. A change is durable when it returns; how that is done is what the figures compare.

mod kyoto;
mod lmdb;
mod opened;

pub use opened::Store;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A store, and how it makes a change durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Kyoto Cabinet's hash file.
    Hash { hard: bool },
    /// Kyoto Cabinet's tree file.
    Tree { hard: bool },
    /// LMDB, which needs no journal: it never overwrites what is committed.
    Lmdb,
}

impl Engine {
    /// A name that is the same for all that make the same files.
    pub fn files(self) -> &'static str {
        match self {
            Engine::Hash { .. } => "hash",
            Engine::Tree { .. } => "tree",
            Engine::Lmdb => "lmdb",
        }
    }

    /// Whether keys have an order to read them in.
    pub fn has_order(self) -> bool {
        !matches!(self, Engine::Hash { .. })
    }

    /// `Kyoto Cabinet 1.2.79`. The error says what has to be installed.
    pub fn version(self) -> Result<String, String> {
        match self {
            Engine::Hash { .. } | Engine::Tree { .. } => kyoto::version(),
            Engine::Lmdb => lmdb::version(),
        }
    }

    /// Opens it, or makes it, for this many bytes of records.
    pub fn open(self, folder: &Path, bytes: u64) -> Result<Box<dyn Store>, String> {
        match self {
            Engine::Hash { hard } => kyoto::Kyoto::open(&folder.join("data.kch"), kyoto::commit(hard)),
            Engine::Tree { hard } => kyoto::Kyoto::open(&folder.join("data.kct"), kyoto::commit(hard)),
            Engine::Lmdb => lmdb::Lmdb::open(&folder.join("data.mdb"), bytes, true),
        }
    }

    /// Makes it with these records, with a sync at the end only.
    pub fn fill(
        self,
        folder: &Path,
        records: impl Iterator<Item = ([u8; 8], Vec<u8>)>,
        bytes: u64,
    ) -> Result<(), String> {
        let mut store = match self {
            Engine::Hash { .. } => kyoto::Kyoto::open(&folder.join("data.kch"), kyoto::Commit::Never)?,
            Engine::Tree { .. } => kyoto::Kyoto::open(&folder.join("data.kct"), kyoto::Commit::Never)?,
            Engine::Lmdb => lmdb::Lmdb::open(&folder.join("data.mdb"), bytes, false)?,
        };
        for (key, value) in records {
            store.put(&key, &value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_keeps_what_is_put() {
        for engine in [
            Engine::Hash { hard: true },
            Engine::Hash { hard: false },
            Engine::Tree { hard: true },
            Engine::Tree { hard: false },
            Engine::Lmdb,
        ] {
            if let Err(missing) = engine.version() {
                eprintln!("skipped: {missing}");
                continue;
            }
            let folder = tempfile::tempdir_in("/dev/shm").unwrap();
            let records = (0..100u64).map(|number| (number.to_be_bytes(), vec![number as u8; 1024]));
            engine.fill(folder.path(), records, 1 << 20).unwrap();
            let mut store = engine.open(folder.path(), 1 << 20).unwrap();
            store.put(&7u64.to_be_bytes(), b"new").unwrap();
            store.put(&200u64.to_be_bytes(), b"more").unwrap();
            drop(store);
            let mut store = engine.open(folder.path(), 1 << 20).unwrap();
            let mut value = Vec::new();
            assert!(store.get(&7u64.to_be_bytes(), &mut value).unwrap() && value == b"new", "{engine:?}");
            assert!(store.get(&8u64.to_be_bytes(), &mut value).unwrap() && value == [8; 1024], "{engine:?}");
            assert!(!store.get(&150u64.to_be_bytes(), &mut value).unwrap(), "{engine:?}");
            if engine.has_order() {
                assert_eq!(store.scan(&95u64.to_be_bytes(), 3).unwrap(), 3);
                assert_eq!(store.scan(&98u64.to_be_bytes(), 10).unwrap(), 3, "{engine:?}");
            }
            let mut seen = 0;
            store
                .each(&mut |_, _| {
                    seen += 1;
                    Ok(())
                })
                .unwrap();
            assert_eq!(seen, 101, "{engine:?}");
        }
    }
}
