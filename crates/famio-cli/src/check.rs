//! `famio check`: searches journals for damage; changes no file and no journal.

use crate::failure::Failure;
use crate::journals::Journals;
use crate::text::{name, named, printable, whole};
use famio::recovery::{self, Checked, Condition, Owner};
use serde::Serialize;
use std::path::Path;

/// At least one journal is damaged, or contradicts its file.
const DAMAGED: i32 = 1;
/// At least one could not be read.
const UNREAD: i32 = 3;
/// At least one file is in use; its journal changes.
const IN_USE: i32 = 4;

/// Look through journals for damage, without changing them
///
/// Reads everything that a journal says about itself and its file: headers, checks and hashes, epochs, sizes, which
/// entry has which block. Prints each problem with its offset in the journal. From a sound journal, recovery can
/// bring the file to its last SYNC.
///
/// Files and journals stay as they are, but the command opens the files: if a program has one in use, its write lease
/// ends, and a file that only grows gets a journal. famio status opens no data files.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    journals: Journals,
}

const HELP: &str = "\
Exit status: 0 if all journals are sound, or there are none; 1 if one is damaged, contradicts its file, or is gone while its \
file is marked; 2 bad usage; 3 if something could not be read; 4 if a file is in use, and its journal was not checked.

Examples:
  famio check app.db
  famio check /var/lib/app && famio recover /var/lib/app";

/// One journal as JSON shows it.
#[derive(Serialize)]
struct Entry {
    file: String,
    /// `null`: it does not exist, or was not looked for.
    journal: Option<String>,
    condition: &'static str,
    epoch: u64,
    owner: Option<u32>,
    error: Option<String>,
    problems: Vec<Wrong>,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct Wrong {
    at: Option<u64>,
    what: String,
}

impl Entry {
    fn new(checked: &Checked, asked: &Path) -> Self {
        let (condition, epoch, owner, error) = match &checked.condition {
            Condition::Ordinary => ("ordinary", 0, None, None),
            Condition::Sound { epoch } => ("sound", *epoch, None, None),
            Condition::Damaged => ("damaged", 0, None, None),
            Condition::InUse(owner) => ("in use", 0, owner.and_then(Owner::pid_here), None),
            Condition::Failed(error) => ("failed", 0, None, Some(error.to_string())),
        };
        let problem = |problem: &recovery::Problem| Wrong { at: problem.at, what: problem.what.clone() };
        Self {
            file: checked.file.as_deref().unwrap_or(asked).display().to_string(),
            journal: checked.journal.exists().then(|| checked.journal.display().to_string()),
            condition,
            epoch,
            owner,
            error,
            problems: checked.problems.iter().map(problem).collect(),
            remarks: checked.remarks.clone(),
        }
    }

    fn failed(path: &Path, error: String) -> Self {
        Self {
            file: path.display().to_string(),
            journal: None,
            condition: "failed",
            epoch: 0,
            owner: None,
            error: Some(error),
            problems: Vec::new(),
            remarks: Vec::new(),
        }
    }
}

/// Checks every path, and reports.
pub fn main(Args { journals: args }: Args) -> Result<i32, Failure> {
    let settings = args.options.gather().map_err(|error| Failure::new(2, error))?;
    let (mut statuses, mut entries) = (Vec::new(), Vec::new());
    for path in &args.paths {
        match recovery::check(&whole(path), &settings) {
            Ok(all) if args.json => {
                statuses.extend(all.iter().map(|checked| status(&checked.condition)));
                entries.extend(all.iter().map(|checked| Entry::new(checked, path)));
            }
            Err(error) if args.json => {
                statuses.push(UNREAD);
                entries.push(Entry::failed(path, error.to_string()));
            }
            Ok(all) if all.is_empty() => println!("{}: no journals", name(path)),
            Ok(all) => {
                for checked in &all {
                    let (status, lines) = (status(&checked.condition), lines(checked, path, checked.journal.exists()));
                    match status {
                        0 => println!("{}", printable(&lines)),
                        _ => eprintln!("famio: {}", printable(&lines)),
                    }
                    statuses.push(status);
                }
            }
            Err(error) => {
                eprintln!("famio: {}", printable(&named(path, &error)));
                statuses.push(UNREAD);
            }
        }
    }
    if args.json {
        crate::out::json(&entries)?;
    }
    Ok([DAMAGED, UNREAD, IN_USE].into_iter().find(|status| statuses.contains(status)).unwrap_or(0))
}

fn status(condition: &Condition) -> i32 {
    match condition {
        Condition::Ordinary | Condition::Sound { .. } => 0,
        Condition::Damaged => DAMAGED,
        Condition::Failed(_) => UNREAD,
        Condition::InUse(_) => IN_USE,
    }
}

/// One line for the journal, and one for each problem or remark.
fn lines(checked: &Checked, asked: &Path, is_there: bool) -> String {
    let file = name(checked.file.as_deref().unwrap_or(asked));
    let journal = name(&checked.journal);
    let mut text = match &checked.condition {
        Condition::Ordinary => format!("{file}: no journal"),
        Condition::Sound { .. } if checked.journal.as_os_str().is_empty() => format!("{file}: sound (no journal)"),
        Condition::Sound { epoch: 0 } => format!("{file}: sound, nothing is pending (journal {journal})"),
        Condition::Sound { epoch } => format!("{file}: sound, at epoch {epoch} (journal {journal})"),
        // Its path is only where it was looked for.
        Condition::Damaged if !is_there => format!("{file}: damaged"),
        Condition::Damaged => format!("{file}: damaged (journal {journal})"),
        Condition::Failed(error) => format!("{file}: could not be checked: {error}"),
        Condition::InUse(Some(owner)) => format!("{file}: in use by {owner}, not checked"),
        Condition::InUse(None) => format!("{file}: in use, not checked"),
    };
    let problems = checked.problems.iter().map(ToString::to_string);
    for line in problems.chain(checked.remarks.iter().map(|remark| format!("note: {remark}"))) {
        text += &format!("\n  {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use famio::recovery::Problem;

    #[test]
    fn every_problem_has_its_line() {
        let checked = Checked {
            journal: "/d/.famio/1".into(),
            file: Some("/d/app.db".into()),
            condition: Condition::Damaged,
            problems: vec![
                Problem { at: Some(4096), what: "slot 0: damaged".into() },
                Problem { at: None, what: "no mark".into() },
            ],
            remarks: vec!["it is suspect".into()],
        };
        let text = "/d/app.db: damaged (journal /d/.famio/1)\n  at byte 4096: slot 0: damaged\n  no mark\n  note: it is suspect";
        assert_eq!(lines(&checked, Path::new("/d"), true), text);
    }
}
