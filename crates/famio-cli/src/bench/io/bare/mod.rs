//! What the papers compare with: stores through a map, alone and by the ways to make them atomic that came before. Each
//! writes what such a protocol writes and flushes, in its order, for one thread; none of them has a recovery. And the
//! system call that does nothing.

mod fine_log;
mod map;
mod page_copy;

use fine_log::FineLog;
use map::Map;
use page_copy::PageCopy;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Error;
use std::path::Path;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bare {
    /// A system call that does nothing, in the place of each call.
    SystemCall,
    /// A copy into the map or out of it: neither durable nor atomic.
    Copy,
    /// The same with write-backs, and a fence for each fsync: durable, not atomic.
    Durable,
    /// Pages are copied, changed, and then exchanged.
    PageCopy,
    /// A redo log of exactly the bytes that are written.
    FineLog,
}

impl Bare {
    pub fn title(self) -> &'static str {
        match self {
            Bare::SystemCall => "empty system call",
            Bare::Copy => "copy",
            Bare::Durable => "copy, written back",
            Bare::PageCopy => "page copy-on-write",
            Bare::FineLog => "fine-grained log",
        }
    }

    /// Whether the file has what was written.
    pub fn writes(self) -> bool {
        self != Bare::SystemCall
    }
}

/// A file that is worked on without calls.
pub enum Baseline {
    SystemCall,
    Copy(Map),
    Durable(Map),
    PageCopy(PageCopy),
    FineLog(FineLog),
}

impl Baseline {
    /// Maps the file. `beside`: what else the protocol needs goes to files whose names begin so; they have no names
    /// when this returns.
    pub fn open(bare: Bare, file: &File, beside: &Path) -> Result<Self, Error> {
        Ok(match bare {
            Bare::SystemCall => Baseline::SystemCall,
            Bare::Copy => Baseline::Copy(Map::of(file)?),
            Bare::Durable => Baseline::Durable(Map::of(file)?),
            Bare::PageCopy => Baseline::PageCopy(PageCopy::new(Map::of(file)?, beside)?),
            Bare::FineLog => Baseline::FineLog(FineLog::new(Map::of(file)?, beside)?),
        })
    }

    #[inline]
    pub fn read(&mut self, at: usize, to: &mut [u8]) {
        match self {
            Baseline::SystemCall => nothing(),
            Baseline::Copy(map) | Baseline::Durable(map) => map.read(at, to),
            Baseline::PageCopy(pages) => pages.read(at, to),
            Baseline::FineLog(log) => log.read(at, to),
        }
    }

    #[inline]
    pub fn write(&mut self, at: usize, from: &[u8]) {
        match self {
            Baseline::SystemCall => nothing(),
            Baseline::Copy(map) => map.write(at, from),
            Baseline::Durable(map) => {
                map.write(at, from);
                map.write_back(at, from.len());
            }
            Baseline::PageCopy(pages) => pages.write(at, from),
            Baseline::FineLog(log) => log.write(at, from),
        }
    }

    #[inline]
    pub fn sync(&mut self) {
        match self {
            Baseline::SystemCall => nothing(),
            Baseline::Copy(_) => {}
            Baseline::Durable(_) => map::fence(),
            Baseline::PageCopy(pages) => pages.sync(),
            Baseline::FineLog(log) => log.sync(),
        }
    }

    /// Bytes of the lines that were written back until now. `None`: nothing is.
    pub fn to_medium(&self) -> Option<u64> {
        match self {
            Baseline::SystemCall | Baseline::Copy(_) => None,
            Baseline::Durable(map) => Some(map.written_back()),
            Baseline::PageCopy(pages) => Some(pages.written_back()),
            Baseline::FineLog(log) => Some(log.written_back()),
        }
    }

    /// Leaves the file as a file: what lies elsewhere comes home.
    pub fn finish(&mut self) {
        self.sync();
        if let Baseline::PageCopy(pages) = self {
            pages.bring_home();
        }
    }
}

#[inline]
fn nothing() {
    // SAFETY: touches no memory.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_baseline_reads_what_it_wrote_and_leaves_it_in_the_file() {
        const SIZE: usize = 1 << 20;
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        for bare in [Bare::Copy, Bare::Durable, Bare::PageCopy, Bare::FineLog] {
            let path = folder.path().join(bare.title().replace([' ', ','], "-"));
            std::fs::write(&path, vec![1; SIZE]).unwrap();
            let file = File::options().read(true).write(true).open(&path).unwrap();
            let mut baseline = Baseline::open(bare, &file, &path).unwrap();
            let mut expected = vec![1; SIZE];
            let mut random = fastrand::Rng::with_seed(3);
            for size in [64, 512, 4096, 16384] {
                for number in 0..2000 {
                    let at = random.usize(..SIZE / size) * size;
                    if number % 3 == 0 {
                        let mut read = vec![0; size];
                        baseline.read(at, &mut read);
                        assert_eq!(read, expected[at..at + size], "{bare:?}, {size} at {at}");
                    } else {
                        let mut piece = vec![0; size];
                        random.fill(&mut piece);
                        baseline.write(at, &piece);
                        expected[at..at + size].copy_from_slice(&piece);
                    }
                    if number % 50 == 0 {
                        baseline.sync();
                    }
                }
                baseline.sync();
            }
            let written = baseline.to_medium();
            assert_eq!(written.is_some(), bare != Bare::Copy);
            baseline.finish();
            assert!(std::fs::read(&path).unwrap() == expected, "{bare:?}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn bytes_to_the_medium_are_those_of_the_protocol() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let written = |bare| {
            let mut baseline = Baseline::open(bare, &file, &path).unwrap();
            for number in 0..16 {
                baseline.write(number * 8192, &[7; 64]);
                baseline.sync();
            }
            baseline.to_medium().unwrap() / 16
        };
        assert_eq!(written(Bare::Durable), 64);
        // A page, the line of its entry, and the commit's lines.
        assert!((4096 + 64..4096 + 512).contains(&written(Bare::PageCopy)));
        // The bytes twice, with a head and a commit.
        assert!((3 * 64..=5 * 64).contains(&written(Bare::FineLog)));
    }
}
