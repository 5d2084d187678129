//! Writes stamped epochs to one file endlessly, and reports acknowledged ones.

use crate::cache::{Cache, Lose};
use crate::options::Broken;
use crate::{names, stamped};
use famio::file::{Access, AtomicFile, UserBuf};
use famio::pmem::stand_in;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

/// What to write.
#[derive(clap::Args)]
pub struct Args {
    /// The file
    name: String,
    /// The epoch that it is at
    from: u64,
    /// Operations of the medium until the power is cut; 0: never
    cut_after: u64,
    lose: Lose,
    seed: u64,
    #[arg(long)]
    broken: Option<Broken>,
}

/// Does not end by itself.
pub fn main(args: &Args) -> Result<(), String> {
    if args.cut_after > 0 || args.broken.is_some() {
        stand_in(Some(Cache::new(names::domain(&args.name), args.cut_after, args.lose, args.seed, args.broken)?));
    }
    let path = names::file(&args.name);
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::options().read(true).write(true).open(&path).map_err(|error| failed(&error))?;
    let name = CString::new(path.to_string_lossy().as_bytes()).map_err(|error| failed(&error))?;
    let settings = names::settings(&args.name);
    let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &settings).map_err(|error| failed(&error))?;
    for epoch in args.from + 1.. {
        for op in stamped::ops(epoch) {
            match op {
                stamped::Op::Size(size) => atomic.set_size(size).map_err(|error| failed(&error))?,
                stamped::Op::Write(at, mut bytes) => {
                    let buffer = [UserBuf { base: bytes.as_mut_ptr(), len: bytes.len() }];
                    // SAFETY: a live buffer.
                    unsafe { atomic.write(at, &buffer) }.map_err(|error| failed(&error))?;
                }
            }
        }
        atomic.sync().map_err(|error| failed(&error))?;
        // The host has received it when the call returns.
        let line = format!("ack {} {epoch}\n", args.name);
        std::io::stdout().write_all(line.as_bytes()).map_err(|error| failed(&error))?;
    }
    Ok(())
}
