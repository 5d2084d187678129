//! Settings that take a word or globs: a mistyped word would be taken for the name of a file that nobody has.

/// So many typing mistakes in a word are seen.
const EDITS: usize = 2;

/// Whether a glob of a setting with these words is certainly not one of them. `Err` says which word it looks like.
/// A glob with a wildcard, a folder, an ending or a quote is never taken for a word.
pub fn check_glob(glob: &str, words: [&str; 2]) -> Result<(), String> {
    if glob.contains(['/', '*', '?', '[', '.', '{', '\\']) {
        return Ok(());
    }
    let lower = glob.to_lowercase();
    match words.into_iter().find(|word| edits(&lower, word) <= EDITS) {
        None => Ok(()),
        Some(word) if word == glob => Err(format!(
            "'{word}' applies to all files and can't be in a list of globs; for a file of that name write ./{word}"
        )),
        Some(word) => Err(format!("'{glob}' looks like the word '{word}'; for a file of that name write ./{glob}")),
    }
}

/// How many characters have to be inserted, removed or replaced to get from one word to the other (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (at, left) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, right) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (from, to, count) in [("keep", "keep", 0), ("kepe", "keep", 2), ("", "keep", 4), ("wrte", "write", 1)] {
            assert_eq!((edits(from, to), edits(to, from)), (count, count), "{from} {to}");
        }
        assert_eq!((edits("rolback", "rollback"), edits("data", "epoch")), (1, 5));
    }

    #[test]
    fn a_mistyped_word_is_no_glob() {
        const WORDS: [&str; 2] = ["rollback", "keep"];
        for (glob, word) in [("kepe", "'keep'"), ("KEEP", "'keep'"), ("roll-back", "'rollback'"), ("keep", "./keep")] {
            let error = check_glob(glob, WORDS).unwrap_err();
            assert!(error.contains(word) && error.contains(&format!("./{glob}")), "{error}");
        }
        for glob in ["./kepe", "kee*", "kee?", "[k]eep", "keep.", r"\keep", "{keep,x}", "/x/keep", "data", "log", ""] {
            assert_eq!(check_glob(glob, WORDS), Ok(()), "{glob}");
        }
    }
}
