//! What the threads of this process wait for.
//!
//! Each wait has a deadline. A signal handler may leave it by `siglongjmp`; what it waited for is then forgotten at
//! that time, instead of being kept from others for ever.

/// See the module.
#[derive(Default)]
pub(super) struct Wants(Vec<Want>);

/// One wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Want {
    pub bytes: u64,
    /// When it has ended at the latest, in monotonic time.
    pub deadline: u64,
}

impl Wants {
    /// A wait begins.
    pub fn begin(&mut self, want: Want) {
        self.0.push(want);
    }

    /// It has ended.
    pub fn end(&mut self, want: Want) {
        if let Some(at) = self.0.iter().position(|other| *other == want) {
            self.0.swap_remove(at);
        }
    }

    /// The bytes of all waits that may still go on.
    pub fn bytes(&mut self, now: u64) -> u64 {
        self.0.retain(|want| want.deadline > now);
        self.0.iter().fold(0, |sum, want| sum.saturating_add(want.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_nobody_ends_is_forgotten() {
        let mut wants = Wants::default();
        let (short, long) = (Want { bytes: 5, deadline: 10 }, Want { bytes: 7, deadline: 20 });
        [short, long, long].into_iter().for_each(|want| wants.begin(want));
        assert_eq!(wants.bytes(9), 19);
        assert_eq!(wants.bytes(10), 14);
        wants.end(short);
        wants.end(long);
        assert_eq!((wants.bytes(19), wants.bytes(20)), (7, 0));
    }
}
