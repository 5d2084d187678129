//! What `--require` refuses before the program runs: globs whose files cannot be protected where they are.

use super::checked::Checked;
use crate::doctor::{Verdict, place};
use crate::settings::{alternatives, folder_of};
use famio::posix::patterns;
use std::path::PathBuf;

/// The first reason why a file that a glob names could not be protected, as far as it can be known beforehand.
pub fn check(checked: &Checked) -> Result<(), String> {
    let settings = checked.layer.settings();
    let mut looked: Vec<PathBuf> = Vec::new();
    for glob in &checked.origins.globs {
        let label = &glob.label;
        for pattern in alternatives(&glob.pattern) {
            let Some(folder) = folder_of(&pattern) else { continue };
            let literal = patterns::literal(&pattern).map(PathBuf::from);
            if !folder.is_dir() {
                if literal.is_some() {
                    return Err(format!("--require: {label}: there is no folder {}", folder.display()));
                }
                continue;
            }
            let subject = literal.filter(|path| path.exists()).unwrap_or(folder);
            if looked.contains(&subject) {
                continue;
            }
            let findings = place::look(&subject, &settings);
            if let Some(problem) = findings.iter().find(|finding| finding.verdict == Verdict::Problem) {
                let (subject, topic) = (subject.display(), problem.topic);
                return Err(format!("--require: {label}: {subject} can't be protected: {topic}: {}", problem.text));
            }
            looked.push(subject);
        }
    }
    Ok(())
}
