//! `famio doctor`: what protection this machine and folder give, and what prevents it.

mod finding;
mod machine;
pub mod place;
mod program;
mod selection;

use crate::failure::{FAILED, Failure};
use crate::program::{preload, search};
use crate::settings::Options;
use crate::text::{list, name, printable};
use finding::Finding;
pub use finding::Verdict;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Say what protection a file, a folder or a program gets here, and why
///
/// For a file: which glob of the configuration selects it, or what would. It is opened: if a program has it in use, its
/// write lease ends, and a file that only grows gets a journal.
///
/// For a program: whether Famio can enter it, and what it and its libraries import that would bypass Famio.
#[derive(clap::Args)]
#[command(after_help = HELP, override_usage = "famio doctor [OPTIONS] [PATH | PROGRAM] [-- <CMD>...]")]
pub struct Args {
    /// A file, a folder for protected files, a program or a library. A name without a slash that is not here is
    /// looked up in PATH [default: .]
    #[arg(value_name = "PATH | PROGRAM")]
    path: Option<PathBuf>,
    /// A program, whatever else has its name; arguments are ignored
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// Print a JSON array of objects (docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

const HELP: &str = "\
Exit status: 0; 1 if something prevents protection; 2 bad usage.

Examples:
  famio doctor
  famio doctor /mnt/pmem --pool /mnt/pmem/pool
  famio doctor app.db --durability process
  famio doctor sqlite3
  famio doctor data -- ./server --port 80     # the folder and the program";

/// All findings about one subject, as JSON shows it.
#[derive(Serialize)]
struct Subject {
    subject: String,
    protected: bool,
    findings: Vec<Finding>,
}

/// Looks and reports.
pub fn main(args: Args) -> Result<i32, Failure> {
    let (settings, origins) = args.options.gather_with_origins().map_err(|error| Failure::new(2, error))?;
    let (place, program) = subjects(args.path, &args.command)?;
    let mut subjects = Vec::new();
    let mut add = |subject: &Path, findings: Vec<Finding>| {
        let protected = findings.iter().all(|finding| finding.verdict != Verdict::Problem);
        subjects.push(Subject { subject: subject.display().to_string(), protected, findings });
    };
    if let Some(path) = place {
        let mut findings = machine::look();
        findings.push(preload_library());
        findings.extend(place::look(&path, &settings));
        findings.extend(selection::look(&path, &origins, settings.pool.as_deref()));
        add(&path, findings);
    }
    if let Some(path) = program {
        let mut findings = vec![preload_library()];
        findings.extend(program::look(&path));
        add(&path, findings);
    }
    if args.json {
        crate::out::json(&subjects)?;
    } else {
        subjects.iter().for_each(|subject| print!("{}", report(Path::new(&subject.subject), &subject.findings)));
    }
    Ok(if subjects.iter().all(|subject| subject.protected) { 0 } else { FAILED })
}

fn preload_library() -> Finding {
    match preload::find() {
        Ok(library) => Finding::fine("preload library", library.display().to_string()),
        Err(error) => Finding::problem("preload library", error),
    }
}

/// The place and the program to examine.
fn subjects(path: Option<PathBuf>, command: &[OsString]) -> Result<(Option<PathBuf>, Option<PathBuf>), Failure> {
    if let Some(name) = command.first() {
        return Ok((path, Some(search::find(name)?)));
    }
    let Some(path) = path else { return Ok((Some(PathBuf::from(".")), None)) };
    if program::is_one(&path) {
        return Ok((None, Some(path)));
    }
    let is_name = path.components().count() == 1 && !path.as_os_str().as_encoded_bytes().contains(&b'/');
    if is_name
        && !path.exists()
        && let Ok(found) = search::find(path.as_os_str())
    {
        return Ok((None, Some(found)));
    }
    Ok((Some(path), None))
}

fn report(subject: &Path, findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let verdict = match finding.verdict {
            Verdict::Fine => "ok",
            Verdict::Note => "note",
            Verdict::Problem => "PROBLEM",
        };
        [verdict, finding.topic, &printable(&finding.text)].map(String::from).to_vec()
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    let problems = findings.iter().filter(|finding| finding.verdict == Verdict::Problem).count();
    let end = match problems {
        0 => format!("{}: can be protected\n", name(subject)),
        1 => format!("{}: can't be protected: 1 problem\n", name(subject)),
        many => format!("{}: can't be protected: {many} problems\n", name(subject)),
    };
    list(&rows) + &end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_counted() {
        let findings = [Finding::fine("a", "b"), Finding::problem("c", "d")];
        let text = report(Path::new("x"), &findings);
        assert_eq!(text, "ok       a  b\nPROBLEM  c  d\nx: can't be protected: 1 problem\n");
    }
}
