//! The possible contents of the file after a crash: a model in memory, and the promises made so far.

use crate::workload::{Op, bytes, initial, pieces};
use famio::pmem::record::Names;

/// A promise, as a mark in the trace: a state of [`Oracle::states`], and the progress of its SYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The SYNC of this state has begun.
    Begun(usize),
    /// It has returned.
    Kept(usize),
    /// It has failed: the state may be there or not.
    Failed(usize),
}

impl Promise {
    /// The mark.
    pub fn mark(self) -> u64 {
        let (kind, state) = match self {
            Promise::Begun(state) => (0, state),
            Promise::Kept(state) => (1, state),
            Promise::Failed(state) => (2, state),
        };
        state as u64 * 3 + kind
    }

    fn of_mark(mark: u64) -> Self {
        let state = (mark / 3) as usize;
        match mark % 3 {
            0 => Promise::Begun(state),
            1 => Promise::Kept(state),
            _ => Promise::Failed(state),
        }
    }
}

/// The model.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// Nothing is promised about the initial file until its first write has returned, or, where the order is kept, its
    /// first SYNC.
    pub unsynced: bool,
    /// The file as a reader sees it.
    pub now: Vec<u8>,
    /// The state at each SYNC; the first is the initial file.
    pub states: Vec<Vec<u8>>,
}

impl Default for Oracle {
    fn default() -> Self {
        Self { unsynced: false, now: initial(), states: vec![initial()] }
    }
}

impl Oracle {
    /// Applies step number `number`, if it changes the file.
    pub fn apply(&mut self, number: usize, op: Op) {
        match op {
            Op::Write { at, len } => self.write(at, &bytes(number, at, len)),
            Op::Both { first, second } => {
                self.write(first.0, &bytes(number, first.0, first.1));
                self.write(second.0, &bytes(number, second.0, second.1));
            }
            Op::Append { len } => {
                let at = self.now.len() as u64;
                self.write(at, &bytes(number, at, len));
            }
            Op::Map { at, len, .. } => {
                let len = len.min((self.now.len() as u64).saturating_sub(at));
                self.write(at, &bytes(number, at, len));
            }
            Op::Transaction { at, len, .. } => {
                pieces(at, len).iter().for_each(|&(at, len)| self.write(at, &bytes(number, at, len)));
            }
            Op::Whole { at, len } => {
                let at = at.unwrap_or(self.now.len() as u64);
                self.write(at, &bytes(number, at, len));
            }
            Op::Joint { at, len, size } => {
                size.iter().for_each(|&size| self.now.resize(size as usize, 0));
                pieces(at, len).iter().for_each(|&(at, len)| self.write(at, &bytes(number, at, len)));
            }
            Op::Size(size) => self.now.resize(size as usize, 0),
            _ => {}
        }
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = at as usize + data.len();
        if self.now.len() < end {
            self.now.resize(end, 0);
        }
        self.now[at as usize..end].copy_from_slice(data);
    }

    /// A SYNC begins; returns the state that it may leave.
    pub fn seal(&mut self) -> usize {
        self.states.push(self.now.clone());
        self.states.len() - 1
    }

    /// What a crash may leave after these marks.
    pub fn legal(&self, marks: &[u64]) -> Legal<'_> {
        let (mut kept, mut open, mut anything) = (0, Vec::new(), self.unsynced);
        for &mark in marks {
            let promise = Promise::of_mark(mark);
            anything &= !matches!(promise, Promise::Kept(_));
            match promise {
                Promise::Begun(state) => open.push(&self.states[state][..]),
                Promise::Failed(_) => {}
                Promise::Kept(state) => {
                    kept = state;
                    open.clear();
                }
            }
        }
        Legal { kept: &self.states[kept], open, anything }
    }
}

/// The last acknowledged state, and the one whose SYNC was under way. States whose SYNC has failed since may be
/// there, too.
#[derive(Clone, Debug)]
pub struct Legal<'a> {
    /// What must be there.
    pub kept: &'a [u8],
    /// What may be there instead.
    pub open: Vec<&'a [u8]>,
    /// Nothing was promised yet: any contents are legal, as long as the file can be recovered.
    pub anything: bool,
}

impl<'a> Legal<'a> {
    /// Only this state.
    pub fn only(kept: &'a [u8]) -> Self {
        Self { kept, open: Vec::new(), anything: false }
    }

    /// Checks whether the file's own name may be missing, if it is in this image.
    pub fn check_name(&self, names: &Names) -> Result<(), String> {
        if names.nameless && !self.anything { Err("the file's own name may be gone".into()) } else { Ok(()) }
    }

    /// Checks whether the file may have these contents; if not, describes the difference.
    pub fn check(&self, found: &[u8]) -> Result<(), String> {
        if self.anything || found == self.kept || self.open.contains(&found) {
            return Ok(());
        }
        let differs = |state: &[u8]| {
            let at = state.iter().zip(found).position(|(a, b)| a != b).unwrap_or(state.len().min(found.len()));
            format!("{} bytes, differs at {at}", state.len())
        };
        let open: String =
            self.open.iter().map(|open| format!("; one whose SYNC was in flight: {}", differs(open))).collect();
        Err(format!("{} bytes of no epoch. The last that was acknowledged: {}{open}", found.len(), differs(self.kept)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_legal_from_the_beginning_of_its_sync_and_the_only_one_from_its_end() {
        let mut oracle = Oracle::default();
        oracle.apply(1, Op::Write { at: 5990, len: 20 });
        let one = oracle.seal();
        oracle.apply(2, Op::Size(100));
        let two = oracle.seal();
        let states = oracle.states.clone();
        let legal = |marks: &[Promise]| -> Vec<bool> {
            let marks: Vec<u64> = marks.iter().map(|promise| promise.mark()).collect();
            states.iter().map(|state| oracle.legal(&marks).check(state).is_ok()).collect()
        };
        assert_eq!(states.iter().map(Vec::len).collect::<Vec<_>>(), [6000, 6010, 100]);
        assert_eq!(legal(&[]), [true, false, false]);
        assert_eq!(legal(&[Promise::Begun(one)]), [true, true, false]);
        assert_eq!(legal(&[Promise::Begun(one), Promise::Kept(one)]), [false, true, false]);
        assert_eq!(legal(&[Promise::Kept(one), Promise::Begun(two), Promise::Failed(two)]), [false, true, true]);
        assert_eq!(legal(&[Promise::Begun(one), Promise::Failed(one), Promise::Begun(two)]), [true, true, true]);
        assert!(oracle.legal(&[]).check(&states[0][..5999]).is_err());
    }
}
