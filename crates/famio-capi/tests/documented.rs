//! Every error that a man page documents must have a test named in `documented.txt`, and every error named there must
//! be documented.

mod common;

use common::root;
use std::collections::BTreeSet;
use std::fs;

/// The names of errors in a text, such as `EIO`.
fn errors(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| {
            word.len() > 2 && word.starts_with('E') && word.chars().all(|c| c.is_ascii_uppercase() || c == '2')
        })
        .map(String::from)
}

/// The man pages' errors: page and error.
fn documented() -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for page in fs::read_dir(root().join("man")).unwrap() {
        let page = page.unwrap().path();
        let text = fs::read_to_string(&page).unwrap();
        let Some((_, text)) = text.split_once(".SH ERRORS") else { continue };
        let text = text.split(".SH").next().unwrap();
        let name = page.file_stem().unwrap().to_string_lossy().into_owned();
        let headings = text.lines().filter_map(|line| line.strip_prefix(".B "));
        all.extend(headings.flat_map(errors).map(|error| (name.clone(), error)));
    }
    all
}

/// Whether that function of a test program exists and mentions the error.
fn is_tested(file: &str, function: &str, error: &str) -> bool {
    let text = fs::read_to_string(root().join("crates/famio-capi/tests/programs").join(file)).unwrap();
    let Some((_, body)) = text.split_once(&format!("static void {function}(")) else { return false };
    let body = body.split("\n}\n").next().unwrap();
    errors(body).any(|named| named == error)
}

#[test]
fn every_error_that_a_man_page_names_has_a_test() {
    let listed = fs::read_to_string(root().join("crates/famio-capi/tests/documented.txt")).unwrap();
    let mut tested = BTreeSet::new();
    for line in listed.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Some cannot be caused by a program: they have `-` and a reason.
        let [page, error, file, function, ..] = words[..] else { panic!("{line}: page, error, program, function") };
        assert!(
            file == "-" || is_tested(file, function, error),
            "{line}: there is no such function, or it has no {error}"
        );
        tested.insert((page.to_string(), error.to_string()));
    }
    let documented = documented();
    let without: Vec<_> = documented.difference(&tested).collect();
    assert!(without.is_empty(), "documented, and not in documented.txt: {without:?}");
    let undocumented: Vec<_> = tested.difference(&documented).collect();
    assert!(undocumented.is_empty(), "in documented.txt, and not in its man page: {undocumented:?}");
}
