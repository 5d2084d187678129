//! Who may have how much: from the numbers of the processes alone.

/// One process that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Its application.
    pub application: u128,
    pub weight: u32,
    /// Bytes of journals.
    pub used: u64,
    /// Bytes for which it waits.
    pub wants: u64,
    /// How many journals it has.
    pub journals: u64,
}

/// The pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares<'a> {
    pub size: u64,
    /// Bytes of journals whose processes are dead.
    pub left: u64,
    pub processes: &'a [Process],
}

/// The answer to a journal that is to become longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Granted,
    /// It is within the share, and others have borrowed it; or within the journal's part of a share that its
    /// application's other journals use.
    Borrowed,
    /// It is beyond the share, and there is nothing to borrow.
    Full,
}

/// What is kept for newcomers: this part of the pool is not lent.
const RESERVE: u64 = 8;

impl Shares<'_> {
    /// What the living can have.
    fn usable(&self) -> u64 {
        self.size.saturating_sub(self.left)
    }

    /// What is not lent, so that an application that comes has something to begin with.
    fn reserve(&self) -> u64 {
        self.usable() / RESERVE
    }

    fn sum(&self, of: impl Fn(&Process) -> u64) -> u64 {
        self.processes.iter().map(of).fold(0, u64::saturating_add)
    }

    /// What nobody uses.
    pub fn free(&self) -> u64 {
        self.usable().saturating_sub(self.sum(|process| process.used))
    }

    /// The bytes of an application.
    pub fn used(&self, application: u128) -> u64 {
        self.sum(|process| if process.application == application { process.used } else { 0 })
    }

    /// The weight of an application: the highest of its processes'.
    pub fn weight(&self, application: u128) -> u32 {
        let mine = self.processes.iter().filter(|process| process.application == application);
        mine.map(|process| process.weight).max().unwrap_or(0)
    }

    /// The applications, each once, in the order of their first processes.
    pub fn applications(&self) -> Vec<u128> {
        let mut all: Vec<u128> = Vec::new();
        for process in self.processes {
            if !all.contains(&process.application) {
                all.push(process.application);
            }
        }
        all
    }

    /// What an application may always have.
    pub fn share(&self, application: u128) -> u64 {
        let mut highest: Vec<(u128, u32)> = Vec::new();
        for process in self.processes {
            match highest.iter_mut().find(|(id, _)| *id == process.application) {
                Some((_, weight)) => *weight = (*weight).max(process.weight),
                None => highest.push((process.application, process.weight)),
            }
        }
        let all: u128 = highest.iter().map(|&(_, weight)| u128::from(weight)).sum();
        let lent = u128::from(self.usable() - self.reserve());
        let mine = u128::from(self.weight(application));
        (lent * mine).checked_div(all).unwrap_or(0) as u64
    }

    /// What others wait for.
    fn wanted_by_others(&self, application: u128) -> u64 {
        self.sum(|process| if process.application == application { 0 } else { process.wants })
    }

    /// What can be borrowed now.
    fn lendable(&self, application: u128) -> u64 {
        self.free().saturating_sub(self.reserve()).saturating_sub(self.wanted_by_others(application))
    }

    /// Whether a journal of an application may have `bytes` more, and `length` in all.
    pub fn verdict(&self, application: u128, bytes: u64, length: u64) -> Verdict {
        let share = self.share(application);
        let then = self.used(application).saturating_add(bytes);
        let is_new = u64::from(length == bytes);
        let journals = self.sum(|process| if process.application == application { process.journals } else { 0 });
        let journals = journals.saturating_add(is_new);
        match then <= share {
            true if bytes <= self.free() => Verdict::Granted,
            true => Verdict::Borrowed,
            false if bytes <= self.lendable(application) => Verdict::Granted,
            false if length <= share / journals.max(1) => Verdict::Borrowed,
            false => Verdict::Full,
        }
    }

    /// What an application may have in all, as it is now: its share, or more if it can borrow.
    pub fn allowance(&self, application: u128) -> u64 {
        let with_borrowed = self.used(application).saturating_add(self.lendable(application));
        self.share(application).max(with_borrowed.saturating_sub(self.must_return(application)))
    }

    /// What the application has to return: borrowed bytes that other applications, the reserve, or its own waiting
    /// journals need.
    pub fn must_return(&self, application: u128) -> u64 {
        let wanted = self.sum(|process| process.wants);
        // Not by what is free: a pool that was made smaller lacks more than all of that.
        let needed = self.reserve().saturating_add(wanted).saturating_add(self.sum(|process| process.used));
        let lacking = needed.saturating_sub(self.usable());
        let own = wanted.saturating_sub(self.wanted_by_others(application));
        let wants_all = self.used(application).saturating_add(own);
        wants_all.saturating_sub(self.share(application)).min(lacking).min(self.used(application))
    }

    /// Whether any process has to return something, other than a process of an application with `used` bytes.
    pub fn others_must_return(&self, application: u128, used: u64) -> bool {
        let has_more = |id| id != application || self.used(id) > used;
        self.applications().into_iter().any(|id| has_more(id) && self.must_return(id) > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn process(application: u128, weight: u32, used: u64) -> Process {
        Process { application, weight, used, wants: 0, journals: 1 }
    }

    #[test]
    fn one_alone_leaves_the_reserve() {
        let shares = Shares { size: 64 * MIB, left: 0, processes: &[process(1, 100, 50 * MIB)] };
        assert_eq!((shares.share(1), shares.free(), shares.must_return(1)), (56 * MIB, 14 * MIB, 0));
        assert_eq!(shares.verdict(1, 6 * MIB, 56 * MIB), Verdict::Granted);
        assert_eq!(shares.verdict(1, 6 * MIB + 1, 57 * MIB), Verdict::Full);
    }

    #[test]
    fn what_is_borrowed_is_given_back_to_a_newcomer() {
        let mut all = [process(1, 100, 56 * MIB), process(2, 100, 0)];
        let shares = Shares { size: 64 * MIB, left: 0, processes: &all };
        assert_eq!([shares.share(1), shares.share(2)], [28 * MIB; 2]);
        // The newcomer begins with the reserve.
        assert_eq!(shares.verdict(2, 8 * MIB, 8 * MIB), Verdict::Granted);
        assert_eq!(shares.verdict(2, 9 * MIB, 9 * MIB), Verdict::Borrowed);
        assert_eq!(shares.verdict(1, 1, 57 * MIB), Verdict::Full);
        all[1] = Process { used: 8 * MIB, wants: 4 * MIB, ..all[1] };
        let shares = Shares { size: 64 * MIB, left: 0, processes: &all };
        // The reserve, and what the newcomer wants.
        assert_eq!((shares.must_return(1), shares.must_return(2)), (12 * MIB, 0));
        assert_eq!(shares.allowance(1), 44 * MIB);
    }

    /// It gave back an eighth of the pool at a time, and who waited looked again after each.
    #[test]
    fn what_is_too_much_for_a_smaller_pool_is_owed_at_once() {
        let mut all = [process(1, 100, 100 * MIB), process(2, 100, 0)];
        all[1].wants = 4 * MIB;
        let shares = Shares { size: 64 * MIB, left: 0, processes: &all };
        assert_eq!(shares.must_return(1), 48 * MIB); // the excess, the reserve, and what is wanted
        all[0].used -= 48 * MIB;
        let shares = Shares { size: 64 * MIB, left: 0, processes: &all };
        assert_eq!((shares.must_return(1), shares.verdict(2, 4 * MIB, 4 * MIB)), (0, Verdict::Granted));
    }

    #[test]
    fn processes_of_an_application_share_its_share() {
        let all = [process(1, 100, 20 * MIB), process(2, 300, 0), process(1, 50, 20 * MIB)];
        let shares = Shares { size: 64 * MIB, left: 0, processes: &all };
        assert_eq!((shares.applications(), shares.used(1)), (vec![1, 2], 40 * MIB));
        assert_eq!([shares.share(1), shares.share(2)], [14 * MIB, 42 * MIB]);
    }

    /// One file had the whole share, and the first write to another one had no room.
    #[test]
    fn a_journal_has_its_part_of_the_share() {
        let mut all = [process(1, 100, 56 * MIB), process(2, 100, 28 * MIB)];
        let verdict =
            |all: &[Process], length| Shares { size: 96 * MIB, left: 0, processes: all }.verdict(1, length, length);
        assert_eq!((verdict(&all, 21 * MIB), verdict(&all, 22 * MIB)), (Verdict::Borrowed, Verdict::Full));
        all[0].wants = 21 * MIB;
        let shares = Shares { size: 96 * MIB, left: 0, processes: &all };
        assert_eq!((shares.share(1), shares.must_return(1), shares.must_return(2)), (42 * MIB, 21 * MIB, 0));
        // It has to return that to itself; so does another process of the application.
        assert!(
            !shares.others_must_return(1, 56 * MIB)
                && shares.others_must_return(1, 55 * MIB)
                && shares.others_must_return(2, 28 * MIB)
        );
    }

    #[test]
    fn what_the_dead_have_left_is_nobodys() {
        let shares = Shares { size: 64 * MIB, left: 32 * MIB, processes: &[process(1, 1, 0)] };
        assert_eq!((shares.share(1), shares.free()), (28 * MIB, 32 * MIB));
        let shares = Shares { size: 64 * MIB, left: 80 * MIB, processes: &[process(1, 1, 0)] };
        assert_eq!((shares.share(1), shares.verdict(1, 1, 1)), (0, Verdict::Full));
    }

    fn some_process() -> impl Strategy<Value = Process> {
        let words = (0..6u128, 1..=10_000u32, 0..200 * MIB, 0..2u64, 0..64 * MIB);
        words.prop_map(|(application, weight, used, waits, wants)| Process {
            application,
            weight,
            used,
            wants: waits * wants,
            journals: 1 + used % 3,
        })
    }

    proptest! {
        /// Shares and reserve never exceed the pool; no application gets bytes that do not exist or, beyond its share,
        /// bytes that others wait for or the reserve; no application has to return more than it has.
        #[test]
        fn nobody_gets_what_is_not_there(
            size in 0..1024 * MIB,
            left in 0..128 * MIB,
            processes in prop::collection::vec(some_process(), 0..12),
            bytes in 1..64 * MIB,
        ) {
            let shares = Shares { size, left, processes: &processes };
            let all = shares.applications();
            let sum: u64 = all.iter().map(|&id| shares.share(id)).sum();
            prop_assert!(sum + shares.reserve() <= shares.usable());
            for &id in &all {
                match shares.verdict(id, bytes, u64::MAX) {
                    Verdict::Granted => {
                        prop_assert!(bytes <= shares.free());
                        let within = shares.used(id) + bytes <= shares.share(id);
                        prop_assert!(within || shares.free() - bytes >= shares.reserve() + shares.wanted_by_others(id));
                    }
                    // Then another application has more than its share, and has to return it if this one waits.
                    Verdict::Borrowed => {
                        let mut waiting = processes.clone();
                        waiting.iter_mut().find(|process| process.application == id).unwrap().wants += bytes;
                        let waiting = Shares { processes: &waiting, ..shares };
                        prop_assert!(all.iter().any(|&other| other != id && waiting.must_return(other) > 0));
                    }
                    Verdict::Full => prop_assert!(shares.used(id) + bytes > shares.share(id)),
                }
                prop_assert!(shares.must_return(id) <= shares.used(id));
                prop_assert!(shares.allowance(id) >= shares.share(id));
            }
        }

        /// Borrowed bytes come back: once every application has returned what it must, an application that waits within
        /// its share finds room.
        #[test]
        fn giving_back_is_enough(
            size in 16 * MIB..1024 * MIB,
            processes in prop::collection::vec(some_process(), 1..8),
            bytes in 1..64 * MIB,
        ) {
            let mut processes = processes;
            processes.iter_mut().for_each(|process| process.wants = 0);
            let id = processes[0].application;
            if (Shares { size, left: 0, processes: &processes }).verdict(id, bytes, u64::MAX) == Verdict::Borrowed {
                processes[0].wants = bytes;
                for _ in 0..processes.len() {
                    for i in 0..processes.len() {
                        let shares = Shares { size, left: 0, processes: &processes };
                        let must_return = shares.must_return(processes[i].application);
                        processes[i].used -= must_return.min(processes[i].used);
                    }
                }
                let shares = Shares { size, left: 0, processes: &processes };
                prop_assert_eq!(shares.verdict(id, bytes, u64::MAX), Verdict::Granted);
            }
        }

        /// Any words in the file give numbers, and no panic.
        #[test]
        fn any_numbers_will_do(size: u64, left: u64, words in prop::collection::vec(any::<(u64, u32, u64, u64)>(), 0..9)) {
            let of = |&(application, weight, used, wants): &(u64, u32, u64, u64)| {
                Process { application: application.into(), weight, used, wants, journals: used }
            };
            let processes: Vec<_> = words.iter().map(of).collect();
            let shares = Shares { size, left, processes: &processes };
            for id in shares.applications() {
                let _ = (shares.verdict(id, u64::MAX, 0), shares.must_return(id));
                let _ = (shares.allowance(id), shares.share(id));
            }
        }
    }
}
