//! `famio doctor`: what this machine and this folder give, and what stands in the way.

mod machine;
mod place;

use crate::failure::{FAILED, Failure};
use crate::run::preload;
use crate::settings::Options;
use crate::text::table;
use std::path::{Path, PathBuf};

/// Say what protection a file or folder gets here, and why
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// A file, or a folder where files are to be protected
    #[arg(default_value = ".", value_name = "PATH")]
    path: PathBuf,
    #[command(flatten)]
    options: Options,
}

const HELP: &str = "\
Exit status: 0; 1 if something prevents protection; 2 bad usage.

Examples:
  famio doctor
  famio doctor /mnt/pmem --pool /mnt/pmem/pool
  famio doctor app.db --durability process";

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// As it should be.
    Fine,
    /// Works, but look at it.
    Note,
    /// Prevents protection.
    Problem,
}

/// One line of the report.
#[derive(Debug)]
struct Finding {
    topic: &'static str,
    verdict: Verdict,
    text: String,
}

impl Finding {
    fn fine(topic: &'static str, text: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Fine, text: text.into() }
    }

    fn note(topic: &'static str, text: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Note, text: text.into() }
    }

    fn problem(topic: &'static str, text: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Problem, text: text.into() }
    }
}

/// Looks and reports.
pub fn main(args: Args) -> Result<i32, Failure> {
    let settings = args.options.gather().map_err(|error| Failure::new(2, error))?;
    let mut findings = machine::look();
    findings.push(match preload::find() {
        Ok(library) => Finding::fine("preload library", library.display().to_string()),
        Err(error) => Finding::problem("preload library", error),
    });
    findings.extend(place::look(&args.path, &settings));
    print!("{}", report(&args.path, &findings));
    Ok(if findings.iter().any(|finding| finding.verdict == Verdict::Problem) { FAILED } else { 0 })
}

fn report(path: &Path, findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let verdict = match finding.verdict {
            Verdict::Fine => "ok",
            Verdict::Note => "note",
            Verdict::Problem => "PROBLEM",
        };
        [verdict, finding.topic, &finding.text].map(String::from).to_vec()
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    let problems = findings.iter().filter(|finding| finding.verdict == Verdict::Problem).count();
    let end = match problems {
        0 => format!("{}: can be protected\n", path.display()),
        1 => format!("{}: can't be protected: 1 problem\n", path.display()),
        many => format!("{}: can't be protected: {many} problems\n", path.display()),
    };
    table(&rows) + &end
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
