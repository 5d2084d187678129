//! Checks the documentation: every link leads to an existing file and heading, the sections that code, manual pages
//! and tests name exist, and lines fit a terminal.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The pages of a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = entries.filter(|path| path.extension().is_some_and(|name| name == "md")).collect();
    pages.sort();
    pages
}

/// The text of a page without its code blocks, where brackets have another meaning.
fn prose(page: &Path) -> String {
    let text = std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    text.split("\n```").step_by(2).collect()
}

/// The targets of a page's links.
fn targets(page: &Path) -> Vec<String> {
    let text = prose(page);
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_string())).collect()
}

/// The anchors of a page, as GitHub derives them from its headings.
fn anchors(page: &Path) -> Vec<String> {
    let text = prose(page);
    let headings = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let is_kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    headings
        .map(|heading| heading.to_lowercase().chars().filter(is_kept).collect::<String>().replace(' ', "-"))
        .collect()
}

/// What is wrong with a link, if anything.
fn broken(page: &Path, target: &str) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("http://") || target.starts_with("mailto:") {
        return None; // the tests use no network
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.into() } else { page.parent().unwrap().join(file) };
    let name = page.display();
    if !path.exists() {
        return Some(format!("{name}: {target}: no such file"));
    }
    let is_there = anchor.is_empty() || anchors(&path).iter().any(|known| known == anchor);
    (!is_there).then(|| format!("{name}: {target}: no such heading"))
}

/// All pages of the documentation.
fn all_pages() -> Vec<PathBuf> {
    let root = root();
    let mut all = [pages(&root), pages(&root.join("docs"))].concat();
    all.extend(["python/README.md", "tests/protocol-model/README.md"].map(|page| root.join(page)));
    all
}

#[test]
fn every_link_leads_somewhere() {
    let all = all_pages();
    let links: Vec<_> =
        all.iter().flat_map(|page| targets(page).into_iter().map(move |target| (page, target))).collect();
    assert!(links.len() > 50, "{links:?}");
    let broken: Vec<_> = links.iter().filter_map(|(page, target)| broken(page, target)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_overview_leads_to_every_page() {
    let docs = root().join("docs");
    let overview = docs.join("README.md");
    let linked = targets(&overview);
    for page in pages(&docs).into_iter().filter(|page| *page != overview) {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(
            linked.iter().any(|target| target.split('#').next() == Some(name)),
            "docs/README.md has no link to {name}"
        );
    }
}

/// The project's files below a folder, except build output.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name());
        let (kind, name) = (entry.file_type().unwrap(), name.to_str().unwrap());
        if kind.is_dir() && name != "target" && !name.starts_with('.') {
            files(&path, found);
        } else if kind.is_file()
            && [".rs", ".py", ".txt", ".c", ".h", ".7", ".5", ".3"].iter().any(|end| name.ends_with(end))
        {
            found.push(path);
        }
    }
}

