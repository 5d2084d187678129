//! Which globs select a file, and which settings are in force.

use super::finding::Finding;
use crate::settings::Origins;
use crate::settings::matches;
use crate::text::quoted;
use famio::posix::{Globs, NearMiss, patterns};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// For a file, even one that does not exist yet: what selects it. For a folder: what each glob selects now.
pub fn look(path: &Path, origins: &Origins, pool: Option<&Path>) -> Vec<Finding> {
    let mut findings = match path.is_dir() {
        true => each_glob(path, origins, pool),
        false => [Some(of_file(path, origins, pool)), group_of(path, origins, pool)].into_iter().flatten().collect(),
    };
    let said: Vec<_> = origins.settings.iter().filter(|setting| setting.source.is_some()).collect();
    findings
        .extend(said.iter().map(|setting| Finding::fine("setting", format!("{}: {}", setting.name, setting.text()))));
    if said.is_empty() {
        findings.push(Finding::fine("settings", "all as by default"));
    }
    findings
}

fn of_file(path: &Path, origins: &Origins, pool: Option<&Path>) -> Finding {
    const TOPIC: &str = "selected";
    let shown = path.to_string_lossy();
    let glob = if shown.contains('/') { shown.into_owned() } else { format!("./{shown}") };
    let remedy = format!("famio run --atomic {} would", quoted(&patterns::escape(&glob)));
    if origins.globs.is_empty() {
        return Finding::note(TOPIC, format!("no: FAMIO_ATOMIC and famio.toml have no glob; {remedy}"));
    }
    let lines: Vec<_> = origins.globs.iter().map(|glob| glob.pattern.as_os_str()).collect();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let globs = match Globs::new(lines.join("\n".as_ref()).as_bytes(), b"/", pool) {
        Ok(globs) => globs,
        Err(error) => return Finding::problem(TOPIC, error),
    };
    let marks = globs.marks_of(absolute.as_os_str().as_bytes());
    let label = |index: usize| &origins.globs[index].label;
    let by: Vec<_> = (0..globs.count()).filter(|&glob| marks.has(glob)).map(label).cloned().collect();
    if !by.is_empty() {
        return Finding::fine(TOPIC, format!("by {}", by.join(", ")));
    }
    let nearly =
        (0..globs.count()).find_map(|glob| Some((glob, globs.near_miss(glob, absolute.as_os_str().as_bytes())?)));
    let hint = match nearly {
        None => String::new(),
        Some((glob, NearMiss::Case)) => format!(" ({} differs in the case of letters)", label(glob)),
        Some((glob, NearMiss::Folder)) => format!(" ({} means another folder)", label(glob)),
    };
    let none =
        if globs.count() == 1 { "not by the glob".into() } else { format!("by none of {} globs", globs.count()) };
    Finding::note(TOPIC, format!("no: {none}{hint}; {remedy}"))
}

/// The group that a file belongs to.
fn group_of(path: &Path, origins: &Origins, pool: Option<&Path>) -> Option<Finding> {
    const TOPIC: &str = "group";
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    // The library asks for the path that the kernel knows.
    let real = absolute.canonicalize().unwrap_or(absolute);
    let mut groups = Vec::new();
    for group in &origins.groups {
        match Globs::new(group.join("\n".as_ref()).as_bytes(), b"/", pool) {
            Ok(globs) if globs.marks_of(real.as_os_str().as_bytes()).is_empty() => {}
            Ok(_) => groups.push(group.join(" ".as_ref()).to_string_lossy().into_owned()),
            Err(error) => return Some(Finding::problem(TOPIC, error)),
        }
    }
    match &groups[..] {
        [] => None,
        [group] => Some(Finding::fine(TOPIC, format!("committed together with {group}"))),
        _ => Some(Finding::problem(TOPIC, format!("it belongs to several groups: {}", groups.join("; ")))),
    }
}

fn each_glob(folder: &Path, origins: &Origins, pool: Option<&Path>) -> Vec<Finding> {
    const TOPIC: &str = "glob";
    let row = |glob: &crate::settings::Glob| match matches::find(&glob.pattern, folder, pool) {
        Err(error) => Finding::problem(TOPIC, error),
        Ok(found) => {
            let first = found.files.first().map_or(String::new(), |file| format!(", first {}", file.display()));
            let count = found.files.len();
            let text = format!("{}: selects {} now{first}", glob.label, crate::text::count(count as u64, "file"));
            if count == 0 { Finding::note(TOPIC, text) } else { Finding::fine(TOPIC, text) }
        }
    };
    origins.globs.iter().map(row).collect()
}
