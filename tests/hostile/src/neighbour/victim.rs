//! The victim's program: it keeps records in its own files, and knows nothing of Famio.
//!
//! It prints one line per action: `M FILE HASH` (these bytes are about to be synced), `D FILE HASH` (they are), `E
//! KIND DETAIL` (an error that a plain file would not give, or wrong bytes), `T` (it is alive).

use clap::Args;
use famio_test_support::random::Random;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// The victim's options.
#[derive(Args, Clone, Debug)]
pub struct Victim {
    /// Decides what it does
    #[arg(long)]
    pub seed: u64,
    /// What is in its secret files, again and again
    #[arg(long)]
    pub secret: String,
    /// So many rounds; else until its input ends
    #[arg(long)]
    pub rounds: Option<u64>,
    /// Its files: `PATH:MODE:strict` or `PATH:MODE:loose`, the latter where others may write
    pub files: Vec<String>,
}

struct Record {
    path: PathBuf,
    name: String,
    mode: u32,
    strict: bool,
    open: Option<File>,
    /// Its contents; `None`: it must be read first.
    bytes: Option<Vec<u8>>,
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{line}\n").as_bytes());
    let _ = out.flush();
}

impl Record {
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.rsplitn(3, ':');
        let (Some(kind), Some(mode), Some(path)) = (words.next(), words.next(), words.next()) else {
            return Err(format!("{text}: not PATH:MODE:KIND"));
        };
        let path = PathBuf::from(path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mode = u32::from_str_radix(mode, 8).map_err(|error| error.to_string())?;
        Ok(Self { path, name, mode, strict: kind == "strict", open: None, bytes: None })
    }

    /// Reports an error of a call that must not fail.
    fn failed(&mut self, call: &str, error: &std::io::Error) {
        if self.strict {
            let name = crate::program::board::name_of_errno(error.raw_os_error().unwrap_or(0));
            say(&format!("E victim: {call}: {name} {}", self.name));
        }
        self.open = None;
        self.bytes = None;
    }

    fn open(&mut self) -> bool {
        if self.open.is_none() {
            match File::options().read(true).write(true).create(true).mode(self.mode).open(&self.path) {
                Ok(file) => self.open = Some(file),
                Err(error) => self.failed("open", &error),
            }
        }
        self.open.is_some()
    }

    /// Checks that all of it is as it was written.
    fn read(&mut self) {
        let Some(file) = &self.open else { return };
        let mut bytes = Vec::new();
        let length = match file.metadata() {
            Ok(stat) => stat.len() as usize,
            Err(error) => return self.failed("fstat", &error),
        };
        bytes.resize(length.min(1 << 22), 0);
        match file.read_at(&mut bytes, 0) {
            Ok(count) => bytes.truncate(count),
            Err(error) => return self.failed("pread", &error),
        }
        if let (Some(wanted), true) = (&self.bytes, self.strict)
            && *wanted != bytes
        {
            let at = wanted.iter().zip(&bytes).position(|(a, b)| a != b).unwrap_or(wanted.len().min(bytes.len()));
            let what = String::from_utf8_lossy(&bytes[at.min(bytes.len())..bytes.len().min(at + 24)]).into_owned();
            say(&format!(
                "E victim: reads other bytes than it wrote {}: {} bytes, {} expected, from {at} on {what:?}",
                self.name,
                bytes.len(),
                wanted.len()
            ));
        }
        self.bytes = Some(bytes);
    }

    fn write(&mut self, random: &mut Random, secret: &str) {
        let (Some(file), Some(bytes)) = (&self.open, &mut self.bytes) else { return };
        let at = random.below(60_000) as usize;
        let length = 1 + random.below(9000) as usize;
        let word = if self.mode & 0o077 == 0 { secret } else { "record" };
        let text: Vec<u8> = format!("[{word} {}]", random.next_u64()).bytes().cycle().take(length).collect();
        if random.below(12) == 0 {
            let result = file.set_len(at as u64);
            bytes.resize(at, 0);
            if let Err(error) = result {
                self.failed("ftruncate", &error);
            }
            return;
        }
        let result = file.write_all_at(&text, at as u64);
        if bytes.len() < at + length {
            bytes.resize(at + length, 0);
        }
        bytes[at..at + length].copy_from_slice(&text);
        if let Err(error) = result {
            self.failed("pwrite", &error);
        }
    }

