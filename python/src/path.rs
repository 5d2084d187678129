//! Paths as Python's own functions take them.

use pyo3::prelude::*;
use std::path::PathBuf;

/// Text, bytes, or an object that has one of them as its path (`os.PathLike`).
pub struct AnyPath(PathBuf);

impl AnyPath {
    pub fn into_inner(self) -> PathBuf {
        self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for AnyPath {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = given.py().import("os")?.call_method1("fsdecode", (given,))?;
        Ok(Self(text.extract()?))
    }
}
