//! `famio ps`: the processes that use atomic files, and what they do with them. Disturbs none of them: reads their
//! shared state from outside, and opens only the control file and the journal.

mod entry;
pub mod growing;
mod seen;

pub use seen::{Seen, all, command, processes};

use crate::failure::Failure;
use crate::text::{bytes, printable, table};
use entry::Entry;

/// List the processes that use atomic files
///
/// For each process and file: the last epoch, bytes written since the last SYNC, the size of the journal, whether the
/// process holds the write lease, the policy, which process owns the file, and for which process's lock it waits. The
/// command takes no lock and ends no lease. Root sees the processes of all users, others their own.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Print a JSON array of objects (docs/json.md)
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
OPEN is the number of bytes that all processes have written to the file since its last SYNC. OWNER marks the process that \
owns the file now and may change it; ownership passes to the next process that writes. WAITS FOR is about locks that the \
kernel knows. KIND is the kind of the journal, or \"growing\": the file has none, since it only grows, or few of its bytes are overwritten.

Examples:
  famio ps
  watch famio ps";

/// Examines every process.
pub fn main(args: Args) -> Result<i32, Failure> {
    let processes = processes();
    let mut entries: Vec<Entry> = all(&processes).into_iter().map(Entry::from).collect();
    entries.extend(growing::all(&processes).into_iter().map(Entry::from));
    entries.sort_by(|a, b| (a.pid, &a.file).cmp(&(b.pid, &b.file)));
    if args.json {
        crate::out::json(&entries)?;
    } else if entries.is_empty() {
        println!("no process uses atomic files");
    } else {
        print!("{}", table(&rows(&entries)));
    }
    Ok(0)
}

fn rows(entries: &[Entry]) -> Vec<Vec<String>> {
    let head = ["PID", "COMMAND", "FILE", "OWNER", "EPOCH", "OPEN", "JOURNAL", "KIND", "POLICY", "LEASE", "WAITS FOR"];
    let mut rows = vec![head.map(String::from).to_vec()];
    let number = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
    for entry in entries {
        let waits: Vec<String> = entry.waits_for.iter().map(ToString::to_string).collect();
        rows.push(vec![
            entry.pid.to_string(),
            printable(&entry.command).into(),
            entry.file.as_deref().map_or("-".into(), |file| printable(file).into()),
            if entry.owner { "yes" } else { "no" }.into(),
            number(entry.epoch),
            entry.open_bytes.map_or("-".into(), bytes),
            if entry.journal.is_some() { bytes(entry.journal_bytes) } else { "-".into() },
            entry.kind.unwrap_or("-").into(),
            entry.policy.unwrap_or("-").into(),
            entry.lease.map_or("-", |lease| if lease { "yes" } else { "no" }).into(),
            if waits.is_empty() { "-".into() } else { waits.join(",") },
        ]);
    }
    rows
}
