//! Asks which files to make atomic.

use super::config::Config;
use super::judge;
use super::judged::Judged;
use std::io::{BufRead, BufReader, IsTerminal, Write};

/// The user's choice; nothing if there is no terminal. Reads the terminal itself, since the program may have used up
/// stdin.
pub fn ask<'a>(files: &'a [Judged<'a>], config: &Config) -> Vec<&'a Judged<'a>> {
    let there: Vec<&Judged> = files.iter().filter(|judged| judged.size.is_some()).collect();
    if there.is_empty() || !std::io::stderr().is_terminal() {
        return Vec::new();
    }
    let Ok(terminal) = std::fs::File::options().read(true).write(true).open("/dev/tty") else { return Vec::new() };
    let suggested = judge::suggested(files);
    let enter = if suggested.is_empty() { "none" } else { "those with a *" };
    let mut lines = BufReader::new(&terminal).lines();
    loop {
        let question = format!(
            "Which should be atomic, in {}? Their numbers, or 'none' [Enter: {enter}]: ",
            config.path().display()
        );
        if (&terminal).write_all(question.as_bytes()).is_err() {
            return Vec::new();
        }
        // The end of input is not consent.
        let Some(Ok(answer)) = lines.next() else { return Vec::new() };
        match understand(&answer, files, &suggested) {
            Ok(chosen) => return chosen,
            Err(why) => {
                let _ = (&terminal).write_all(format!("{why}\n").as_bytes());
            }
        }
    }
}

fn understand<'a>(
    answer: &str,
    files: &'a [Judged<'a>],
    suggested: &[&'a Judged<'a>],
) -> Result<Vec<&'a Judged<'a>>, String> {
    match answer.trim() {
        "" => return Ok(suggested.to_vec()),
        "none" | "no" | "n" => return Ok(Vec::new()),
        _ => {}
    }
    let words = answer.split([' ', ',', '\t']).filter(|word| !word.is_empty());
    let number = |word: &str| {
        let index = word.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let judged = index.and_then(|index| files.get(index)).ok_or_else(|| format!("there is no number {word}"))?;
        match judged.size {
            Some(_) => Ok(judged),
            None => Err(format!("{word} is not there any more")),
        }
    };
    words.map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::super::judged::Kind;
    use super::super::shared::File;
    use super::*;

    #[test]
    fn answers() {
        let file = File::with("/x", &[]);
        let judged = |size: Option<u64>, suggested| {
            let why = String::new();
            Judged { file: &file, kind: Kind::Database, why, size, suggested }
        };
        let files = [judged(Some(1), true), judged(Some(1), false), judged(None, false)];
        let suggested = judge::suggested(&files);
        let chosen = |answer: &str| understand(answer, &files, &suggested).map(|chosen| chosen.len());
        assert_eq!(chosen(""), Ok(1));
        assert_eq!(chosen(" none "), Ok(0));
        assert_eq!(chosen("1, 2"), Ok(2));
        for wrong in ["0", "4", "x", "3", "1 y"] {
            assert!(chosen(wrong).is_err(), "{wrong}");
        }
    }
}
