//! `famio run --dry-run`: what the globs match now, and which settings are in force. Runs nothing.

use super::checked::Checked;
use crate::failure::{FAILED, Failure};
use crate::settings::matches::{self, Found};
use crate::settings::{Setting, alternatives};
use serde::Serialize;
use std::path::Path;

/// How many files per glob are listed.
const LISTED: usize = 10;

/// The result, as JSON shows it.
#[derive(Serialize)]
struct Shown<'a> {
    globs: Vec<Matched<'a>>,
    settings: &'a [Setting],
    program: Option<String>,
}

#[derive(Serialize)]
struct Matched<'a> {
    glob: &'a str,
    stands_for: Vec<String>,
    files: Vec<String>,
    /// Whether all folders were searched.
    complete: bool,
}

/// Shows the result. Exit status 1 if a glob matches nothing.
pub fn show(checked: &Checked, program: Option<&Path>, json: bool) -> Result<i32, Failure> {
    let here = std::env::current_dir().map_err(|error| Failure::refused(format!("current folder: {error}")))?;
    let mut text = String::new();
    let mut status = 0;
    let mut globs = Vec::new();
    for glob in &checked.origins.globs {
        text += &format!("{}\n", glob.label);
        for pattern in alternatives(&glob.pattern) {
            let place = if pattern.contains('/') { "" } else { " (a name: in every folder)" };
            text += &format!("  stands for {pattern}{place}\n");
        }
        let found = matches::find(&glob.pattern, &here, checked.layer.pool.as_deref()).map_err(Failure::refused)?;
        if found.files.is_empty() {
            status = FAILED;
        }
        text += &files(&found);
        globs.push(Matched {
            glob: &glob.label,
            stands_for: alternatives(&glob.pattern).iter().map(ToString::to_string).collect(),
            files: found.files.iter().map(|file| file.display().to_string()).collect(),
            complete: !found.is_cut_short,
        });
    }
    if json {
        let program = program.map(|program| program.display().to_string());
        crate::out::json(&Shown { globs, settings: &checked.origins.settings, program })?;
        return Ok(status);
    }
    text += "settings\n";
    for setting in &checked.origins.settings {
        text += &format!("  {}: {}\n", setting.name, setting.text());
    }
    if let Some(program) = program {
        text += &format!("program\n  {}: can be entered\n", program.display());
    }
    print!("{text}");
    Ok(status)
}

fn files(found: &Found) -> String {
    let place = if found.is_name { " (of a name: in this folder and below)" } else { "" };
    let more = if found.is_cut_short { " at least; not all folders were looked through" } else { "" };
    let mut text = match found.files.len() {
        0 => format!("  matches no file now{place}{more}; a file made later would be protected\n"),
        1 => format!("  matches 1 file now{place}{more}\n"),
        many => format!("  matches {many} files now{place}{more}\n"),
    };
    for file in found.files.iter().take(LISTED) {
        text += &format!("    {}\n", crate::text::name(file));
    }
    if found.files.len() > LISTED {
        text += &format!("    and {} more\n", found.files.len() - LISTED);
    }
    text
}
