//! Checks JSON against docs/json.md.

use serde_json::Value;
use std::collections::BTreeSet;

/// The part of docs/json.md below a heading, up to the next heading of the same or a higher level. `heading`: its
/// beginning.
#[track_caller]
pub fn section(heading: &str) -> String {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap();
    let level = |line: &str| line.bytes().take_while(|&byte| byte == b'#').count();
    let mut lines = text.lines().skip_while(|line| !line.starts_with(heading));
    let first = lines.next().unwrap_or_else(|| panic!("docs/json.md has no '{heading}'"));
    let ends = |line: &str| (1..=level(first)).contains(&level(line));
    [first].into_iter().chain(lines.take_while(|line| !ends(line))).collect::<Vec<_>>().join("\n")
}

/// The names of all fields, at any depth.
pub fn fields(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Array(values) => values.iter().flat_map(fields).collect(),
        Value::Object(map) => {
            map.iter().flat_map(|(name, value)| fields(value).into_iter().chain([name.clone()])).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// Checks that the text mentions every field.
#[track_caller]
pub fn all_are_in(section: &str, what: &str, value: &Value) {
    let fields = fields(value);
    assert!(!fields.is_empty(), "{what}: {value}");
    for name in fields {
        assert!(section.contains(&format!("`{name}`")), "{what}: {name} is not in docs/json.md");
    }
}
