//! Creates the files, and checks them afterwards.

use super::files::{REPLACED, Way, bytes_of, path};
use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Makes files (run by `famio bench small`)
#[derive(clap::Args)]
pub struct WorkArgs {
    way: Way,
    #[arg(long)]
    files: u32,
    #[arg(long)]
    bytes: usize,
    folder: PathBuf,
}

impl WorkArgs {
    #[cfg(test)]
    pub fn of(way: Way, files: u32, bytes: usize, folder: &Path) -> Self {
        Self { way, files, bytes, folder: folder.into() }
    }
}

/// Prints microseconds per file: the mean, the 99th percentile, and the longest.
pub fn main(args: &WorkArgs) -> Result<(), String> {
    let mut times = make(args).map_err(|error| format!("{}: {error}", args.folder.display()))?;
    let all: f64 = times.iter().sum();
    times.sort_by(f64::total_cmp);
    let (p99, longest) = (times[times.len() * 99 / 100], times[times.len() - 1]);
    println!("{} {p99} {longest}", all / f64::from(args.files));
    Ok(())
}

/// Makes what is there before: with other bytes if they are overwritten.
pub fn prepare(folder: &Path, way: Way, files: u32, len: usize) -> Result<(), Error> {
    let before = |n| match way {
        Way::Close | Way::Sync | Way::Replace => None,
        Way::Overwrite => Some(vec![b'.'; len]),
        Way::Append => Some(bytes_of(n, len)[..len / 2].to_vec()),
        Way::Read | Way::Look => Some(bytes_of(n, len)),
    };
    (0..files).try_for_each(|n| before(n).map_or(Ok(()), |bytes| std::fs::write(path(folder, n), bytes)))
}

/// Creates the files; returns the microseconds of each.
pub fn make(args: &WorkArgs) -> Result<Vec<f64>, Error> {
    let mut times = Vec::with_capacity(args.files as usize);
    for n in 0..args.files {
        let bytes = bytes_of(n, args.bytes);
        let begun = Instant::now();
        make_one(args, n, &bytes)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

fn make_one(args: &WorkArgs, n: u32, bytes: &[u8]) -> Result<(), Error> {
    let path = path(&args.folder, n);
    let is_whole = |len: usize| if len == bytes.len() { Ok(()) } else { Err(Error::other(format!("{len} bytes"))) };
    match args.way {
        Way::Read => return is_whole(File::open(&path)?.read_to_end(&mut Vec::with_capacity(bytes.len() + 1))?),
        Way::Look => return is_whole(path.metadata()?.len() as usize),
        Way::Append => return OpenOptions::new().append(true).open(&path)?.write_all(&bytes[bytes.len() / 2..]),
        Way::Close | Way::Sync | Way::Replace | Way::Overwrite => {}
    }
    let is_new = args.way != Way::Overwrite;
    let mut file = OpenOptions::new().read(true).write(true).create(is_new).truncate(is_new).open(&path)?;
    file.write_all(bytes)?;
    if [Way::Sync, Way::Replace].contains(&args.way) {
        file.sync_all()?;
    }
    drop(file);
    if args.way == Way::Replace {
        std::fs::rename(&path, args.folder.join(REPLACED))?;
        File::open(&args.folder)?.sync_all()?;
    }
    Ok(())
}

/// Checks the files' content, then removes them.
pub fn check(folder: &Path, way: Way, files: u32, len: usize) -> Result<(), Error> {
    let check_one = |path: &Path, n: u32| {
        let found = std::fs::read(path)?;
        std::fs::remove_file(path)?;
        if found == bytes_of(n, len) { Ok(()) } else { Err(Error::other(format!("file {n} has other bytes"))) }
    };
    match way {
        Way::Replace => check_one(&folder.join(REPLACED), files - 1),
        _ => (0..files).try_for_each(|n| check_one(&path(folder, n), n)),
    }
}
