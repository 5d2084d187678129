//! The files themselves: each step by ordinary calls, so that under Famio the library gets them.

use super::personality::PIECE;
use super::plan::{File as Planned, LOG, Model, Step, size};
use crate::bench::io::content::{Content, stamp_of};
use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Result as IoResult, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The files of one process.
pub struct Files {
    folder: PathBuf,
    content: Content,
    buffer: Vec<u8>,
    worker: u32,
}

pub fn name(number: u64) -> String {
    if number == LOG { "log".into() } else { format!("file-{number}") }
}

impl Files {
    pub fn new(folder: &Path, worker: u32) -> Self {
        Self { folder: folder.into(), content: Content::new(PIECE), buffer: Vec::new(), worker }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(name(number))
    }

    /// The stamp as it is on the medium: no other process writes the same.
    fn stamp(&self, stamp: u64) -> u64 {
        u64::from(self.worker) << 48 | stamp
    }

    fn named<T>(&self, number: u64, done: IoResult<T>) -> Result<T, String> {
        done.map_err(|error| format!("{}: {error}", self.path(number).display()))
    }

    /// Makes all files of a model.
    pub fn make(&mut self, model: &Model) -> Result<(), String> {
        for file in &model.files {
            let made = self.write_new(file, false);
            self.named(file.number, made)?;
        }
        Ok(())
    }

    /// Does what the step says; the model has taken it already.
    pub fn run(&mut self, step: &Step, model: &Model) -> Result<(), String> {
        let file = |number: u64| model.file(number).ok_or_else(|| format!("the model has no {}", name(number)));
        match *step {
            Step::Make { file: number, synced } => {
                let made = self.write_new(file(number)?, synced);
                self.named(number, made)
            }
            Step::Append { file: number, synced } => {
                let done = self.append(file(number)?, synced);
                self.named(number, done)
            }
            Step::ReadAndAppend { file: number } => {
                let done = self.read_and_append(file(number)?);
                self.named(number, done)
            }
            Step::Overwrite { file: number, piece } => {
                let done = self.overwrite(file(number)?, piece);
                self.named(number, done)
            }
            Step::Read { file: number } => {
                let done = self.read(file(number)?);
                self.named(number, done)
            }
            Step::ReadPiece { file: number, piece } => {
                let done = self.read_piece(file(number)?, piece);
                self.named(number, done)
            }
            Step::Look { file: number } => {
                let found = self.path(number).metadata().map(|found| found.len());
                same_size(self.named(number, found)?, size(file(number)?))
            }
            Step::Remove { file: number } => self.named(number, std::fs::remove_file(self.path(number))),
        }
    }

    fn write_new(&mut self, file: &Planned, synced: bool) -> IoResult<()> {
        self.buffer.clear();
        for &stamp in &file.pieces {
            let piece = self.content.piece(self.stamp(stamp));
            self.buffer.extend_from_slice(&piece);
        }
        let mut made = File::create_new(self.path(file.number))?;
        made.write_all(&self.buffer)?;
        if synced { made.sync_all() } else { Ok(()) }
    }

    /// Its last piece.
    fn append(&mut self, file: &Planned, synced: bool) -> IoResult<()> {
        let mut opened = OpenOptions::new().append(true).open(self.path(file.number))?;
        self.append_to(&mut opened, file)?;
        if synced { opened.sync_all() } else { Ok(()) }
    }

    fn append_to(&mut self, opened: &mut File, file: &Planned) -> IoResult<()> {
        let stamp = file.pieces.last().copied().unwrap_or(0);
        let piece = self.content.piece(self.stamp(stamp));
        opened.write_all(&piece)
    }

    fn read_and_append(&mut self, file: &Planned) -> IoResult<()> {
        let mut opened = OpenOptions::new().read(true).append(true).open(self.path(file.number))?;
        let before = Planned { number: file.number, pieces: file.pieces[..file.pieces.len() - 1].to_vec() };
        self.read_from(&mut opened, &before)?;
        self.append_to(&mut opened, file)?;
        opened.sync_all()
    }

    fn overwrite(&mut self, file: &Planned, piece: u64) -> IoResult<()> {
        let opened = OpenOptions::new().write(true).open(self.path(file.number))?;
        let bytes = self.content.piece(self.stamp(file.pieces[piece as usize]));
        opened.write_all_at(&bytes, piece * PIECE)?;
        opened.sync_all()
    }

    fn read(&mut self, file: &Planned) -> IoResult<()> {
        let mut opened = File::open(self.path(file.number))?;
        self.read_from(&mut opened, file)
    }

    /// All of it: each piece has the stamp that it should have.
    fn read_from(&mut self, opened: &mut File, file: &Planned) -> IoResult<()> {
        self.buffer.clear();
        opened.read_to_end(&mut self.buffer)?;
        same_size(self.buffer.len() as u64, size(file)).map_err(Error::other)?;
        let pieces = self.buffer.chunks_exact(PIECE as usize);
        match pieces.zip(&file.pieces).all(|(found, &stamp)| stamp_of(found) == self.stamp(stamp)) {
            true => Ok(()),
            false => Err(Error::other("a piece is not what was written last")),
        }
    }

    fn read_piece(&mut self, file: &Planned, piece: u64) -> IoResult<()> {
        self.buffer.resize(PIECE as usize, 0);
        File::open(self.path(file.number))?.read_exact_at(&mut self.buffer, piece * PIECE)?;
        match stamp_of(&self.buffer) == self.stamp(file.pieces[piece as usize]) {
            true => Ok(()),
            false => Err(Error::other("a piece is not what was written last")),
        }
    }

    /// Every file is there with all its bytes, and no other one.
    pub fn check(&mut self, model: &Model) -> Result<(), String> {
        for file in &model.files {
            let found = self.read(file);
            self.named(file.number, found)?;
            let pieces = self.buffer.chunks_exact(PIECE as usize);
            if let Some(at) = pieces.enumerate().find_map(|(at, piece)| (!self.content.is_whole(piece)).then_some(at)) {
                return Err(format!("{}: piece {at} is not of one write", self.path(file.number).display()));
            }
        }
        let entries = std::fs::read_dir(&self.folder).map_err(|error| format!("{}: {error}", self.folder.display()))?;
        let expected: std::collections::HashSet<_> = model.files.iter().map(|file| name(file.number)).collect();
        for entry in entries.flatten().filter(|entry| entry.path().is_file()) {
            if !expected.contains(&*entry.file_name().to_string_lossy()) {
                return Err(format!("{} is there, and should not be", entry.path().display()));
            }
        }
        Ok(())
    }
}

fn same_size(found: u64, expected: u64) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("has {found} bytes, and should have {expected}")) }
}
