//! What is known about libc functions: the interposer's table, and the list of functions that do no file I/O.

// This file and both lists are links to the interposer's: a package of this crate has them as files.
#[allow(dead_code)] // The document is made elsewhere.
#[path = "table.rs"]
mod table;

use std::collections::HashMap;

/// Both lists.
pub struct Names {
    rows: HashMap<String, (String, bool)>,
    others: Vec<&'static str>,
}

impl Names {
    /// The lists as of this command's build.
    pub fn new() -> Self {
        let mut rows = HashMap::new();
        for section in table::parse(include_str!("hooks.txt")) {
            for row in section.rows {
                for name in row.names {
                    rows.insert(name, (row.treatment.clone(), row.shape != "-"));
                }
            }
        }
        let others = include_str!("not_file_io.txt");
        let others = others.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('|'));
        Self { rows, others: others.flat_map(|(_, names)| names.split_whitespace()).collect() }
    }

    /// What happens on an atomic file.
    pub fn treatment(&self, name: &str) -> Option<&str> {
        self.rows.get(name).map(|(treatment, _)| treatment.as_str())
    }

    /// Whether the preload library has a function of this name.
    pub fn is_hooked(&self, name: &str) -> bool {
        self.rows.get(name).is_some_and(|(_, hooked)| *hooked)
    }

    /// Whether the name is in one of the lists.
    pub fn is_known(&self, name: &str) -> bool {
        self.rows.contains_key(name) || self.others.iter().any(|pattern| takes(pattern, name))
    }
}

/// Whether a name matches a pattern: a name, or a family with a `*` at one end.
pub fn takes(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (_, Some(start)) => name.starts_with(start),
        _ => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists() {
        let names = Names::new();
        assert_eq!(names.treatment("pwrite64"), Some("handle"));
        assert!(names.is_hooked("fsync") && !names.is_hooked("fwrite") && !names.is_hooked("malloc"));
        assert!(names.is_known("fwrite") && names.is_known("malloc") && names.is_known("pthread_create"));
        assert!(!names.is_known("openat3"));
    }
}
