//! What each application has of the pool, compared with what it may have (docs/pool.md): its share always; more only
//! while no application within its share waits for room.

use famio::journal::{PoolUse, pool_use};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Of one application.
#[derive(Clone, Copy, Debug, Default)]
pub struct Application {
    /// The most that it had, in percent of its share at that time.
    pub most: u64,
    /// Looks at which it had more than its share.
    pub borrowed: u64,
    /// The longest time for which it had more while another one waited within its share.
    pub owed: Duration,
    /// Since when that is so.
    since: Option<Instant>,
}

/// All looks at a pool.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    pub looks: u64,
    /// Bytes used, of its size, in percent, at each look.
    pub filled: Vec<u64>,
    /// Bytes left behind by killed processes, in percent of the size, at most.
    pub left: u64,
    /// Looks at which the pool had more than its size.
    pub beyond: u64,
    /// Looks at which anybody waited for room.
    pub waited: u64,
    pub applications: BTreeMap<String, Application>,
}

impl Shares {
    /// Takes one look into account.
    pub fn see(&mut self, now: Instant, seen: &PoolUse) {
        let Some(size) = seen.size else { return };
        self.looks += 1;
        self.filled.push(seen.used * 100 / size);
        self.left = self.left.max(seen.left * 100 / size);
        self.beyond += u64::from(seen.used > size);
        self.waited += u64::from(seen.applications.iter().any(|one| one.wants > 0));
        for one in &seen.applications {
            let has_more = one.used > one.share;
            let mut others = seen.applications.iter().filter(|other| other.name != one.name);
            let owes = has_more && others.any(|other| other.wants > 0 && other.used + other.wants <= other.share);
            let known = self.applications.entry(one.name.clone()).or_default();
            known.most = known.most.max(one.used * 100 / one.share.max(1));
            known.borrowed += u64::from(has_more);
            match (owes, known.since) {
                (true, None) => known.since = Some(now),
                (true, Some(since)) => known.owed = known.owed.max(now - since),
                (false, _) => known.since = None,
            }
        }
        // One that is not there owes nothing.
        let is_there = |name: &String| seen.applications.iter().any(|one| one.name == *name);
        self.applications.iter_mut().filter(|(name, _)| !is_there(name)).for_each(|(_, gone)| gone.since = None);
    }

    /// Looks until `is_over`.
    pub fn watch(pool: &Path, is_over: &AtomicBool) -> Result<Self, String> {
        let mut shares = Self::default();
        while !is_over.load(Ordering::Relaxed) {
            let seen = pool_use(pool).map_err(|error| format!("{}: {error}", pool.display()))?;
            shares.see(Instant::now(), &seen);
            std::thread::sleep(LOOK);
        }
        shares.filled.sort_unstable();
        Ok(shares)
    }

    /// What is not as it should be.
    pub fn findings(&self, limit: Duration) -> Vec<String> {
        let mut findings = Vec::new();
        if self.beyond > 0 {
            findings.push(format!("the pool had more than its size at {} of {} looks", self.beyond, self.looks));
        }
        for (name, one) in self.applications.iter().filter(|(_, one)| one.owed > limit) {
            let owed = one.owed.as_secs_f64();
            findings
                .push(format!("{name} had more than its share for {owed:.2} s while another waited within its own"));
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use famio::journal::PoolShare;

    fn one(name: &str, used: u64, wants: u64) -> PoolShare {
        PoolShare { name: name.into(), weight: 100, share: 28, used, wants, journals: 2, processes: 2, pids: vec![] }
    }

    fn look(at: Instant, shares: &mut Shares, a: (u64, u64), b: (u64, u64)) {
        let applications = vec![one("a", a.0, a.1), one("b", b.0, b.1)];
        shares.see(at, &PoolUse { size: Some(64), used: a.0 + b.0, left: 0, applications });
    }

    #[test]
    fn only_what_is_borrowed_while_another_waits_is_owed() {
        let (start, mut shares) = (Instant::now(), Shares::default());
        let at = |ms| start + Duration::from_millis(ms);
        // It borrows what the other one leaves free, and while that one wants more than its share.
        look(at(0), &mut shares, (40, 0), (10, 0));
        look(at(500), &mut shares, (40, 0), (24, 8));
        look(at(1000), &mut shares, (40, 0), (10, 0));
        assert!(shares.findings(Duration::ZERO).is_empty(), "{shares:?}");
        // The other one waits within its share, until it gets that.
        [1100, 1300, 1500].into_iter().for_each(|ms| look(at(ms), &mut shares, (40, 0), (20, 8)));
        look(at(1600), &mut shares, (36, 0), (28, 0));
        look(at(3000), &mut shares, (40, 0), (20, 8));
        assert_eq!(shares.applications["a"].owed, Duration::from_millis(400));
        assert!(shares.findings(Duration::from_millis(400)).is_empty());
        assert_eq!(shares.findings(Duration::from_millis(399)).len(), 1);
        assert_eq!((shares.applications["a"].most, shares.applications["b"].borrowed), (142, 0));
    }

    #[test]
    fn no_more_than_the_pool_has() {
        let mut shares = Shares::default();
        look(Instant::now(), &mut shares, (40, 0), (25, 0));
        assert_eq!(shares.findings(Duration::MAX).len(), 1);
    }
}
