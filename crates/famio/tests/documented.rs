//! Every error that the docstrings of the safe API name must have a test named in `documented.txt`, which names no
//! others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FILES: [&str; 5] = ["open/mod", "open/options", "region/map", "region/bytes", "region/advise"];

fn here(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names of errors in a text, such as `EIO`.
fn errors(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| word.len() > 2 && word.starts_with('E') && word.chars().all(|c| c.is_ascii_uppercase()))
        .map(String::from)
}

/// File, function and error in the docstrings.
fn documented() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for file in FILES {
        let mut docs = String::new();
        for line in here(&format!("src/{file}.rs")).lines().map(str::trim) {
            match line.strip_prefix("///") {
                Some(text) => docs = docs + text + "\n",
                None if line.starts_with("#[") => {}
                None => {
                    let said = std::mem::take(&mut docs);
                    let function = ["pub fn ", "pub unsafe fn "].iter().find_map(|start| line.strip_prefix(start));
                    let (Some(function), Some((_, said))) = (function, said.split_once("# Errors")) else { continue };
                    let name = function.split(['(', '<']).next().unwrap();
                    let said = said.split("# ").next().unwrap();
                    all.extend(errors(said).map(|error| format!("{file} {name} {error}")));
                }
            }
        }
    }
    all
}

/// Whether that test function exists and mentions the error.
fn is_tested(file: &str, function: &str, error: &str) -> bool {
    let text = here(&format!("tests/{file}"));
    let Some((_, body)) = text.split_once(&format!("\nfn {function}(")) else { return false };
    errors(body.split("\n}\n").next().unwrap()).any(|named| named == error)
}

#[test]
fn every_error_that_a_docstring_names_has_a_test() {
    let mut tested = BTreeSet::new();
    for line in here("tests/documented.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [file, name, error, test, function] = words[..] else {
            panic!("{line}: file, function, error, test file, test")
        };
        assert!(is_tested(test, function, error), "{line}: there is no such test, or it has no {error}");
        tested.insert(format!("{file} {name} {error}"));
    }
    let documented = documented();
    let without: Vec<_> = documented.difference(&tested).collect();
    assert!(without.is_empty(), "documented, and not in documented.txt: {without:?}");
    let undocumented: Vec<_> = tested.difference(&documented).collect();
    assert!(undocumented.is_empty(), "in documented.txt, and not documented: {undocumented:?}");
}
