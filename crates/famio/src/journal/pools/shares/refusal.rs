//! Why a journal may not grow, for people.

use super::arithmetic::Verdict;
use super::member::Member;
use super::waiting::Borrowed;
use crate::error::Error;
use std::sync::Arc;

impl Member {
    /// Why a journal may not grow by `bytes` to `length`.
    pub fn refusal(self: &Arc<Self>, verdict: Verdict, bytes: u64, length: u64) -> Error {
        let path = self.ledger.path().display();
        let (id, name, number) = {
            let mine = self.mine.lock();
            (mine.says.application, mine.says.name.clone(), mine.number)
        };
        let Some(state) = self.ledger.read() else { return Error::new(libc::ENOSPC) };
        let (share, used) = state.shares(number, |shares| (shares.share(id), shares.used(id)));
        let (size, left) = (state.head.size, state.head.left);
        let have = format!(
            "pool {path}: application {name} has {used} bytes of a share of {share} (the pool has {size}), and needs {bytes} more"
        );
        let left = match left {
            0 => String::new(),
            left => format!("; {left} bytes are left by programs that were killed: famio recover {path}"),
        };
        let what = match verdict {
            Verdict::Borrowed => {
                "; others have them, and have not given them back in time: other applications, or other files of this one until their next SYNC"
            }
            _ => "; a SYNC in between makes room",
        };
        let why = format!("{have}{what}{left}; famio pool set {path} --size makes the pool larger");
        match verdict {
            Verdict::Borrowed => {
                let member = self.clone();
                Error::of_lent(libc::ENOSPC, why, Arc::new(Borrowed { member, bytes, length }))
            }
            _ => Error::with(libc::ENOSPC, why),
        }
    }
}
