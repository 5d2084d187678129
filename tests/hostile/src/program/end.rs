//! After a normal exit: the same files with the same bytes, and nothing of Famio's.

use super::case::Case;
use super::compare::{differ, has_gone_apart, spoiled, stderr};
use super::kill;
use super::side::{Side, contents};
use crate::findings::Found;
use crate::space::Space;
use famio_kill::harness::has_mark;

/// Compares both.
pub fn judge(space: &Space, case: &Case, famio: &Side, plain: &Side) -> Result<Option<Found>, String> {
    let strange = famio.board.strange || famio.board.out_of_reach;
    let a = contents(&famio.folder)?;
    if has_gone_apart(famio, plain) {
        return Ok(spoiled(a.iter().map(|(name, (.., bytes))| (name, &bytes[..]))));
    }
    let b = contents(&plain.folder)?;
    for name in a.keys().chain(b.keys()) {
        let atomic = name.starts_with("atomic");
        if strange && atomic {
            continue;
        }
        let which = if atomic { "an atomic file" } else { "a plain file" };
        let found = match (a.get(name), b.get(name)) {
            (Some(a), Some(b)) if a == b => continue,
            (Some((mode, owner, _)), Some((mode_b, owner_b, _))) if (mode, owner) != (mode_b, owner_b) => Found::new(
                format!("{which} ends with another mode or owner"),
                format!("{name}: {mode:o} {owner}, plain {mode_b:o} {owner_b}"),
            ),
            (Some((.., a)), Some((.., b))) => differ(which, name, a, b),
            (Some(_), None) => Found::new(format!("{which} too many at the end"), name.clone()),
            _ => Found::new(format!("{which} is gone at the end"), name.clone()),
        };
        return Ok(Some(Found::new(found.kind, found.detail + &stderr(famio))));
    }
    let gave_up =
        |what: &str| famio.board.entries.iter().any(|entry| entry.what.starts_with(what) && entry.result == 0);
    if case.left && !strange && (gave_up("setresuid") || gave_up("chroot")) {
        return kill::tidy(space, famio);
    }
    if case.left && !strange {
        let mut left = space.empty_shm();
        // Left by a run whose processes ended at the same time: the next run removes it.
        left.retain(|name| !name.starts_with("famio-run-"));
        if let Ok(inside) = std::fs::read_dir(famio.folder.join(".famio")) {
            left.push(".famio/".into());
            left.extend(inside.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()));
        }
        left.extend(
            a.keys().filter(|name| has_mark(&famio.folder.join(name))).map(|name| format!("the mark of {name}")),
        );
        if !left.is_empty() {
            let kinds: Vec<&str> =
                left.iter().map(|name| kind_of(name)).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
            return Ok(Some(Found::new(
                format!("left after a clean end: {}", kinds.join(", ")),
                left.join(", ") + &stderr(famio),
            )));
        }
    }
    Ok(None)
}

fn kind_of(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((_, "arena")) => "an arena",
        Some((_, "control")) => "a control file",
        Some((_, "journal")) => "a journal",
        _ if name.starts_with("the mark") => "a mark",
        _ if name == ".famio/" => ".famio",
        _ => "something",
    }
}