    fn sync(&mut self, close: bool) {
        let (Some(file), Some(bytes)) = (&self.open, &self.bytes) else { return };
        let hash = xxh3_64(bytes);
        let strict = self.strict;
        if strict {
            say(&format!("M {} {hash:x}", self.name));
        }
        let result = file.sync_all();
        if let Err(error) = result {
            return self.failed("fsync", &error);
        }
        if strict {
            say(&format!("D {} {hash:x}", self.name));
        }
        if close && let Some(file) = self.open.take() {
            use std::os::fd::IntoRawFd;
            // SAFETY: the descriptor was the file's, which has given it away.
            if unsafe { libc::close(file.into_raw_fd()) } < 0 {
                self.failed("close", &std::io::Error::last_os_error());
            }
        }
    }
}

/// Makes rounds until its input ends.
pub fn run(victim: &Victim) -> Result<bool, String> {
    let mut records = victim.files.iter().map(|text| Record::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let mut random = Random::new(victim.seed);
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut allowed = BTreeMap::<String, Vec<String>>::new();
    // First the possible contents of each file: `FILE HASH HASH…`, then an empty line.
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("stdin: {error}"))?;
        if line.is_empty() {
            break;
        }
        let mut words = line.split(' ').map(str::to_owned);
        allowed.insert(words.next().unwrap_or_default(), words.collect());
    }
    if victim.rounds.is_none() {
        let over = over.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().lock().lines().count();
            over.store(true, std::sync::atomic::Ordering::SeqCst);
        });
    }
    for record in &mut records {
        let Some(hashes) = allowed.get(&record.name) else { continue };
        if record.open() {
            record.read();
        }
        let Some(bytes) = &record.bytes else { continue };
        let hash = format!("{:x}", xxh3_64(bytes));
        if record.strict && !hashes.contains(&hash) {
            let (name, length) = (&record.name, bytes.len());
            say(&format!(
                "E victim: after a kill a file is not as at a SYNC {name}: {length} bytes, {hash} of {hashes:?}"
            ));
        }
        if record.strict {
            say(&format!("D {} {hash}", record.name));
        }
    }
    let mut round = 0;
    while !over.load(std::sync::atomic::Ordering::SeqCst) && victim.rounds.is_none_or(|rounds| round < rounds) {
        round += 1;
        let at = random.below(records.len() as u64) as usize;
        let record = &mut records[at];
        if !record.open() {
            say("T");
            continue;
        }
        record.read();
        for _ in 0..1 + random.below(4) {
            record.write(&mut random, &victim.secret);
        }
        if random.below(2) == 0 {
            record.read();
        }
        record.sync(random.below(3) == 0);
        if random.below(24) == 0 && record.open.is_none() && record.bytes.is_some() {
            // Replaces it by a new file, perhaps with another one's former inode number.
            if record.strict {
                say(&format!("M {} {:x}", record.name, xxh3_64(&[])));
            }
            if let Err(error) = std::fs::remove_file(&record.path) {
                record.failed("unlink", &error);
            } else if record.strict {
                say(&format!("D {} {:x}", record.name, xxh3_64(&[])));
            }
            record.bytes = None;
        }
        say("T");
    }
    for record in &mut records {
        record.sync(true);
    }
    say("end");
    Ok(true)
}

/// Leaves the state after a crash: a journal with a commit, and later writes.
pub fn crash(file: &Path) -> Result<bool, String> {
    let failed = |error| format!("{}: {error}", file.display());
    let open = File::options().read(true).write(true).create(true).truncate(false).open(file).map_err(failed)?;
    open.write_all_at(&[b'a'; 20_000], 0).map_err(failed)?;
    open.sync_all().map_err(failed)?;
    open.write_all_at(&[b'b'; 9_000], 5000).map_err(failed)?;
    open.sync_all().map_err(failed)?;
    open.write_all_at(&[b'c'; 7_000], 1000).map_err(failed)?;
    // SAFETY: no pointers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    Ok(true)
}

/// Keeps a file open for reading until it is killed, or its input ends.
pub fn hold(file: &Path) -> Result<bool, String> {
    use std::os::fd::AsRawFd;
    let failed = |error| format!("{}: {error}", file.display());
    let open = File::open(file).map_err(failed)?;
    let mut bytes = [0; 4096];
    // SAFETY: a map of an open file, which is only made.
    unsafe {
        libc::mmap(std::ptr::null_mut(), 65536, libc::PROT_READ, libc::MAP_SHARED, open.as_raw_fd(), 0);
    }
    for round in 0..200 {
        let _ = open.read_at(&mut bytes, round % 16 * 4096).map_err(failed)?;
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Ok(true)
}
