//! For tests: hands change without another process, and who wrote what travels dies without ending.

use crate::error::{Error, Result};
use crate::file::atomic::AtomicFile;

impl AtomicFile {
    /// Gives the turn with whatever is open, as if another process had rung; the next call that needs it takes it again. What
    /// lies in `/dev/shm` for it between the turns.
    ///
    /// # Errors
    /// `EBUSY`: what it could not send off the last time is still here. Those of the session's end.
    #[doc(hidden)]
    pub fn hand_over(&self) -> Result<Vec<String>> {
        self.give_turn()?;
        Ok(self.turns.door.paths())
    }

    /// As [`hand_over`](Self::hand_over), and who wrote until now is dead, to be seen by somebody who is at the file: this process
    /// goes on as another one.
    ///
    /// # Errors
    /// Those of `hand_over`, `EBUSY`: it is mapped. Then nobody has died.
    #[doc(hidden)]
    pub fn hand_over_and_die(&self) -> Result<Vec<String>> {
        if crate::file::shadow::is_mapped(self.key()) {
            return Err(Error::new(libc::EBUSY)); // its maps, which outlive it here, would keep what it wrote
        }
        let left = self.hand_over()?;
        if self.turns.door.has_come() {
            self.turns.door.die_and_come()?;
        }
        Ok(left)
    }
}
