//! A table of cases for what POSIX and Linux define for files. Each case runs twice, in separate folders: on plain
//! files without Famio, and on atomic files under it. Results and final state must be the same, except for the
//! differences listed with a reason.

mod case;
mod changing_rights;
mod io;
mod maps;
mod names;
mod open;
mod rights;
mod script;
mod size;
mod suites;
mod times;

use crate::left;
use crate::setup::Setup;
use case::{Case, Differs};
use famio_test_support::launch::literal;
use famio_test_support::place::Place;
use script::Script;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const ALL: [&[Case]; 9] = [
    open::CASES,
    names::CASES,
    size::CASES,
    times::CASES,
    rights::CASES,
    io::CASES,
    maps::CASES,
    suites::CASES,
    changing_rights::CASES,
];

fn cases() -> impl Iterator<Item = &'static Case> {
    ALL.into_iter().flatten()
}

/// The program under test: one case, in the current folder; its transcript goes to stdout.
pub fn script(name: &str) -> Result<bool, String> {
    let case = cases().find(|case| case.name == name).ok_or_else(|| format!("{name}: no such case"))?;
    let mut script = Script::default();
    (case.run)(&mut script);
    print!("{}", script.text());
    Ok(true)
}

/// Runs all cases whose names begin with `begin`, in these setups. Returns whether all were right.
pub fn run(setups: &[Setup], begin: &str) -> Result<bool, String> {
    let started = Instant::now();
    let (mut count, mut found, mut listed) = (0, 0, 0);
    for setup in setups {
        for case in cases().filter(|case| case.name.starts_with(begin)) {
            count += 1;
            match several_times(setup, case) {
                Ok(differences) => listed += differences,
                Err(why) => {
                    found += 1;
                    println!("FOUND: {} on {}: {}", case.name, setup.name(), why.replace('\n', "\n  "));
                }
            }
        }
    }
    let verdict = if found == 0 { "ok" } else { "NOT OK" };
    println!(
        "total: {count} cases in {} setups, {listed} listed differences, {found} found, {:.0} s: {verdict}",
        setups.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(found == 0)
}

/// A case that checks times may come out differently if the worker was not scheduled for so long that the background
/// checkpointed an atomic file; but not three times in a row.
fn several_times(setup: &Setup, case: &Case) -> Result<usize, String> {
    let times = if case.name.starts_with("times/") { 3 } else { 1 };
    let first = one(setup, case);
    (1..times).fold(first, |last, _| last.or_else(|_| one(setup, case)))
}

/// Returns the number of listed differences.
fn one(setup: &Setup, case: &Case) -> Result<usize, String> {
    let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let (plain, atomic) = (setup.place()?, setup.place()?);
    let expected = transcript(Command::new(&me), &plain, case)?;
    let mut glob: OsString = literal(atomic.path());
    glob.push("/**/atomic*");
    let mut command = setup.famio()?.run(&[glob]);
    command.arg(&me);
    let seen = transcript(command, &atomic, case)?;
    let listed = compare(case, setup, &expected, &seen)?;
    let files = files(atomic.path());
    left::of(atomic.path(), &files.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    Ok(listed)
}

fn transcript(mut command: Command, place: &Place, case: &Case) -> Result<String, String> {
    command.args(["case", case.name]).current_dir(place.path());
    let done = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let (text, said) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if done.status.success() { Ok(text.into_owned()) } else { Err(format!("{}\n{text}{said}", done.status)) }
}

fn compare(case: &Case, setup: &Setup, expected: &str, seen: &str) -> Result<usize, String> {
    let mut wrong = Vec::new();
    let mut unused: Vec<&Differs> =
        case.differs.iter().filter(|differs| differs.on.is_none_or(|only| setup.is(only))).collect();
    let (plain, atomic): (Vec<_>, Vec<_>) = (expected.lines().collect(), seen.lines().collect());
    let listed: Vec<&Differs> = unused.clone();
    let mut count = 0;
    for (number, (plain, atomic)) in plain.iter().zip(&atomic).enumerate().filter(|(_, (a, b))| a != b) {
        match listed.iter().find(|differs| plain.starts_with(differs.line)) {
            Some(differs) => {
                count += 1;
                unused.retain(|other| other.line != differs.line);
            }
            None => wrong.push(format!("line {}: plain {plain:?}, atomic {atomic:?}", number + 1)),
        }
    }
    if plain.len() != atomic.len() {
        wrong.push(format!("{} lines for {}", atomic.len(), plain.len()));
    }
    wrong.extend(unused.iter().map(|differs| format!("{:?} is the same, but listed: {}", differs.line, differs.why)));
    if wrong.is_empty() { Ok(count) } else { Err(format!("{}\nplain:\n{expected}", wrong.join("\n"))) }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && entry.file_name() != ".famio" => all.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
    all
}
