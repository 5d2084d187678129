//! `famio top`: the files in use and their activity each second, live on a terminal.

use super::columns::{fitting, shortened, used};
use super::now::{File, Now};
use super::runs::Run;
use super::times::{Quantiles, quantile, shown};
use crate::failure::{FAILED, Failure};
use crate::text::{bytes, count, name};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Show what is done to the atomic files that are in use, live
///
/// Each second: SYNCs, writes, bytes written, bytes to the journal, write-backs and hand-overs of each file, the 99th
/// percentile of the time of its SYNCs and writes, and the bytes that no SYNC covers yet. The command takes no lock
/// and ends no lease.
///
/// q quits, s sorts by the next column, p pauses and resumes. A narrow terminal shows fewer columns, and paths begin
/// with an ellipsis.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
}

const HEAD: [&str; 11] = [
    "SYNC/s",
    "WRITE/s",
    "WRITTEN/s",
    "JOURNAL/s",
    "BACK/s",
    "HAND/s",
    "SYNC 99%",
    "WRITE 99%",
    "OPEN",
    "PROC",
    "FILE",
];
/// Columns to the right of these are text.
const NUMBERS: usize = 10;
/// The order in which columns are dropped on a narrow terminal: HAND/s, BACK/s, PROC, WRITE 99%, JOURNAL/s, OPEN,
/// SYNC 99%, WRITTEN/s, WRITE/s.
const LEAVES_FIRST: [usize; 9] = [5, 4, 9, 7, 3, 8, 6, 2, 1];

/// Looks and draws until the user ends it.
pub fn main(args: Args) -> Result<i32, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::new(2, "famio top needs a terminal; for scripts there is: famio stats --json"));
    }
    let failed = |error: io::Error| Failure::new(FAILED, format!("terminal: {error}"));
    let screen = Screen::begin().map_err(failed)?;
    let watched = watch(Duration::from_secs(args.interval));
    drop(screen);
    watched.map(|()| 0).map_err(failed)
}

/// The terminal in the program's mode, until dropped.
struct Screen;

impl Screen {
    fn begin() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

fn watch(interval: Duration) -> io::Result<()> {
    let mut before: (Now, Instant) = (Now::look(), Instant::now());
    let mut now: (Now, Instant) = (before.0.clone(), before.1);
    let (mut sorted_by, mut is_stopped) = (0, false);
    loop {
        draw(&before.0, &now.0, now.1 - before.1, sorted_by, is_stopped)?;
        let due = now.1 + interval;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() && !is_stopped {
                break;
            }
            if !event::poll(if is_stopped { Duration::from_secs(3600) } else { left })? {
                continue;
            }
            match event::read()? {
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    KeyCode::Char('s') => sorted_by = (sorted_by + 1) % HEAD.len(),
                    KeyCode::Char('p') => is_stopped = !is_stopped,
                    _ => continue,
                },
                Event::Resize(..) => {}
                _ => continue,
            }
            draw(&before.0, &now.0, now.1 - before.1, sorted_by, is_stopped)?;
        }
        before = now;
        now = (Now::look(), Instant::now());
    }
}

/// A row: the sort keys, and the text.
fn row(before: Option<&File>, file: &File, seconds: f64) -> ([f64; NUMBERS], Vec<String>) {
    // A new file, or one whose counts began again, has no rate yet.
    let rate = |of: fn(&File) -> u64| match before {
        Some(before) if of(file) >= of(before) && seconds > 0.0 => (of(file) - of(before)) as f64 / seconds,
        _ => 0.0,
    };
    let none = File::default();
    let last = before.unwrap_or(&none);
    let slow = |now: &Quantiles, before: &Quantiles| quantile(&now.since(before), 99);
    let (sync, write) =
        (slow(&file.sync_nanoseconds, &last.sync_nanoseconds), slow(&file.write_nanoseconds, &last.write_nanoseconds));
    let numbers = [
        rate(|file| file.syncs),
        rate(|file| file.writes),
        rate(|file| file.written_bytes),
        rate(|file| file.journal_bytes),
        rate(|file| file.write_backs),
        rate(|file| file.hand_overs.into()),
        sync.unwrap_or(0) as f64,
        write.unwrap_or(0) as f64,
        file.open_bytes as f64,
        file.processes.len() as f64,
    ];
    let whole = |at: usize| format!("{:.0}", numbers[at]);
    let size = |at: usize| bytes(numbers[at] as u64);
    let path = file.file.as_deref().map_or("-".into(), |file| name(Path::new(file)));
    let waits = if file.waiting > 0 { format!("({} waiting for a lock) ", file.waiting) } else { String::new() };
    // For a growing file, nothing is counted.
    let counted = |cell: String| if file.is_counted() { cell } else { "-".into() };
    let cells = vec![
        counted(whole(0)),
        counted(whole(1)),
        counted(size(2)),
        counted(size(3)),
        counted(whole(4)),
        counted(whole(5)),
        shown(sync),
        shown(write),
        size(8),
        whole(9),
        waits + &path,
    ];
    (numbers, cells)
}

