//! Measures programs in all setups of a figure: all in each round, in an order drawn anew, each on a copy of the same
//! data.

use super::app::App;
use crate::bench::crew;
use crate::bench::document::Point;
use crate::bench::io::side::Side;
use crate::bench::session::Session;
use crate::settings::Options;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A point of a figure.
pub struct AppCell {
    pub series: String,
    pub x: String,
    pub side: Side,
    pub app: App,
}

/// How many measurements it takes.
pub fn steps(cells: &[AppCell], rounds: u32) -> u64 {
    cells.len() as u64 * u64::from(rounds)
}

/// The points, calls a second of all processes together, and what a reader should know of them: versions, and what is
/// missing.
pub fn figure(
    session: &Session,
    options: &Options,
    rounds: u32,
    seconds: f64,
    cells: &[AppCell],
) -> Result<(Vec<Point>, Vec<String>), String> {
    let time = Duration::try_from_secs_f64(seconds).map_err(|error| format!("--seconds: {error}"))?;
    let mut notes = Vec::new();
    let mut there = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let note = match cell.app.version() {
            Ok(version) => {
                there.push(at);
                version
            }
            Err(missing) => {
                session.skip(rounds.into());
                Some(format!("not measured: {missing}"))
            }
        };
        notes.extend(note.filter(|note| !notes.contains(note)));
    }
    let made = Made { folder: session.folder().join("apps") };
    let mut rates = vec![Vec::new(); cells.len()];
    let mut random = fastrand::Rng::new();
    'rounds: for _ in 0..rounds {
        random.shuffle(&mut there);
        for &at in &there {
            let cell = &cells[at];
            let rate = one(session, options, &made, time, cell);
            if session.interrupted() {
                break 'rounds; // it may have ended the measurement too
            }
            rates[at].push(rate.map_err(|error| format!("{}, {}: {error}", cell.series, cell.x))?);
            session.step();
        }
    }
    let points = cells.iter().zip(rates).filter(|(_, rates)| !rates.is_empty());
    Ok((points.map(|(cell, rates)| Point::new(&cell.series, &cell.x, rates)).collect(), notes))
}

/// Calls a second.
fn one(session: &Session, options: &Options, made: &Made, time: Duration, cell: &AppCell) -> Result<f64, String> {
    let folder = made.copy(session, &cell.app)?;
    let app = serde_json::to_string(&cell.app).map_err(|error| error.to_string())?;
    let mut commands = Vec::new();
    for me in 0..cell.app.workers() {
        let mut command = cell.side.command(options, std::slice::from_ref(&folder))?;
        command.args(["bench", "app-work", &app]).arg(&folder).arg(me.to_string());
        commands.push((command, false));
    }
    let outcome = crew::run(commands, time, || Ok(0))?;
    cell.app.check(&folder, &outcome.writes.of_each)?;
    Ok(outcome.writes.rate)
}

/// Data that was made once, and is copied for each measurement. It goes with the last one.
struct Made {
    folder: PathBuf,
}

impl Made {
    fn copy(&self, session: &Session, app: &App) -> Result<PathBuf, String> {
        let (made, copy) = (self.folder.join(app.data()), self.folder.join("now"));
        if !made.exists() {
            session.show(&format!("making the data of {}", app.data()));
            create(&made)?;
            app.prepare(&made)?;
        }
        let _ = std::fs::remove_dir_all(&copy);
        create(&copy)?;
        copy_all(&made, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
        Ok(copy)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn create(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Files and folders, and on the disk: no measurement is to pay for the copy.
fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let new = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&new)?;
            copy_all(&entry.path(), &new)?;
        } else {
            // Not a clone, which some file systems would make of it: its first writes cost more.
            let mut file = std::fs::File::create_new(&new)?;
            std::io::Write::write_all(&mut file, &std::fs::read(entry.path())?)?;
        }
    }
    // SAFETY: touches no memory.
    unsafe { libc::syncfs(std::os::fd::AsRawFd::as_raw_fd(&std::fs::File::open(to)?)) };
    Ok(())
}
