//! `kinds.txt` and the interposer's table must match.

#[allow(dead_code, reason = "this crate uses a part of the file")]
#[path = "../../famio-preload/table.rs"]
mod table;

use std::path::Path;

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// For every function that the interposer exports, `kinds.txt` says whether it is traced.
#[test]
fn every_hook_has_a_kind() {
    let kinds = read("kinds.txt");
    let lines = kinds.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let names: Vec<&str> =
        lines.flat_map(|line| line.split_once('|').expect("kind | names").1.split(',').map(str::trim)).collect();
    let sections = table::parse(&read("../famio-preload/hooks.txt"));
    let rows = sections.iter().flat_map(|section| &section.rows).filter(|row| row.shape != "-");
    let missing: Vec<&String> = rows
        .filter(|row| !row.names.iter().any(|name| names.contains(&name.as_str())))
        .map(|row| &row.names[0])
        .collect();
    assert!(
        missing.is_empty(),
        "hooks.txt has functions of which crates/famio-trace/kinds.txt does not say whether 'famio trace' counts them: \
         {missing:?}\nPut each beside its kin there."
    );
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.windows(2).for_each(|two| assert_ne!(two[0], two[1], "stands twice in kinds.txt"));
}
