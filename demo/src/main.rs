//! `make demo`: the package database of this machine into SQLite, with kills, with and without Famio, and a table.

mod import;
mod kills;
mod packages;
mod paint;
mod speed;

use famio_test_support::ending::exit_code;
use famio_test_support::launch::Famio;
use famio_test_support::place::{self, Place};
use famio_test_support::random::Random;
use import::Import;
use packages::Row;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// SQLite's cache in the two acts with kills.
const CACHE_PAGES: u32 = 20;

fn main() -> ExitCode {
    place::clean_up_on_interrupt();
    exit_code("famio-demo", run())
}

fn run() -> Result<bool, String> {
    let started = Instant::now();
    let rows = packages::read(Path::new(packages::STATUS))?;
    let famio = Famio::beside_me(&[])?;
    // In the build folder where there is one: it is not part of the source.
    let here = std::env::current_dir().map_err(|error| format!("current folder: {error}"))?;
    let target = here.join("target");
    let disk = Place::new(if target.is_dir() { &target } else { &here }, "famio-demo")?;
    let memory = Place::new(place::memory(), "famio-demo")?;
    let seed = Random::fresh_seed();
    let mut random = Random::new(seed);

    // `make bench` needs only the table.
    if std::env::args().nth(1).is_some_and(|word| word == "--table") {
        speed::table(&rows, &famio, [disk.path(), memory.path()])?;
        return Ok(true);
    }
    let packages = rows.iter().filter(|row| matches!(row, Row::Package(_))).count();
    println!(
        "{}: {packages} packages, {} dependencies; imported over and over in transactions of {} rows into SQLite on {}",
        packages::STATUS,
        rows.len() - packages,
        import::ROWS,
        place::file_system(disk.path()),
    );
    println!("PRAGMA journal_mode=MEMORY, synchronous=FULL, cache_size={CACHE_PAGES}; seed {seed}\n");
    let import = Import { rows: &rows, journal_mode: "MEMORY", cache_pages: Some(CACHE_PAGES) };
    let sound = kills::with_famio(import, &famio, disk.path(), &mut random)?;
    println!();
    let broken = kills::without_famio(import, disk.path(), &mut random)?;
    println!();
    speed::table(&rows, &famio, [disk.path(), memory.path()])?;
    println!();
    let verdict = if sound { paint::good("nothing torn, nothing lost") } else { paint::bad("FAILED: see above") };
    let contrast = if broken { "corruption" } else { "no corruption this time (it is a matter of luck)" };
    println!("Under Famio: {verdict}. Without: {contrast}. {:.0} s.", started.elapsed().as_secs_f64());
    Ok(sound)
}
