//! An atomic file as Python's raw files need it: they keep the position.

use crate::os_error;
use crate::path::AnyPath;
use crate::region::Map;
use crate::transaction::Transaction;
use famio::{AtomicFile, Durability, OnKill, PolicyChoice, Settings};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// An open atomic file.
#[pyclass(module = "famio._famio", frozen)]
pub struct File {
    /// `None`: closed. Maps keep it open.
    file: RwLock<Option<Arc<AtomicFile>>>,
}

impl File {
    pub(crate) fn get(&self) -> PyResult<Arc<AtomicFile>> {
        let file = self.file.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        file.clone().ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))
    }
}

fn settings(
    durability: &str,
    policy: &str,
    on_kill: &str,
    pool: Option<AnyPath>,
    shm: Option<AnyPath>,
) -> PyResult<Settings> {
    let bad = |name: &str, value: &str, known: &str| Err(PyValueError::new_err(format!("{name}: {value:?} is not one of: {known}")));
    let durability = match durability {
        "power" => Durability::Power,
        "process" => Durability::Process,
        other => return bad("durability", other, "power, process"),
    };
    let policy = match policy {
        "auto" => PolicyChoice::Auto,
        "undo" => PolicyChoice::Undo,
        "redo" => PolicyChoice::Redo,
        "alternate" => PolicyChoice::Alternate,
        other => return bad("policy", other, "auto, undo, redo, alternate"),
    };
    let on_kill = match on_kill {
        "rollback" => OnKill::Rollback,
        "keep" => OnKill::Keep,
        other => return bad("on_kill", other, "rollback, keep"),
    };
    let (pool, shm) = (pool.map(AnyPath::into_inner), shm.map(AnyPath::into_inner));
    Ok(Settings { durability, policy, on_kill, pool, shm, ..Settings::default() })
}

#[pymethods]
impl File {
    /// Opens a file.
    #[new]
    #[pyo3(signature = (path, *, read_only=false, create=false, exclusive=false, truncate=false, permissions=0o666,
        durability="power", policy="auto", on_kill="rollback", pool=None, shm=None))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "Python's keywords")]
    fn new(
        py: Python<'_>,
        path: AnyPath,
        read_only: bool,
        create: bool,
        exclusive: bool,
        truncate: bool,
        permissions: u32,
        durability: &str,
        policy: &str,
        on_kill: &str,
        pool: Option<AnyPath>,
        shm: Option<AnyPath>,
    ) -> PyResult<Self> {
        let settings = settings(durability, policy, on_kill, pool, shm)?;
        let mut options = AtomicFile::options();
        options.read_only(read_only).create(create).create_new(exclusive).truncate(truncate).mode(permissions).settings(settings);
        let file = py.detach(|| options.open(path.into_inner())).map_err(|error| os_error(&error))?;
        Ok(Self { file: RwLock::new(Some(Arc::new(file))) })
    }

    /// Reads into a writable buffer; returns the number of bytes.
    fn read_into(&self, py: Python<'_>, buffer: PyBuffer<u8>, offset: u64) -> PyResult<usize> {
        let file = self.get()?;
        let into = buffer.as_mut_slice(py).ok_or_else(|| PyValueError::new_err("the buffer has to be writable and contiguous"))?;
        // Not into the buffer itself while the lock is released: Python may look at it meanwhile.
        let mut bytes = vec![0; into.len()];
        let done = py.detach(|| file.read_at(&mut bytes, offset)).map_err(|error| os_error(&error))?;
        into.iter().zip(&bytes[..done]).for_each(|(to, byte)| to.set(*byte));
        Ok(done)
    }

    /// Reads `length` bytes, fewer at the end of the file.
    fn read<'py>(&self, py: Python<'py>, length: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.get()?;
        let there = file.len().saturating_sub(offset).min(length as u64) as usize;
        let mut bytes = vec![0; there];
        let done = py.detach(|| file.read_at(&mut bytes, offset)).map_err(|error| os_error(&error))?;
        Ok(PyBytes::new(py, &bytes[..done]))
    }

    /// Writes all of a buffer at an offset.
    fn write(&self, py: Python<'_>, buffer: PyBuffer<u8>, offset: u64) -> PyResult<usize> {
        let (file, bytes) = (self.get()?, buffer.to_vec(py)?);
        py.detach(|| file.write_at(&bytes, offset)).map_err(|error| os_error(&error))?;
        Ok(bytes.len())
    }

    /// Writes a whole buffer at the end of the file; returns the offset.
    fn append(&self, py: Python<'_>, buffer: PyBuffer<u8>) -> PyResult<u64> {
        let (file, bytes) = (self.get()?, buffer.to_vec(py)?);
        py.detach(|| file.append(&bytes)).map_err(|error| os_error(&error))
    }

    /// Size in bytes, including unsynced changes.
    fn size(&self) -> PyResult<u64> {
        Ok(self.get()?.len())
    }

    /// Sets the size.
    fn set_size(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let file = self.get()?;
        py.detach(|| file.set_len(size)).map_err(|error| os_error(&error))
    }

    /// Makes everything written durable, as a whole.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.get()?;
        py.detach(|| file.sync()).map_err(|error| os_error(&error))
    }

    /// Begins a transaction. `timeout`: seconds until it is aborted.
    #[pyo3(signature = (*, check=false, sync=true, timeout=None))]
    fn transaction(&self, py: Python<'_>, check: bool, sync: bool, timeout: Option<f64>) -> PyResult<Transaction> {
        let file = self.get()?;
        let bad = |_| PyValueError::new_err("timeout has to be a number of seconds, and not negative");
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose().map_err(bad)?;
        py.detach(|| Transaction::new(file, check, sync, timeout)).map_err(|error| os_error(&error))
    }

    /// Maps a part of the file.
    fn map(&self, py: Python<'_>, offset: u64, length: u64, writable: bool) -> PyResult<Map> {
        let file = self.get()?;
        let range = offset..offset.saturating_add(length);
        let region = py.detach(|| if writable { file.map(range) } else { file.map_read(range) }).map_err(|error| os_error(&error))?;
        Ok(Map::new(region, file, writable))
    }

    /// Closes the file; syncs what was written, unless a map keeps the file open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file.write().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        // If this was the last reference.
        match file.and_then(Arc::into_inner) {
            Some(file) => py.detach(|| file.close()).map_err(|error| os_error(&error)),
            None => Ok(()),
        }
    }

    #[getter]
    fn closed(&self) -> bool {
        self.file.read().unwrap_or_else(|poisoned| poisoned.into_inner()).is_none()
    }
}
