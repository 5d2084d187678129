//! The syntax of globs: braces, escapes, `~` and folders. Each glob expands to one or more patterns of the crate
//! `glob`.

use glob::{Pattern, PatternError};

/// The most patterns to which one glob may expand.
const MOST: usize = 1024;

/// The patterns of a glob, or what is wrong with it. `home`: what `~` stands for.
pub fn expand(glob: &str, home: Option<&str>) -> Result<Vec<String>, String> {
    let text: Vec<char> = glob.chars().collect();
    let patterns = Parser { text: &text, at: 0 }.sequence(false)?;
    patterns.into_iter().map(|pattern| finish(pattern, home)).collect()
}

/// One glob that expands to all of these patterns: the inverse of [`expand`].
pub fn join(patterns: &[String]) -> String {
    let escaped: Vec<String> = patterns.iter().map(|pattern| escape_braces(pattern)).collect();
    match escaped.as_slice() {
        [one] => one.clone(),
        all => format!("{{{}}}", all.join(",")),
    }
}

/// A glob that selects exactly this name or path.
pub fn escape(path: &str) -> String {
    let text = escape_braces(&Pattern::escape(path));
    if text.starts_with('~') { format!("\\{text}") } else { text }
}

/// Whether there is a comma outside braces and classes, and without a backslash: perhaps it was meant to separate two
/// globs.
pub fn has_bare_comma(glob: &str) -> bool {
    let text: Vec<char> = glob.chars().collect();
    let (mut at, mut depth) = (0, 0usize);
    while let Some(&here) = text.get(at) {
        match here {
            '\\' => at += 1,
            '[' => at = class_end(&text, at).unwrap_or(at + 1) - 1,
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return true,
            _ => {}
        }
        at += 1;
    }
    false
}

/// Whether a pattern has no wildcard; `[x]` for a character that is a wildcard, or `~`, is none.
pub fn is_literal(pattern: &str) -> bool {
    literal(pattern).is_some()
}

/// The one path that a pattern without wildcards matches.
pub fn literal(pattern: &str) -> Option<String> {
    let text: Vec<char> = pattern.chars().collect();
    let mut name = String::new();
    let mut at = 0;
    while let Some(&here) = text.get(at) {
        match here {
            '*' | '?' => return None,
            '[' => match text.get(at + 1..at + 3) {
                Some(&[one, ']']) => {
                    name.push(one);
                    at += 2;
                }
                _ => return None,
            },
            other => name.push(other),
        }
        at += 1;
    }
    Some(name)
}

struct Parser<'a> {
    text: &'a [char],
    at: usize,
}

impl Parser<'_> {
    /// Expands the text up to its end or, in a group, up to a comma or the closing brace.
    fn sequence(&mut self, in_group: bool) -> Result<Vec<String>, String> {
        let mut all = vec![String::new()];
        let push = |all: &mut Vec<String>, text: &str| all.iter_mut().for_each(|one| one.push_str(text));
        while let Some(&here) = self.text.get(self.at) {
            let start = self.at;
            self.at += 1;
            match here {
                ',' | '}' if in_group => {
                    self.at = start;
                    break;
                }
                '}' => return Err(r"'}' without '{'; write \} for a brace that is part of a name".into()),
                '{' => {
                    let group = self.group()?;
                    if all.len() * group.len() > MOST {
                        return Err(format!("the braces stand for more than {MOST} patterns"));
                    }
                    all = all.iter().flat_map(|one| group.iter().map(move |other| format!("{one}{other}"))).collect();
                }
                '[' => {
                    let end = class_end(self.text, start)
                        .ok_or(r"'[' without ']'; write \[ for a bracket that is part of a name")?;
                    push(&mut all, &self.text[start..end].iter().collect::<String>());
                    self.at = end;
                }
                '\\' => match self.text.get(self.at) {
                    Some(&special @ ('*' | '?' | '[' | ']' | '~')) => {
                        self.at += 1;
                        push(&mut all, &format!("[{special}]"));
                    }
                    Some(&special @ ('{' | '}' | ',' | '\\')) => {
                        self.at += 1;
                        push(&mut all, special.encode_utf8(&mut [0; 4]));
                    }
                    _ => push(&mut all, "\\"),
                },
                other => push(&mut all, other.encode_utf8(&mut [0; 4])),
            }
        }
        Ok(all)
    }

    /// Expands a group, after its opening brace.
    fn group(&mut self) -> Result<Vec<String>, String> {
        let start = self.at;
        let mut all = Vec::new();
        let mut commas = 0;
        loop {
            all.extend(self.sequence(true)?);
            if all.len() > MOST {
                return Err(format!("the braces stand for more than {MOST} patterns"));
            }
            self.at += 1;
            match self.text.get(self.at - 1) {
                Some(',') => commas += 1,
                Some('}') => break,
                _ => return Err(r"'{' without '}'; write \{ for a brace that is part of a name".into()),
            }
        }
        if commas == 0 {
            let inside: String = self.text[start..self.at - 1].iter().collect();
            if inside.contains("..") {
                return Err(format!("{{{inside}}} is not supported; list the alternatives, as in {{1,2,3}}"));
            }
            // As in a shell, braces without a comma are part of the name.
            all.iter_mut().for_each(|one| *one = format!("{{{one}}}"));
        }
        Ok(all)
    }
}

