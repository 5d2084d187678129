//! Whether the program could notice Famio.

use super::board::name_of_errno;
use super::side::Side;
use crate::findings::Found;

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
    // Of an atomic file whose descriptors were closed unseen an `open` may fail: later ones get other numbers.
    let opens = |side: &Side| {
        let entries = side.board.entries.iter().filter(|entry| entry.what.starts_with("open"));
        entries.map(|entry| (entry.what.clone(), entry.result)).collect::<Vec<_>>()
    };
    famio.board.out_of_reach && first_difference(famio, plain).is_some()
        || famio.board.strange && opens(famio) != opens(plain)
}

fn has_journal(bytes: &[u8]) -> bool {
    bytes.windows(8).any(|bytes| bytes == b"FAMIOJNL")
}

/// A plain file with a journal in it.
pub fn spoiled<'a>(mut files: impl Iterator<Item = (&'a String, &'a [u8])>) -> Option<Found> {
    let found = files.find(|(name, bytes)| name.starts_with("plain") && has_journal(bytes));
    found.map(|(name, _)| Found::new("a plain file has a journal in it", name.clone()))
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

/// Where two files differ.
pub fn differ(which: &str, name: &str, a: &[u8], b: &[u8]) -> Found {
    let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let ours = has_journal(a);
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
