//! A control file for tests.

use super::{Control, SIZE, random};
use crate::sys::InternalFd;
use std::path::Path;

pub(in crate::index) struct TestControl(std::path::PathBuf);

pub(in crate::index) fn for_test() -> TestControl {
    let path = format!("/dev/shm/famio-test-{}-{:x}.control", std::process::id(), random().unwrap());
    std::fs::write(&path, [0; SIZE]).unwrap();
    TestControl(path.into())
}

impl TestControl {
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Another open description, of a new file if the old one is gone.
    pub fn open(&self) -> InternalFd {
        let options = || std::fs::File::options().read(true).write(true).create(true).truncate(false).clone();
        InternalFd::adopt(options().open(&self.0).unwrap().into()).unwrap()
    }

    pub fn again(&self) -> Control {
        Control::new(self.open())
    }
}

impl Drop for TestControl {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
