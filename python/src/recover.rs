//! Recovery of files, folders and pools.

use crate::os_error;
use crate::path::AnyPath;
use famio::Settings;
use famio::recovery::{self, Options, Outcome, Silent, Use};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Recovers what is at a path; returns a dict for each journal.
#[pyfunction]
#[pyo3(signature = (path, *, dry_run=false, winner=None, pool=None, shm=None))]
pub fn recover<'py>(
    py: Python<'py>,
    path: AnyPath,
    dry_run: bool,
    winner: Option<&str>,
    pool: Option<AnyPath>,
    shm: Option<AnyPath>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let on_conflict = match winner {
        None => Use::Refuse,
        Some("journal") => Use::Journal,
        Some("file") => Use::File,
        Some(other) => return Err(PyValueError::new_err(format!("use: {other:?} is not one of: journal, file"))),
    };
    let (path, pool, shm) = (path.into_inner(), pool.map(AnyPath::into_inner), shm.map(AnyPath::into_inner));
    let settings = Settings { pool, shm, ..Settings::default() };
    let options = Options { dry_run, on_conflict, threads: 0 };
    let reports = py.detach(|| recovery::recover_path(&path, &settings, &options, &Silent)).map_err(|error| os_error(&error))?;
    let dict = |report: &recovery::Report| {
        let (outcome, why) = match &report.outcome {
            Outcome::NothingToDo => ("nothing to do", None),
            Outcome::Clean => ("clean", None),
            Outcome::Recovered => ("recovered", None),
            Outcome::Kept => ("kept", None),
            Outcome::Discarded => ("discarded", None),
            Outcome::Conflict(why) => ("conflict", Some(why.clone())),
            Outcome::Failed(error) => ("failed", Some(error.to_string())),
            Outcome::Unexamined(error) => ("unexamined", Some(error.to_string())),
            Outcome::InUse(_) => ("in use", None),
        };
        let dict = PyDict::new(py);
        dict.set_item("file", report.file.as_ref().unwrap_or(&path))?;
        dict.set_item("journal", Some(&report.journal).filter(|journal| !journal.as_os_str().is_empty()))?;
        dict.set_item("outcome", outcome)?;
        dict.set_item("epoch", report.epoch)?;
        dict.set_item("bytes", report.bytes)?;
        dict.set_item("cut", report.cut)?;
        dict.set_item("why", why)?;
        Ok(dict)
    };
    reports.iter().map(dict).collect()
}
