//! The structure of a journal of records.

use super::Problem;
use crate::error::Result;
use crate::journal::Header;
use crate::journal::records::{check_segments, scan};
use std::os::fd::BorrowedFd;

/// Returns the last commit and what is wrong: first the segments, then the chain of records with all its hashes,
/// epochs, tails and checks, as recovery would read it.
pub(super) fn check(journal: BorrowedFd<'_>, header: &Header) -> Result<(u64, Vec<Problem>)> {
    let mut problems: Vec<Problem> = Vec::new();
    match check_segments(journal, header) {
        Ok(found) => problems.extend(found.into_iter().map(|(at, what)| Problem::at(at, what))),
        // With a bad geometry, nothing else can be found.
        Err(e) if e.errno() == libc::EIO => return Ok((0, vec![Problem::general(e)])),
        Err(e) => return Err(e),
    }
    match scan(journal, header) {
        Ok(scan) => Ok((scan.plan().epoch, problems)),
        Err(e) if e.errno() == libc::EIO => {
            problems.push(Problem::general(e));
            Ok((0, problems))
        }
        Err(e) => Err(e),
    }
}
