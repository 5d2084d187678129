//! A transaction on an atomic file.

use crate::file::File;
use crate::os_error;
use famio::{AtomicFile, Tx};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A transaction not committed yet; `None` afterwards.
#[pyclass(module = "famio._famio", frozen)]
pub struct Transaction(Mutex<Option<Open>>);

/// Fields are dropped in this order: the transaction before its files, the first of which has begun it.
struct Open {
    tx: Tx<'static>,
    files: Vec<Arc<AtomicFile>>,
}

impl Open {
    fn new(file: Arc<AtomicFile>, check: bool, sync: bool, timeout: Option<Duration>) -> famio::Result<Self> {
        let tx = file.transaction()?;
        // SAFETY: it borrows the file, which does not move in its `Arc`, and which `Open` keeps until `tx` is
        // dropped.
        let mut tx = unsafe { core::mem::transmute::<Tx<'_>, Tx<'static>>(tx) };
        tx.set_time_limit(timeout);
        if !sync {
            tx.no_sync();
        }
        if check {
            tx.check()?;
        }
        Ok(Self { tx, files: vec![file] })
    }

    fn of(&mut self, file: usize) -> famio::TxFile<'_> {
        self.tx.on(&self.files[file])
    }

    /// Returns the file's number from now on.
    fn join(&mut self, file: Arc<AtomicFile>) -> famio::Result<usize> {
        self.tx.join(&file)?;
        self.files.push(file);
        Ok(self.files.len() - 1)
    }

    fn end(self, how: impl FnOnce(Tx<'static>) -> famio::Result<()>) -> famio::Result<()> {
        let mut ended = how(self.tx);
        for file in self.files {
            // The program may have closed it meanwhile.
            ended = ended.and(Arc::into_inner(file).map_or(Ok(()), AtomicFile::close));
        }
        ended
    }
}

impl Transaction {
    pub fn new(file: Arc<AtomicFile>, check: bool, sync: bool, timeout: Option<Duration>) -> famio::Result<Self> {
        Ok(Self(Mutex::new(Some(Open::new(file, check, sync, timeout)?))))
    }

    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Open) -> famio::Result<T> + Send) -> PyResult<T> {
        py.detach(|| {
            let mut open = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            open.as_mut().map(work)
        })
        .ok_or_else(ended)?
        .map_err(|error| os_error(&error))
    }

    fn take(&self) -> Option<Open> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }
}

fn ended() -> PyErr {
    PyValueError::new_err("the transaction has ended")
}

#[pymethods]
impl Transaction {
    /// Adds a file; returns its number for the other calls.
    fn join(&self, py: Python<'_>, file: &File) -> PyResult<usize> {
        let file = file.get()?;
        self.with(py, |open| open.join(file))
    }

    /// Reads `length` bytes, fewer at the end of the file.
    #[pyo3(signature = (length, offset, file=0))]
    fn read<'py>(&self, py: Python<'py>, length: usize, offset: u64, file: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, |open| {
            let mut part = open.of(file);
            let there = part.len()?.saturating_sub(offset).min(length as u64) as usize;
            let mut bytes = vec![0; there];
            let done = part.read_at(&mut bytes, offset)?;
            bytes.truncate(done);
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes all of a buffer at an offset, at the commit.
    #[pyo3(signature = (buffer, offset, file=0))]
    fn write(&self, py: Python<'_>, buffer: PyBuffer<u8>, offset: u64, file: usize) -> PyResult<usize> {
        let bytes = buffer.to_vec(py)?;
        self.with(py, |open| open.of(file).write_at(&bytes, offset).map(|()| bytes.len()))
    }

    /// Size of the file, including the transaction's own changes.
    #[pyo3(signature = (file=0))]
    fn size(&self, py: Python<'_>, file: usize) -> PyResult<u64> {
        self.with(py, |open| open.of(file).len())
    }

    /// Sets the size, at the commit.
    #[pyo3(signature = (size, file=0))]
    fn set_size(&self, py: Python<'_>, size: u64, file: usize) -> PyResult<()> {
        self.with(py, |open| open.of(file).set_len(size))
    }

    /// Commits it.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let open = py.detach(|| self.take()).ok_or_else(ended)?;
        py.detach(|| open.end(Tx::commit)).map_err(|error| os_error(&error))
    }

    /// Drops what it has written; does nothing if it has ended.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let Some(open) = py.detach(|| self.take()) else { return Ok(()) };
        py.detach(|| {
            open.end(|tx| {
                drop(tx);
                Ok(())
            })
        })
        .map_err(|error| os_error(&error))
    }

    #[getter]
    fn ended(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_none())
    }
}