/// Sections that a text names, such as `docs/format.md, "Growing files"` or `docs/format.md, *A write*`: the page and
/// the heading.
fn named_sections(text: &str) -> Vec<(&str, &str)> {
    let mentions = text.split("docs/").skip(1).filter_map(|rest| rest.split_once(".md"));
    mentions
        .filter(|(page, _)| page.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
        .filter_map(|(page, rest)| {
            let rest = rest.trim_start_matches('`').strip_prefix(", ")?;
            let end = rest.chars().next().filter(|first| "\"*".contains(*first))?;
            Some((page, rest[1..].split_once(end)?.0))
        })
        .collect()
}

#[test]
fn sections_that_are_named_are_there() {
    let root = root();
    let mut sources = Vec::new();
    ["crates", "tests", "man", "include", "fuzz/src"].iter().for_each(|folder| files(&root.join(folder), &mut sources));
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/docs.rs").canonicalize().unwrap();
    let mut named = 0;
    let mut missing = Vec::new();
    for source in sources.iter().filter(|source| **source != own) {
        let Ok(text) = std::fs::read_to_string(source) else { continue };
        for (page, heading) in named_sections(&text) {
            named += 1;
            let path = root.join("docs").join(format!("{page}.md"));
            let is_there =
                path.exists() && prose(&path).lines().any(|line| line.trim_start_matches('#').trim() == heading);
            if !is_there {
                missing.push(format!("{}: docs/{page}.md has no section '{heading}'", source.display()));
            }
        }
    }
    assert!(named >= 3, "only {named} are named");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Except in tables, whose rows cannot be wrapped.
#[test]
fn lines_fit_a_terminal() {
    const WIDEST: usize = 125;
    let mut wide = Vec::new();
    for page in all_pages() {
        for (number, line) in (1..).zip(std::fs::read_to_string(&page).unwrap().lines()) {
            if line.chars().count() > WIDEST && !line.starts_with('|') {
                wide.push(format!("{}:{number}", page.display()));
            }
        }
    }
    assert!(wide.is_empty(), "more than {WIDEST} columns: {wide:#?}");
}

/// A manual page without the font changes and escapes of its source.
fn manual(name: &str) -> String {
    std::fs::read_to_string(root().join("man").join(name)).unwrap().replace("\\-", "-")
}

/// The variables that `famio run` passes on are those of nvopen(3), except for those that mean nothing to libfamio, and
/// the keys of famio.toml(5).
#[test]
fn manual_pages_list_every_setting() {
    let source = include_str!("../src/settings/environment.rs").split("#[cfg(test)]").next().unwrap();
    let mut settings: Vec<_> = source.split("\"FAMIO_").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    settings.sort_unstable();
    let known = manual("nvopen.3");
    let known = known.split(".SH ENVIRONMENT").nth(1).unwrap().split(".SH ").next().unwrap();
    let list = known.split("\n.PP\n").find(|part| part.starts_with("FAMIO_")).unwrap();
    let mut listed: Vec<_> = list.split([',', '.', ' ', '\n']).filter_map(|word| word.strip_prefix("FAMIO_")).collect();
    listed.sort_unstable();
    let only_run = ["ATOMIC", "ASYNC_IO", "DEFER_CLOSE", "REQUIRE"];
    let of_libfamio: Vec<_> = settings.iter().copied().filter(|name| !only_run.contains(name)).collect();
    assert_eq!(listed, of_libfamio, "nvopen(3)");
    let page = manual("famio.toml.5");
    let key = |name: &&str| if *name == "GROUPS" { "group".into() } else { name.to_lowercase().replace('_', "-") };
    let missing: Vec<_> = settings.iter().map(key).filter(|key| !page.contains(&format!(".TP\n.B {key}\n"))).collect();
    assert!(missing.is_empty(), "famio.toml(5) lacks {missing:?}");
}

#[test]
fn spelling_is_british() {
    const AMERICAN: [&str; 6] = ["behavior", "favor", "honor", "license", "neighbor", "recogniz"];
    let is_american = |word: &str| AMERICAN.iter().any(|start| word.to_lowercase().starts_with(start));
    let mut found = Vec::new();
    for page in all_pages() {
        let text = prose(&page);
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| is_american(word));
        found.extend(words.filter(|&word| word != "LICENSE").map(|word| format!("{}: {word}", page.display())));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_section_is_found_by_its_name() {
    let text = "see docs/a-b.md, \"One: two\"; `docs/c.md`, *Three*; docs/d.md and docs/E.md, \"no page\"";
    assert_eq!(named_sections(text), [("a-b", "One: two"), ("c", "Three")]);
}

/// The files of the library that docs/architecture.md names exist, and have the function that it names behind one.
#[test]
fn the_code_is_where_the_architecture_says() {
    let root = root();
    let mut sources = Vec::new();
    ["crates", "tests", "python/src"].iter().for_each(|folder| files(&root.join(folder), &mut sources));
    let text = prose(&root.join("docs/architecture.md"));
    let (mut named, mut missing) = (0, Vec::new());
    let is_name = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
    for (at, _) in text.match_indices(".rs`") {
        let path = &text[text[..at].rfind('`').unwrap() + 1..at + 3];
        named += 1;
        let mut found = sources.iter().filter(|source| source.ends_with(path)).peekable();
        if found.peek().is_none() {
            missing.push(path.to_string());
            continue;
        }
        let behind = text[at + 4..].strip_prefix(',').map(|rest| rest.trim_start().split('`').collect::<Vec<_>>());
        let Some(name) = behind.filter(|parts| parts[0].is_empty()).and_then(|parts| parts.get(1).copied()) else {
            continue;
        };
        let last = name.rsplit("::").next().unwrap();
        if is_name(&name) && !found.any(|source| std::fs::read_to_string(source).unwrap().contains(last)) {
            missing.push(format!("{path}: {name}"));
        }
    }
    assert!(named > 80, "only {named} are named");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("a.md");
    std::fs::write(
        &page,
        "# The `one` title: 1\n\n```\n# code\n[x](none)\n```\n[a](#the-one-title-1) [b](b.md) [c](#code)\n",
    )
    .unwrap();
    let found: Vec<_> = targets(&page).iter().filter_map(|target| broken(&page, target)).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].ends_with("b.md: no such file") && found[1].ends_with("#code: no such heading"), "{found:?}");
}
