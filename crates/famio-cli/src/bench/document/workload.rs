//! What is done to a file: one row of a table.

use super::words::bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A mix of file calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    pub pattern: Pattern,
    /// Bytes of a call.
    pub io_size: u64,
    /// How many of 100 calls read; the others write.
    pub reads: u32,
    pub sync: SyncEvery,
    /// Of each process.
    pub threads: u32,
    pub processes: u32,
    /// Each thread has a file of its own; otherwise all share one.
    pub own_files: bool,
    /// Uses `read` and `write` at the descriptor's position, instead of `pread` and `pwrite`.
    pub at_position: bool,
    /// Each process runs in a container of its own: namespaces of users, processes, mounts and System V objects.
    #[serde(default)]
    pub in_containers: bool,
    /// Opened for reading only; otherwise for both, as by databases.
    #[serde(default)]
    pub read_only: bool,
    /// Measured from a process's first call on.
    pub cold: bool,
}

/// Which part of the file comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// From front to back, again and again
    Sequential,
    /// Each place as likely as any other
    Random,
    /// By Zipf's law: few places often, many seldom
    Zipf,
    /// The first place, again and again
    Same,
}

/// When `fsync` is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncEvery {
    Never,
    /// At the end of the file.
    Pass,
    /// After this many writes of a thread.
    Writes(u32),
}

impl FromStr for SyncEvery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("never", _) => Ok(Self::Never),
            ("pass", _) => Ok(Self::Pass),
            (_, Ok(0)) | (_, Err(_)) => Err("neither a number of writes above 0, nor 'never', nor 'pass'".into()),
            (_, Ok(writes)) => Ok(Self::Writes(writes)),
        }
    }
}

impl Workload {
    pub const fn new(pattern: Pattern, io_size: u64, reads: u32) -> Self {
        Self {
            pattern,
            io_size,
            reads,
            sync: SyncEvery::Never,
            threads: 1,
            processes: 1,
            own_files: false,
            at_position: false,
            in_containers: false,
            read_only: false,
            cold: false,
        }
    }

    pub const fn read(pattern: Pattern, io_size: u64) -> Self {
        Self::new(pattern, io_size, 100)
    }

    pub const fn write(pattern: Pattern, io_size: u64) -> Self {
        Self::new(pattern, io_size, 0)
    }

    /// With an `fsync` after every `writes` writes.
    pub const fn fsync(self, writes: u32) -> Self {
        Self { sync: SyncEvery::Writes(writes), ..self }
    }

    pub const fn threads(self, threads: u32) -> Self {
        Self { threads, ..self }
    }

    pub const fn own_files(self) -> Self {
        Self { own_files: true, ..self }
    }

    /// Threads of all processes.
    pub fn lanes(&self) -> u32 {
        self.threads * self.processes
    }

    pub fn files(&self) -> u32 {
        if self.own_files { self.lanes() } else { 1 }
    }

    pub fn writes(&self) -> bool {
        self.reads < 100
    }

    /// Size of each file, for a total of `together` bytes.
    pub fn file_size(&self, together: u64) -> u64 {
        together / u64::from(self.files())
    }

    /// Why it cannot be run on files with this total size.
    pub fn check(&self, file_size: u64) -> Result<(), String> {
        let (size, lanes) = (self.io_size, u64::from(self.lanes()));
        if !(64..=2 << 20).contains(&size) || !size.is_multiple_of(64) {
            return Err(format!("--io-size: {size} is not a multiple of 64 from 64 to 2 MiB"));
        }
        if self.reads > 100 {
            return Err(format!("--reads: {} is more than 100 percent", self.reads));
        }
        if file_size / size < lanes {
            let needed = bytes(size * lanes);
            return Err(format!("--size: a file of {} is too small, this needs {needed}", bytes(file_size)));
        }
        if self.at_position && matches!(self.pattern, Pattern::Random | Pattern::Zipf) {
            return Err("--at-position: only with the patterns sequential and same".into());
        }
        if self.at_position && self.lanes() > 1 && !self.own_files {
            return Err("--at-position: threads need files of their own (--own-files)".into());
        }
        if self.read_only && self.writes() {
            return Err("--read-only: needs --reads 100".into());
        }
        if self.lanes() > MOST_LANES {
            return Err(format!("--threads, --processes: more than {MOST_LANES} threads in all"));
        }
        if self.sync == SyncEvery::Pass && self.pattern != Pattern::Sequential {
            return Err("--sync pass: only with the pattern sequential".into());
        }
        Ok(())
    }

    /// Its title in tables.
    pub fn title(&self) -> String {
        let call = match (self.reads, self.at_position) {
            (100, false) => "pread",
            (100, true) => "read",
            (0, false) => "pwrite",
            (0, true) => "write",
            _ => "",
        };
        let mut words = match self.pattern {
            Pattern::Sequential => "sequential ",
            Pattern::Random => "random ",
            Pattern::Zipf => "Zipf ",
            Pattern::Same => "",
        }
        .to_string();
        words += &format!("{} {call}", bytes(self.io_size));
        if call.is_empty() {
            words += &format!("with {} % reads", self.reads);
        }
        if self.pattern == Pattern::Same {
            words += ", always the same place";
        }
        if self.read_only {
            words += ", opened for reading only";
        }
        match self.sync {
            SyncEvery::Never | SyncEvery::Pass => {}
            SyncEvery::Writes(1) => words += ", each with fsync",
            SyncEvery::Writes(count) => words += &format!(", fsync every {count}"),
        }
        let place = if self.own_files { "files of their own" } else { "one file" };
        match (self.threads, self.processes) {
            (1, 1) => {}
            (threads, 1) => words += &format!(", {threads} threads on {place}"),
            (1, processes) => words += &format!(", {processes} processes on {place}"),
            (threads, processes) => words += &format!(", {processes} processes of {threads} threads on {place}"),
        }
        if self.in_containers {
            words += ", in containers";
        }
        words
    }
}

/// Data written has 8 bits for the thread's number, and one number is reserved.
const MOST_LANES: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_say_what_is_done() {
        let title = |workload: Workload| workload.title();
        assert_eq!(title(Workload::read(Pattern::Sequential, 128)), "sequential 128 B pread");
        assert_eq!(
            title(Workload::write(Pattern::Random, 4096).fsync(10).threads(2).own_files()),
            "random 4 KiB pwrite, fsync every 10, 2 threads on files of their own"
        );
        assert_eq!(title(Workload::new(Pattern::Zipf, 2 << 20, 50)), "Zipf 2 MiB with 50 % reads");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = Workload::write(Pattern::Random, 4096);
        assert!(good.check(1 << 20).is_ok());
        for bad in [
            Workload { io_size: 100, ..good },
            Workload { io_size: 4 << 20, ..good },
            Workload { reads: 101, ..good },
            Workload { at_position: true, ..good },
            Workload { read_only: true, ..good },
            Workload { sync: SyncEvery::Pass, ..good },
            Workload { threads: 129, ..good },
        ] {
            assert!(bad.check(1 << 30).is_err(), "{bad:?}");
        }
        assert!(good.threads(2).check(4096).is_err() && good.threads(2).own_files().check(8192).is_ok());
        assert_eq!("10".parse(), Ok(SyncEvery::Writes(10)));
        assert_eq!("never".parse(), Ok(SyncEvery::Never));
        assert!("0".parse::<SyncEvery>().is_err() && "x".parse::<SyncEvery>().is_err());
    }
}