/// The lines of a screen of that width.
fn lines(before: &Now, now: &Now, passed: Duration, sorted_by: usize, is_stopped: bool, screen: usize) -> Vec<String> {
    let seconds = passed.as_secs_f64();
    let mut rows: Vec<_> = now
        .files
        .iter()
        .map(|file| row(before.files.iter().find(|other| other.id == file.id), file, seconds))
        .collect();
    if sorted_by < NUMBERS {
        rows.sort_by(|a, b| b.0[sorted_by].total_cmp(&a.0[sorted_by]));
    }
    let mut table: Vec<Vec<String>> = vec![HEAD.map(String::from).to_vec()];
    table.extend(rows.into_iter().map(|(_, cells)| cells));
    let widths: Vec<usize> =
        (0..NUMBERS).map(|at| table.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    let longest = table.iter().map(|row| row[NUMBERS].chars().count()).max().unwrap_or(0);
    let shown = fitting(&widths, &LEAVES_FIRST, longest, screen);
    let room = screen.saturating_sub(used(&widths, &shown));
    let processes: std::collections::BTreeSet<u32> = now.files.iter().flat_map(|file| file.processes.clone()).collect();
    let sum = |of: fn(&Run) -> u64| now.runs.iter().map(of).fold(0, u64::saturating_add);
    let mut lines = vec![
        format!(
            "famio top: {}, {}, {} demoted, {}{}",
            count(now.files.len() as u64, "file"),
            if processes.len() == 1 { "1 process".into() } else { format!("{} processes", processes.len()) },
            sum(|run| run.demotions),
            count(sum(|run| run.conflicts), "conflict"),
            if is_stopped { "   STOPPED" } else { "" },
        ),
        format!("sorted by {}   q: end   s: sort   p: stop", HEAD[sorted_by]),
        String::new(),
    ];
    for row in table {
        let cell = |&column: &usize| format!("{:>width$}", row[column], width = widths[column]);
        let numbers: Vec<String> = shown.iter().map(cell).collect();
        lines.push(format!("{}  {}", numbers.join("  "), shortened(&row[NUMBERS], room)));
    }
    if now.files.is_empty() {
        lines.push("no process uses atomic files".into());
    }
    lines
}

fn draw(before: &Now, now: &Now, passed: Duration, sorted_by: usize, is_stopped: bool) -> io::Result<()> {
    let (width, height) = terminal::size()?;
    let lines = lines(before, now, passed, sorted_by, is_stopped, width.into());
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (at, line) in lines.iter().take(height.into()).enumerate() {
        let shown: String = line.chars().take(width.into()).collect();
        queue!(out, MoveTo(0, at as u16))?;
        out.write_all(shown.as_bytes())?;
        queue!(out, Clear(ClearType::UntilNewLine))?;
    }
    if lines.len() < height.into() {
        queue!(out, MoveTo(0, lines.len() as u16), Clear(ClearType::FromCursorDown))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: &str, syncs: u64, written_bytes: u64) -> File {
        let file = Some(format!("/data/{id}"));
        File { id: id.into(), file, syncs, written_bytes, processes: vec![7], ..File::default() }
    }

    #[test]
    fn rates_are_of_the_time_between_and_files_that_began_anew_have_none() {
        let now = |files| Now { files, runs: Vec::new() };
        let before = now(vec![file("a", 10, 0), file("b", 100, 0)]);
        let after = now(vec![file("a", 30, 4096), file("b", 50, 0), file("c", 5, 0)]);
        let shown = lines(&before, &after, Duration::from_secs(2), 0, false, 120);
        assert!(shown[0].starts_with("famio top: 3 files, 1 process, 0 demoted, 0 conflicts"), "{shown:?}");
        let cells = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert!(shown[4].ends_with("/data/a"), "{shown:?}");
        assert_eq!(cells(&shown[4])[..4], ["10", "0", "2.0", "KiB"]);
        assert_eq!(cells(&shown[5])[0], "0");
    }

    /// At 80 columns the file was missing, and at 100 its name was cut off.
    #[test]
    fn the_files_own_name_is_on_every_screen() {
        let long = "a-folder/with-a-long-name/and-another-one/application.db";
        let now = Now { files: vec![file(long, 1, 1), file("b", 1, 1)], runs: Vec::new() };
        for (screen, column) in [(80, "WRITTEN/s"), (100, "OPEN"), (200, "HAND/s")] {
            let shown = lines(&now, &now, Duration::from_secs(1), 0, false, screen);
            assert!(shown[3].contains("FILE") && shown[3].contains(column), "{shown:?}");
            assert!(shown.iter().any(|line| line.ends_with("application.db")), "{shown:?}");
            assert!(shown.iter().all(|line| line.chars().count() <= screen), "{shown:?}");
        }
    }
}
