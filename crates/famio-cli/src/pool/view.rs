//! What `famio status` shows of a pool: its size, and who uses how much of it.

use crate::text::{bytes, printable, table};
use famio::journal::{PoolShare, PoolUse};
use serde::Serialize;

/// A pool as JSON shows it.
#[derive(Serialize)]
pub struct View {
    pool: String,
    size: Option<u64>,
    used: u64,
    free: Option<u64>,
    left: Option<u64>,
    applications: Vec<Application>,
}

/// An application that uses it.
#[derive(Serialize)]
struct Application {
    name: String,
    weight: u32,
    share: u64,
    used: u64,
    wants: u64,
    journals: u64,
    processes: u64,
    pids: Vec<u32>,
}

impl View {
    /// Of the pool in this folder.
    pub fn new(pool: &std::path::Path, seen: &PoolUse) -> Self {
        let application = |share: &PoolShare| Application {
            name: share.name.clone(),
            weight: share.weight,
            share: share.share,
            used: share.used,
            wants: share.wants,
            journals: share.journals,
            processes: share.processes,
            pids: share.pids.clone(),
        };
        Self {
            pool: pool.display().to_string(),
            size: seen.size,
            used: seen.used,
            free: seen.size.map(|size| size.saturating_sub(seen.used)),
            left: seen.size.map(|_| seen.left),
            applications: seen.applications.iter().map(application).collect(),
        }
    }

    /// The application of a process in this PID namespace.
    pub fn application_of(&self, pid: u32) -> Option<&str> {
        let has = |application: &&Application| application.pids.contains(&pid);
        self.applications.iter().find(has).map(|application| application.name.as_str())
    }

    /// As tables for people.
    pub fn text(&self) -> String {
        let or_none = |count: Option<u64>| count.map_or("none".into(), bytes);
        let mut pool = vec![["POOL", "SIZE", "USED", "FREE", "LEFT BEHIND"].map(String::from).to_vec()];
        pool.push(vec![
            printable(&self.pool).into(),
            or_none(self.size),
            bytes(self.used),
            self.free.map_or("-".into(), bytes),
            self.left.map_or("-".into(), bytes),
        ]);
        let mut text = table(&pool);
        if !self.applications.is_empty() {
            let head = ["APPLICATION", "WEIGHT", "SHARE", "USED", "WAITS FOR", "JOURNALS", "PROCESSES"];
            let mut rows = vec![head.map(String::from).to_vec()];
            rows.extend(self.applications.iter().map(|application| {
                vec![
                    printable(&application.name).into(),
                    application.weight.to_string(),
                    bytes(application.share),
                    bytes(application.used),
                    if application.wants == 0 { "-".into() } else { bytes(application.wants) },
                    application.journals.to_string(),
                    application.processes.to_string(),
                ]
            }));
            text += "\n";
            text += &table(&rows);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_with_two_applications() {
        let share = |name: &str, used, pid| PoolShare {
            name: name.into(),
            weight: 100,
            share: 28 << 20,
            used,
            wants: 0,
            journals: 1,
            processes: 1,
            pids: vec![pid],
        };
        let applications = vec![share("a", 30 << 20, 5), share("b\u{1b}", 1 << 20, 6)];
        let seen = PoolUse { size: Some(64 << 20), used: 33 << 20, left: 2 << 20, applications };
        let view = View::new("/p".as_ref(), &seen);
        assert_eq!((view.free, view.application_of(5), view.application_of(7)), (Some(31 << 20), Some("a"), None));
        let text = view.text();
        assert!(text.contains("/p    64.0 MiB  33.0 MiB  31.0 MiB  2.0 MiB"), "{text}");
        assert!(text.contains("b\\u{1b}      100     28.0 MiB  1.0 MiB   -"), "{text}");
        let none = PoolUse { size: None, used: 4096, left: 0, applications: Vec::new() };
        assert!(View::new("/p".as_ref(), &none).text().contains("/p    none  4.0 KiB  -     -"));
    }
}
