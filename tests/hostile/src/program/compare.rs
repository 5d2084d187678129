//! Whether the program could notice Famio.

use super::board::name_of_errno;
use super::case::Case;
use super::kill;
use super::side::{Side, contents};
use crate::findings::Found;
use crate::space::Space;
use famio_kill::harness::has_mark;

/// Compares signals, hangs, and the first answer that differs.
pub fn answers(famio: &Side, plain: &Side) -> Option<Found> {
    let at = famio.board.entries.last().map_or("the start".into(), |entry| entry.what.clone());
    if plain.ended.crash().is_some() {
        return Some(Found::new("the plain twin crashed: a defect of this test", format!("after {at}")));
    }
    let strange = famio.board.strange || famio.board.out_of_reach;
    // A crash is reported first, but a wrong answer before it says more.
    let differs = if strange { None } else { first_difference(famio, plain) };
    if let Some((kind, detail)) = &differs
        && famio.ended.crash().is_none()
    {
        return Some(Found::new(kind.clone(), detail.clone() + &stderr(famio)));
    }
    let hung = match (&famio.ended, &famio.hung_later) {
        (crate::watch::Ended::Hung(what), _) | (_, Some(what)) => Some(what),
        _ => None,
    };
    let before = differs.map_or(String::new(), |(kind, _)| format!("; before: {kind}"));
    if let Some(what) = hung {
        return Some(Found::new(
            format!("hung after {}{}", general(&at), crate::watch::place(what)),
            format!("{what}{before}{}", stderr(famio)),
        ));
    }
    if let Some(crash) = famio.ended.crash() {
        return Some(Found::new(
            format!("{crash} after {}", general(&at)),
            format!("step {}{before}{}", famio.board.begun, stderr(famio)),
        ));
    }
    if let (crate::watch::Ended::Status(a), crate::watch::Ended::Status(b)) = (&famio.ended, &plain.ended)
        && a != b
        && !strange
    {
        return Some(Found::new(format!("ended with {a}, plain {b}"), format!("after {at}{}", stderr(famio))));
    }
    if famio.board.handler & !plain.board.handler != 0 && !strange {
        let errors = famio.board.handler & !plain.board.handler;
        let names: Vec<_> = (0..64).filter(|bit| errors >> bit & 1 == 1).map(name_of_errno).collect();
        // Descriptors run out at different moments.
        if names != ["EMFILE"] {
            return Some(Found::new(format!("a handler of a signal got {}", names.join(", ")), stderr(famio)));
        }
    }
    None
}

fn first_difference(famio: &Side, plain: &Side) -> Option<(String, String)> {
    let (a, b) = (&famio.board.entries, &plain.board.entries);
    for (famio, plain) in a.iter().zip(b) {
        if famio == plain {
            continue;
        }
        let (mine, theirs) = (famio.answer(), plain.answer());
        let (step, what) = (famio.step, general(&famio.what));
        let detail =
            format!("step {step}: {}: {mine} (sum {}), plain {theirs} (sum {})", famio.what, famio.sum, plain.sum);
        let kind = if famio.what != plain.what {
            format!("another call: {what} instead of {}", general(&plain.what))
        } else if mine == theirs {
            format!("{what}: other bytes or fields")
        } else if famio.result >= 0 && plain.result >= 0 {
            format!("{what}: another number")
        } else {
            let plain = if plain.result >= 0 { "success" } else { &theirs };
            format!("{what}: {} instead of {plain}", if famio.result >= 0 { "success" } else { &mine })
        };
        return Some((kind, detail));
    }
    (a.len() != b.len() && famio.ended.crash().is_none()).then(|| {
        (
            format!("{} answers, plain {}", if a.len() < b.len() { "fewer" } else { "more" }, "twin"),
            format!("{} and {}", a.len(), b.len()),
        )
    })
}

/// Whether the two runs did different things after an answer that differed, as they may.
pub fn has_gone_apart(famio: &Side, plain: &Side) -> bool {
    famio.board.out_of_reach && first_difference(famio, plain).is_some()
}

/// Without the file's number.
fn general(what: &str) -> String {
    what.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-').to_owned()
}

/// Famio's messages.
pub fn stderr(side: &Side) -> String {
    let lines: Vec<_> = side.messages.lines().filter(|line| line.starts_with("famio")).take(5).collect();
    lines.iter().map(|line| format!("\nstderr: {line}")).collect()
}

/// After a normal exit: the same files with the same bytes, and nothing of Famio's.
pub fn end(space: &Space, case: &Case, famio: &Side, plain: &Side) -> Result<Option<Found>, String> {
    let strange = famio.board.strange || famio.board.out_of_reach;
    if has_gone_apart(famio, plain) {
        return Ok(None);
    }
    let (a, b) = (contents(&famio.folder)?, contents(&plain.folder)?);
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
        Some((_, "door")) => "a door",
        Some((_, "journal")) => "a journal",
        _ if name.starts_with("the mark") => "a mark",
        _ if name == ".famio/" => ".famio",
        _ => "something",
    }
}

/// Where two files differ.
pub fn differ(which: &str, name: &str, a: &[u8], b: &[u8]) -> Found {
    let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let ours = a.windows(8).any(|bytes| bytes == b"FAMIOJNL");
    let begins = String::from_utf8_lossy(&a[at.min(a.len())..a.len().min(at + 16)]).into_owned();
    let detail = format!("{name}: {} bytes, plain {}; they differ from {at} on: {begins:?}", a.len(), b.len());
    let what = if ours {
        "has a journal in it"
    } else if a.len() != b.len() {
        "ends with another size"
    } else {
        "ends with other bytes"
    };
    Found::new(format!("{which} {what}"), detail)
}
