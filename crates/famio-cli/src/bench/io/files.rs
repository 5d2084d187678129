//! The files of one side of a comparison. Their content is checked after each measurement.

use super::content::{Content, FIRST, stamp, stamp_of, warm_stamp};
use super::lane::WARM_PASSES;
use super::stream::Stream;
use crate::bench::document::workload::Workload;
use std::fs::File;
use std::io::{Error, Read, Write};
use std::path::{Path, PathBuf};

/// Some files of one size.
pub struct Files {
    paths: Vec<PathBuf>,
    /// For each file and piece, the stamp of the last write.
    stamps: Vec<Vec<u64>>,
    workload: Workload,
    measurements: u32,
}

/// Bytes written or read at once by this module.
const CHUNK: u64 = 1 << 20;

impl Files {
    /// Creates the files of the workload, with data, on the medium; no measurement changes their size.
    pub fn new(folder: &Path, name: &str, size: u64, workload: &Workload) -> Result<Self, String> {
        let units = size / workload.io_size;
        let piece = Content::new(workload.io_size).piece(FIRST);
        let chunk = piece.repeat((CHUNK / workload.io_size).clamp(1, units) as usize);
        let paths: Vec<_> = (0..workload.files()).map(|number| folder.join(format!("{name}-{number}.bench"))).collect();
        for path in &paths {
            fill(path, &chunk, units * workload.io_size).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let stamps = paths.iter().map(|_| vec![FIRST; units as usize]).collect();
        Ok(Self { paths, stamps, workload: *workload, measurements: 0 })
    }

    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Begins a measurement; returns its number.
    pub fn begin(&mut self) -> u32 {
        self.measurements += 1;
        self.measurements
    }

    /// Checks that each piece is complete, and has the last write to it, if each thread has made the given number of
    /// calls.
    pub fn check(&mut self, ops: &[u64]) -> Result<(), String> {
        if !self.workload.writes() {
            return Ok(());
        }
        let content = Content::new(self.workload.io_size);
        for (number, path) in self.paths.iter().enumerate() {
            let stamps = &mut self.stamps[number];
            let units = stamps.len() as u64;
            let on_this_file = |lane: &u32| !self.workload.own_files || *lane as usize == number;
            let lanes = (0..ops.len() as u32).filter(on_this_file);
            let last: Vec<_> =
                lanes.map(|lane| last(&self.workload, units, self.measurements, lane, ops[lane as usize])).collect();
            if !self.workload.cold {
                stamps.fill(warm_stamp(self.measurements, WARM_PASSES));
            }
            check(path, &content, self.workload.io_size as usize, stamps, &last)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn fill(path: &Path, chunk: &[u8], size: u64) -> Result<(), Error> {
    let mut file = File::create_new(path)?;
    let mut left = size;
    while left > 0 {
        let now = left.min(chunk.len() as u64);
        file.write_all(&chunk[..now as usize])?;
        left -= now;
    }
    file.sync_all()
}

/// The stamp of a thread's last write to each piece, 0 if there is none: repeats its calls without executing them.
fn last(workload: &Workload, units: u64, measurement: u32, lane: u32, ops: u64) -> Vec<u64> {
    let mut stream = Stream::new(workload, units, measurement, lane);
    let (mut last, mut writes) = (vec![0; units as usize], 0);
    for _ in 0..ops {
        let op = stream.next();
        if !op.is_read {
            writes += 1;
            last[op.unit as usize] = stamp(measurement, lane, writes);
        }
    }
    last
}

/// Each piece must have the last write of one of the threads or, if none has written it, its former content.
fn check(path: &Path, content: &Content, size: usize, stamps: &mut [u64], last: &[Vec<u64>]) -> Result<(), Error> {
    let mut file = File::open(path)?;
    let mut chunk = vec![0; (CHUNK as usize / size).max(1) * size];
    let mut unit = 0;
    while unit < stamps.len() {
        let now = (stamps.len() - unit).min(chunk.len() / size);
        file.read_exact(&mut chunk[..now * size])?;
        for piece in chunk[..now * size].chunks_exact(size) {
            let found = stamp_of(piece);
            let mut written = last.iter().map(|last| last[unit]).filter(|&stamp| stamp != 0).peekable();
            let expected = if written.peek().is_none() { found == stamps[unit] } else { written.any(|s| s == found) };
            if !expected || !content.is_whole(piece) {
                let (at, what) = (unit * size, if expected { "parts of two writes" } else { "not the last write" });
                return Err(Error::other(format!("wrong contents: {size} bytes at {at} have {what} ({found:#x})")));
            }
            stamps[unit] = found;
            unit += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::lane::{Lane, Until};
    use super::*;
    use crate::bench::clock::now;
    use crate::bench::document::workload::{Pattern, SyncEvery};
    use std::os::unix::fs::FileExt;

    const SIZE: u64 = 1 << 20;

    fn rows() -> Vec<Workload> {
        let write = Workload::write(Pattern::Random, 4096);
        vec![
            write.fsync(3),
            Workload { cold: true, ..write },
            Workload { reads: 50, io_size: 128, ..write },
            Workload { pattern: Pattern::Zipf, io_size: 64, ..write },
            Workload { pattern: Pattern::Same, ..write.fsync(1) },
            Workload { at_position: true, sync: SyncEvery::Pass, ..Workload::write(Pattern::Sequential, 4096) },
            Workload { at_position: true, ..Workload::read(Pattern::Sequential, 4096) },
            Workload { read_only: true, ..Workload::read(Pattern::Random, 128) },
            write.threads(2),
            write.threads(2).own_files(),
        ]
    }

    /// Works as the workers do, one thread after the other.
    fn run(files: &mut Files, workload: &Workload) -> Vec<u64> {
        let measurement = files.begin();
        let mut lanes: Vec<Lane> = (0..workload.lanes())
            .map(|lane| {
                let path = &files.paths()[lane as usize % files.paths().len()];
                let mut lane = Lane::open(path, workload, measurement, lane).unwrap();
                if !workload.cold {
                    lane.warm().unwrap();
                }
                lane
            })
            .collect();
        lanes
            .iter_mut()
            .map(|lane| {
                assert_eq!(lane.run::<false>(Until::Calls(700)).unwrap().calls, 700);
                let phase = lane.run::<true>(Until::Time(now() + 1_000_000)).unwrap();
                assert!(phase.ended > phase.began && phase.calls > 0);
                assert!(lane.times.reads.count() + lane.times.writes.count() > 0);
                lane.ops
            })
            .collect()
    }

    #[test]
    fn every_kind_of_workload_leaves_what_it_wrote() {
        let folder = tempfile::tempdir().unwrap();
        for workload in rows() {
            let mut files = Files::new(folder.path(), "a", SIZE, &workload).unwrap();
            for _ in 0..2 {
                let ops = run(&mut files, &workload);
                files.check(&ops).unwrap_or_else(|error| panic!("{}: {error}", workload.title()));
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn wrong_contents_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let workload = Workload::write(Pattern::Random, 4096);
        let mut files = Files::new(folder.path(), "a", SIZE, &workload).unwrap();
        let ops = run(&mut files, &workload);
        let file = File::options().write(true).open(&files.paths()[0]).unwrap();
        file.write_all_at(b"x", 3 * 4096 + 4000).unwrap();
        assert!(files.check(&ops).unwrap_err().contains("at 12288 have parts of two writes"));
        // A lost write: the last write of a stream with one call less is a different one.
        let ops = run(&mut files, &workload);
        assert!(files.check(&[ops[0] + 1]).unwrap_err().contains("not the last write"));
    }
}