/// The index after the class that begins at `start`, as the crate `glob` reads it.
fn class_end(text: &[char], start: usize) -> Option<usize> {
    // The first character of a class may be a bracket.
    let first = start + if text.get(start + 1) == Some(&'!') { 3 } else { 2 };
    text.get(first..)?.iter().position(|&one| one == ']').map(|end| first + end + 1)
}

/// Expands `~`, and the trailing slash that means a folder.
fn finish(mut pattern: String, home: Option<&str>) -> Result<String, String> {
    if pattern.is_empty() {
        return Err("it stands for an empty name".into());
    }
    if let Some(rest) = pattern.strip_prefix('~') {
        if !(rest.is_empty() || rest.starts_with('/')) {
            return Err(format!(
                "{pattern}: of ~ only your own home folder is understood; write another user's as a path, and \\~ for a \
                 name that begins so"
            ));
        }
        let home =
            home.filter(|home| home.starts_with('/')).ok_or("~ is the home folder, and HOME does not name it")?;
        pattern =
            format!("{}{}", Pattern::escape(home.trim_end_matches('/')), if rest.is_empty() { "/" } else { rest });
    }
    if pattern.ends_with('/') {
        pattern.push_str("**");
    }
    Pattern::new(&pattern).map_err(|error| explain(&pattern, &error))?;
    Ok(pattern)
}

fn explain(pattern: &str, error: &PatternError) -> String {
    if pattern.contains("**") {
        "** stands for any number of folders, alone between slashes, as in data/**/*.db".into()
    } else {
        error.msg.into()
    }
}

