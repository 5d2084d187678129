//! The Python module `famio._famio`: files, maps and recovery. `famio/__init__.py` adds what Python expects.

mod file;
mod path;
mod recover;
mod region;
mod transaction;

use pyo3::prelude::*;

/// An `OSError` with errno and message; Python chooses the subclass.
fn os_error(error: &famio::Error) -> PyErr {
    pyo3::exceptions::PyOSError::new_err((error.errno(), error.to_string()))
}

/// Atomic files, without what Python adds to them.
#[pymodule]
fn _famio(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<file::File>()?;
    module.add_class::<region::Map>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_function(wrap_pyfunction!(recover::recover, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
