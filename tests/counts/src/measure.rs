//! Counts one path under callgrind.

use crate::machine::Machine;
use crate::paths::{HotPath, Medium, Through};
use famio::Settings;
use famio::pmem::{Domain, detect};
use famio_test_support::place::{self, Place};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Not counted: about once a millisecond, a SYNC checks whether the journal still exists, so a slower machine checks
/// more often.
const BY_THE_CLOCK: &str = "famio::journal::live::Live::is_named";

/// A path's count.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub name: &'static str,
    /// Instructions.
    pub per_operation: f64,
    /// The range of several counts, as a share of the lowest.
    pub spread: Option<f64>,
}

pub fn is_valgrind_there() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The folders for files.
pub struct Places {
    memory: Place,
    /// `None`: the build folder is in memory, too.
    disk: Option<Place>,
}

impl Places {
    pub fn new() -> Result<Self, String> {
        // Calls that take paths count by their length, and process ids differ in length.
        let name = format!("famio-counts{}", "-".repeat(10usize.saturating_sub(std::process::id().to_string().len())));
        let disk = place::disk()?;
        let disk = if is_disk(&disk) { Some(Place::new(&disk, &name)?) } else { None };
        Ok(Self { memory: Place::new(place::memory(), &name)?, disk })
    }

    /// The folder for a path.
    pub fn of(&self, path: &HotPath) -> Option<&Path> {
        match path.medium {
            Medium::Memory => Some(self.memory.path()),
            Medium::Disk => self.disk.as_ref().map(Place::path),
        }
    }
}

fn is_disk(folder: &Path) -> bool {
    let Ok(folder) = std::fs::File::open(folder) else { return false };
    detect(folder.as_fd(), &Settings::default()).is_ok_and(|found| found.domain == Domain::PageCache)
}

/// The median of `rounds` counts, with files in a folder of `parent`.
pub fn median(path: &HotPath, parent: &Path, rounds: u32) -> Result<Measured, String> {
    let counts: Result<Vec<f64>, _> = (0..rounds).map(|_| one(path, parent)).collect();
    let mut counts = counts?;
    counts.sort_by(f64::total_cmp);
    let (least, most) = (counts[0], counts[counts.len() - 1]);
    let spread = (rounds > 1).then_some(most / least - 1.0);
    Ok(Measured { name: path.name, per_operation: counts[counts.len() / 2], spread })
}

/// The machine as a program under valgrind sees it.
pub fn machine() -> Result<Machine, String> {
    let said = succeed(valgrind("none", &[])?.arg("machine"))?;
    let mut machine = Machine::default();
    said.lines().for_each(|line| {
        machine.take(line);
    });
    Ok(machine)
}

fn one(path: &HotPath, parent: &Path) -> Result<f64, String> {
    let folder = parent.join(format!("{:-<20}", path.name));
    let named = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir(&folder).map_err(|error| named(&folder, error))?;
    let out = parent.join("callgrind.out");
    let mut file = OsString::from("--callgrind-out-file=");
    file.push(&out);
    // Counts only the thread that is in this function, and only while it is.
    let options = ["--toggle-collect=famio_counted".into(), "--compress-strings=no".into(), file];
    let mut command = valgrind("callgrind", &options)?;
    if path.through == Through::Interposer {
        let glob = folder.join("*.db");
        command.env("LD_PRELOAD", interposer()?).env("FAMIO_ATOMIC", glob).env("FAMIO_REQUIRE", "1");
        if path.medium == Medium::Memory {
            command.env("FAMIO_DOMAIN", "emulated");
        }
    }
    succeed(command.arg("run").arg(path.name).arg(&folder))?;
    std::fs::remove_dir_all(&folder).map_err(|error| named(&folder, error))?;
    let text = std::fs::read_to_string(&out).map_err(|error| named(&out, error))?;
    let count = total(&text).and_then(|all| all.checked_sub(calls_of(BY_THE_CLOCK, &text))).filter(|&count| count > 0);
    let count = count.ok_or_else(|| format!("{}: callgrind counted nothing", path.name))?;
    Ok(count as f64 / f64::from(path.operations))
}

/// The total at the end of callgrind's file.
fn total(text: &str) -> Option<u64> {
    text.lines().rev().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// The cost of all calls of a function, including what it calls.
fn calls_of(function: &str, text: &str) -> u64 {
    let (mut lines, mut sum) = (text.lines(), 0);
    while let Some(line) = lines.next() {
        if line.starts_with("cfn=") && line.contains(function) {
            // calls=NUMBER PLACE, followed by a line that ends with the cost.
            let cost = lines.nth(1).and_then(|line| line.split_whitespace().last()?.parse::<u64>().ok());
            sum += cost.unwrap_or(0);
        }
    }
    sum
}

/// This program under a tool of valgrind, without the user's settings.
fn valgrind(tool: &str, options: &[OsString]) -> Result<Command, String> {
    let mut command = Command::new("valgrind");
    command.args(["-q", &format!("--tool={tool}")]).args(options).arg(me()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FAMIO_") || name == "LD_PRELOAD" || name == "VALGRIND_OPTS" {
            command.env_remove(name);
        }
    }
    Ok(command)
}

fn me() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))
}

fn interposer() -> Result<PathBuf, String> {
    let library = me()?.with_file_name("libfamio_preload.so");
    if library.exists() { Ok(library) } else { Err(format!("{}: not built; run 'make' first", library.display())) }
}

fn succeed(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("valgrind: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{command:?}: {}\n{}", output.status, text(&output.stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_a_file() {
        assert_eq!(total("events: Ir\nfn=(1) a\n1 5\n\ntotals: 123456\n"), Some(123_456));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn the_calls_of_a_function() {
        let text =
            "fn=a\n1 5\ncfi=x.rs\ncfn=b::c\ncalls=2 7\n+3 40\n2 1\ncfn=d\ncalls=1 7\n9 100\ncfn=b::c\ncalls=1 7\n* 2\n";
        assert_eq!([calls_of("b::c", text), calls_of("d", text), calls_of("e", text)], [42, 100, 0]);
    }
}