/// Escapes, outside classes, whatever [`expand`] would expand.
fn escape_braces(pattern: &str) -> String {
    let text: Vec<char> = pattern.chars().collect();
    let mut escaped = String::new();
    let mut at = 0;
    while let Some(&here) = text.get(at) {
        let end = if here == '[' { class_end(&text, at).unwrap_or(at + 1) } else { at + 1 };
        if matches!(here, '{' | '}' | ',' | '\\') {
            escaped.push('\\');
        }
        escaped.extend(&text[at..end]);
        at = end;
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use famio_test_support::random::Random;

    fn all(glob: &str) -> Vec<String> {
        expand(glob, Some("/home/me [1]")).unwrap_or_else(|error| panic!("{glob}: {error}"))
    }

    #[test]
    fn braces_stand_for_several_patterns() {
        for (glob, patterns) in [
            ("a.db", vec!["a.db"]),
            ("{a,b}.db", vec!["a.db", "b.db"]),
            ("app.db{,-wal}", vec!["app.db", "app.db-wal"]),
            ("x{a,{b,c}d,e}*", vec!["xa*", "xbd*", "xcd*", "xe*"]),
            ("{a,b}{1,2}", vec!["a1", "a2", "b1", "b2"]),
            ("{dir/a,/abs/b}", vec!["dir/a", "/abs/b"]),
            ("a,b", vec!["a,b"]),
            ("{1f3-9a}.db", vec!["{1f3-9a}.db"]),
            (r"\{a,b\}", vec!["{a,b}"]),
            (r"{a\,b,c\}}", vec!["a,b", "c}"]),
            ("[{,}]{a,[b,}]}", vec!["[{,}]a", "[{,}][b,}]"]),
            (r"a\*\?\[\]", vec!["a[*][?][[][]]"]),
            (r"\~x", vec!["[~]x"]),
            (r"back\slash\", vec![r"back\slash\"]),
            (r"two\\", vec![r"two\"]),
            ("data/", vec!["data/**"]),
            ("{a,b}/", vec!["a/**", "b/**"]),
            ("/", vec!["/**"]),
            ("~", vec!["/home/me [[]1[]]/**"]),
            ("~/a{b,c}", vec!["/home/me [[]1[]]/ab", "/home/me [[]1[]]/ac"]),
            ("{~/a,b~}", vec!["/home/me [[]1[]]/a", "b~"]),
        ] {
            assert_eq!(all(glob), patterns, "{glob}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for (glob, word) in [
            ("{a,b", "'{' without '}'"),
            ("{a,{b}", "'{' without '}'"),
            ("a}", "'}' without '{'"),
            ("a[b", "'[' without ']'"),
            ("{a,[}", "'[' without ']'"),
            ("[]", "'[' without ']'"),
            ("[!]", "'[' without ']'"),
            ("{1..3}", "{1,2,3}"),
            ("{a,}", "empty"),
            ("", "empty"),
            ("~other/x", "another user's"),
            ("a**b", "data/**/*.db"),
            ("a/***/b", "data/**/*.db"),
            (&"{a,b}".repeat(11), "1024"),
        ] {
            let error = expand(glob, Some("/h")).unwrap_err();
            assert!(error.contains(word), "{glob}: {error}");
        }
        for home in [None, Some(""), Some("relative")] {
            assert!(expand("~/x", home).unwrap_err().contains("HOME"), "{home:?}");
        }
    }

    #[test]
    fn patterns_can_be_written_as_one_glob() {
        for glob in
            ["a.db", "{a,b}.db", r"\{a\,b\}", r"{x\,y,z\\}", "[{,}]{a,b}", r"\~x", "~/{a,b}/", r"a\b", "{u}", r"\[x\*"]
        {
            let patterns = all(glob);
            assert_eq!(expand(&join(&patterns), None).unwrap(), patterns, "{glob}: {}", join(&patterns));
        }
    }

    /// The escaped form of any file name selects that name, and no other.
    #[test]
    fn names_are_escaped() {
        let pieces = ["a", "{", "}", ",", "\\", "~", "*", "?", "[", "]", "!", "..", "é", " "];
        let mut random = Random::new(7);
        for _ in 0..3000 {
            let mut name = String::new();
            for _ in 0..1 + random.below(6) {
                name.push_str(pieces[random.below(pieces.len() as u64) as usize]);
            }
            let patterns = all(&escape(&name));
            assert_eq!(patterns.len(), 1, "{name}: {patterns:?}");
            assert!(Pattern::new(&patterns[0]).unwrap().matches(&name), "{name}: {patterns:?}");
            assert_eq!(literal(&patterns[0]).as_ref(), Some(&name), "{patterns:?}");
            assert!(!has_bare_comma(&escape(&name)), "{name}");
        }
    }

    #[test]
    fn bare_commas() {
        for (glob, bare) in [
            ("a.db,b.db", true),
            ("*.db,*.sqlite", true),
            ("{a,b}.db", false),
            ("{a,b},c", true),
            (r"a\,b", false),
            ("[,]", false),
            ("a", false),
        ] {
            assert_eq!(has_bare_comma(glob), bare, "{glob}");
        }
    }
}
