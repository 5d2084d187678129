//! A map of an atomic file, with the buffer protocol.

use crate::os_error;
use famio::{AtomicFile, Region};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard};

/// A mapped part of an atomic file. `famio.Region` derives from it: before Python 3.12, a class written in Python
/// cannot have the buffer protocol.
#[pyclass(module = "famio._famio", frozen, subclass)]
pub struct Map(Mutex<Inner>);

struct Inner {
    /// `None`: closed. Cannot be closed while a buffer is in use.
    region: Option<(Region, Arc<AtomicFile>)>,
    writable: bool,
    /// Number of buffers that Python has of it.
    buffers: usize,
}

impl Map {
    pub fn new(region: Region, file: Arc<AtomicFile>, writable: bool) -> Self {
        Self(Mutex::new(Inner { region: Some((region, file)), writable, buffers: 0 }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[pymethods]
impl Map {
    /// Takes another object's map, and closes that object.
    #[new]
    fn take(other: &Bound<'_, Self>) -> PyResult<Self> {
        let mut other = other.get().inner();
        if other.buffers > 0 {
            return Err(PyBufferError::new_err("a buffer of it is still in use"));
        }
        Ok(Self(Mutex::new(Inner { region: other.region.take(), writable: other.writable, buffers: 0 })))
    }

    /// On return, everything stored, and written to the file, is durable as a whole.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let file = {
            let inner = self.inner();
            let (_, file) = inner.region.as_ref().ok_or_else(|| PyValueError::new_err("the region is closed"))?;
            file.clone()
        };
        py.detach(|| file.sync()).map_err(|error| os_error(&error))
    }

    /// Drops the map. `BufferError` while something uses its memory.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut inner = self.inner();
        if inner.buffers > 0 {
            return Err(PyBufferError::new_err("a buffer of the region (a memoryview, an array) is still in use"));
        }
        let Some((region, file)) = inner.region.take() else { return Ok(()) };
        drop(inner);
        py.detach(|| {
            region.unmap()?;
            match Arc::into_inner(file) {
                Some(file) => file.close(),
                None => Ok(()),
            }
        })
        .map_err(|error| os_error(&error))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.inner().region.is_none()
    }

    #[getter]
    fn writable(&self) -> bool {
        self.inner().writable
    }

    fn __len__(&self) -> PyResult<usize> {
        let inner = self.inner();
        let (region, _) = inner.region.as_ref().ok_or_else(|| PyValueError::new_err("the region is closed"))?;
        Ok(region.len())
    }

    /// # Safety
    /// Python's: `view` is to be filled in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let mut inner = slf.get().inner();
        let writable = inner.writable;
        let Some((region, _)) = inner.region.as_ref() else { return Err(PyValueError::new_err("the region is closed")) };
        let (address, length) = (region.as_ptr(), region.len() as ffi::Py_ssize_t);
        // SAFETY: the memory stays mapped until the last buffer is released: `close` refuses before, and the view
        // holds a reference to this object. If a process cuts the file below its end meanwhile, the next access
        // causes a SIGBUS, as with Python's own `mmap`.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address.cast(), length, c_int::from(!writable), flags)
        };
        if filled < 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        inner.buffers += 1;
        Ok(())
    }

    /// # Safety
    /// Python's: `view` came from `__getbuffer__`.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.inner().buffers -= 1;
    }
}
