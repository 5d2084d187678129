//! Test hooks: ownership changes without another process, and a writer of uncommitted bytes dies without ending.

use crate::error::{Error, Result};
use crate::file::atomic::AtomicFile;

impl AtomicFile {
    /// Hands over what is open, as if another process had asked; the next call that needs ownership acquires it
    /// again. Returns the paths of what lies in `/dev/shm` for the file meanwhile.
    ///
    /// # Errors
    /// `EBUSY`: this process still holds what it could not hand over last time. Those of the session's end.
    #[doc(hidden)]
    pub fn hand_over(&self) -> Result<Vec<String>> {
        self.hand_over_ownership()?;
        Ok(self.ownership.membership.paths())
    }

    /// As [`hand_over`](Self::hand_over), and the writer of everything until now dies, watched by another member:
    /// this process goes on as another one.
    ///
    /// # Errors
    /// Those of `hand_over`. `EBUSY`: the file is mapped. On an error nothing has died.
    #[doc(hidden)]
    pub fn hand_over_and_die(&self) -> Result<Vec<String>> {
        if crate::file::shadow::is_mapped(self.key()) {
            return Err(Error::new(libc::EBUSY)); // its maps survive here, and would keep what it wrote
        }
        let left = self.hand_over()?;
        if self.ownership.membership.has_attached() {
            self.ownership.membership.die_and_attach()?;
        }
        Ok(left)
    }
}
