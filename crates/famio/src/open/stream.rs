//! An atomic file as a stream: `std::io`'s traits, at a position that the value has for itself.

use super::AtomicFile;
use core::sync::atomic::Ordering;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};

impl AtomicFile {
    /// Moves the position by `len` bytes; returns where it was. Two threads get different ranges.
    fn advance(&self, len: usize) -> u64 {
        self.position.fetch_add(len as u64, Ordering::Relaxed)
    }
}

/// Reads at the position, and moves it; errors are those of [`read_at`](AtomicFile::read_at). Threads that share the
/// value share the position: they should use `read_at`.
impl Read for &AtomicFile {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let at = self.position.load(Ordering::Relaxed);
        let done = self.read_at(bytes, at)?;
        self.advance(done);
        Ok(done)
    }
}

/// Writes all bytes at the position, and moves it; part of the open epoch. Errors are those of
/// [`write_at`](AtomicFile::write_at). `flush` does nothing, as for `std::fs::File`: [`sync`](AtomicFile::sync) makes
/// writes durable.
impl Write for &AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.write_at(bytes, self.position.load(Ordering::Relaxed))?;
        self.advance(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Moves the position. A position beyond the end of the file is allowed; one before its beginning is `InvalidInput`.
impl Seek for &AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::End(by) => (self.len(), by),
            SeekFrom::Current(by) => (self.position.load(Ordering::Relaxed), by),
        };
        let at = base.checked_add_signed(by).ok_or(Error::from(ErrorKind::InvalidInput))?;
        self.position.store(at, Ordering::Relaxed);
        Ok(at)
    }
}

/// As for `&AtomicFile`.
impl Read for AtomicFile {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        (&*self).read(bytes)
    }
}

/// As for `&AtomicFile`.
impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// As for `&AtomicFile`.
impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        (&*self).seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, BufWriter};

    #[test]
    fn it_is_a_stream_like_any_other() {
        let path = format!("/dev/shm/famio-stream-{}", std::process::id());
        let mut file = AtomicFile::options().create(true).open(&path).unwrap();
        let mut out = BufWriter::new(&file);
        for number in 0..3000 {
            writeln!(out, "line {number}").unwrap();
        }
        drop(out);
        file.sync().unwrap();
        assert_eq!(file.stream_position().unwrap(), file.len());
        file.rewind().unwrap();
        let lines: Vec<String> = BufReader::new(&file).lines().map(Result::unwrap).collect();
        assert_eq!((lines.len(), lines[2999].as_str()), (3000, "line 2999"));
        assert_eq!(file.seek(SeekFrom::End(-5)).unwrap(), file.len() - 5);
        let mut five = [0; 5];
        file.read_exact(&mut five).unwrap();
        assert_eq!(&five, b"2999\n");
        assert_eq!(file.read(&mut five).unwrap(), 0);
        assert_eq!(file.seek(SeekFrom::Current(-1_000_000)).unwrap_err().kind(), ErrorKind::InvalidInput);
        let end = std::io::Error::from(file.read_exact_at(&mut five, file.len()).unwrap_err());
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
        file.close().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
