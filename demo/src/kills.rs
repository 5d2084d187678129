//! The two acts: the import under Famio with 20 kills, and the same without Famio.

use crate::import::{Found, Import};
use crate::paint::{bad, good, head};
use famio_test_support::launch::{Famio, Launcher};
use famio_test_support::random::Random;
use famio_test_support::session::{self, Ended, Kill};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Kills of each act.
const KILLS: u64 = 20;
/// Longest time from the first acknowledged transaction to the kill.
const LONGEST: Duration = Duration::from_millis(300);
/// The act without Famio ends here even if nothing broke.
const PATIENCE: Duration = Duration::from_secs(25);

/// Kills until one hits; the last number that was acknowledged.
fn work(
    import: Import<'_>,
    launcher: &Launcher,
    database: &Path,
    first: u64,
    random: &mut Random,
) -> Result<(u64, Ended), String> {
    for _ in 0..10 {
        let kill = Kill::AfterFirstLine(random.time_up_to(LONGEST));
        let ended = session::run(launcher, database, import.statements(first), kill)?;
        if ended.killed {
            return Ok((ended.acknowledged().last().unwrap_or(first - 1), ended));
        }
        let message = ended.messages.trim();
        if !message.is_empty() {
            return Err(format!("sqlite3 stopped by itself: {message}"));
        }
    }
    Err("sqlite3 could not be killed in the middle of its work".into())
}

/// Act one. Whether all went well.
pub fn with_famio(import: Import<'_>, famio: &Famio, folder: &Path, random: &mut Random) -> Result<bool, String> {
    println!("{}", head(&format!("Under Famio: {KILLS} times SIGKILL in the middle of the import")));
    println!("  famio run --atomic packages.db -- sqlite3 packages.db");
    let launcher = Launcher::new(Some(famio.clone()))?;
    let database = folder.join("packages.db");
    let mut next = 1;
    let mut sound = true;
    for kill in 1..=KILLS {
        let (acknowledged, _) = work(import, &launcher, &database, next, random)?;
        println!("kill {kill:2}  transaction {acknowledged} was the last one acknowledged");
        // Every other time sqlite3 itself finds the journal when it opens the file.
        if kill % 2 == 1 {
            print_command(famio, &["recover"], folder);
        } else {
            print_command(famio, &["recover", "--dry-run"], folder);
            println!("         sqlite3 under Famio does that when it opens the file:");
        }
        let found = import.look(&launcher, &database)?;
        let lost = acknowledged.saturating_sub(found.last);
        sound &= found.is_ok() && found.torn == 0 && lost == 0;
        println!("         {}", verdict(&found, lost));
        if !found.is_ok() {
            return Ok(false);
        }
        next = found.last + 1;
    }
    let snapshots = (next - 1) * crate::import::ROWS / import.rows.len() as u64;
    println!("{} transactions, {snapshots} complete imports of the package database", next - 1);
    Ok(sound)
}

/// What `famio recover` says about the database.
fn print_command(famio: &Famio, words: &[&str], folder: &Path) {
    let output = Command::new(&famio.binary).args(words).arg("packages.db").current_dir(folder).output();
    match output {
        Ok(output) => {
            for line in String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).lines() {
                println!("         {}", line.replace(&format!("{}/", folder.display()), ""));
            }
        }
        Err(error) => println!("         {}: {error}", famio.binary.display()),
    }
}

fn verdict(found: &Found, lost: u64) -> String {
    let integrity = if found.is_ok() { good("ok") } else { bad(&first_of(&found.integrity)) };
    let count = |count: u64| if count == 0 { good("0") } else { bad(&count.to_string()) };
    format!(
        "integrity_check {integrity}, {} transactions, {} torn, {} lost",
        found.last,
        count(found.torn),
        count(lost)
    )
}

/// The first few complaints.
fn first_of(lines: &[String]) -> String {
    let mut text = lines.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
    if lines.len() > 3 {
        text.push_str(&format!("; and {} more", lines.len() - 3));
    }
    text
}

/// Act two. Whether something broke, as expected.
pub fn without_famio(import: Import<'_>, folder: &Path, random: &mut Random) -> Result<bool, String> {
    println!("{}", head("The same without Famio, for contrast"));
    let launcher = Launcher::new(None)?;
    let database = folder.join("unprotected.db");
    let started = Instant::now();
    let (mut kills, mut broken, mut next) = (0, 0, 1);
    while kills < KILLS || (broken == 0 && started.elapsed() < PATIENCE) {
        kills += 1;
        let (acknowledged, _) = work(import, &launcher, &database, next, random)?;
        let found = import.look(&launcher, &database)?;
        let lost = acknowledged.saturating_sub(found.last);
        next = found.last + 1;
        if !found.is_ok() || found.torn > 0 || lost > 0 {
            broken += 1;
            println!("kill {kills:2}  {}", verdict(&found, lost));
            std::fs::remove_file(&database).map_err(|error| format!("{}: {error}", database.display()))?;
            next = 1;
        }
    }
    let sum = format!("{broken} of {kills} kills broke the database (each time it was made anew)");
    println!("{}", if broken > 0 { bad(&sum) } else { sum });
    Ok(broken > 0)
}
