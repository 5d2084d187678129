//! `famio-programs`: unmodified programs on atomic files, killed at random and checked.

mod coreutils;
mod duckdb;
mod fio;
mod git;
mod java;
mod job;
mod kyoto;
mod leveldb;
mod lmdb;
mod mariadb;
mod node;
mod numbered;
mod postgres;
mod python;
mod redis;
mod report;
mod rocksdb;
mod sqlite;
mod stress;
mod suite;
mod under;

use clap::Parser;
use famio_test_support::ending::exit_code;
use famio_test_support::place::{self, Place};
use famio_test_support::random::Random;
use job::Job;
use report::Report;
use std::process::ExitCode;
use std::time::Instant;
use under::Under;

type Runner = fn(&mut Job, &mut Report) -> Result<(), String>;

/// A program, what it needs, and whether it is in the short form.
struct Program {
    name: &'static str,
    needs: &'static [&'static str],
    short: bool,
    run: Runner,
}

const PROGRAMS: &[Program] = &[
    Program { name: "sqlite3", needs: &["sqlite3"], short: true, run: sqlite::run },
    Program { name: "python", needs: &["python3"], short: true, run: python::run },
    Program {
        name: "coreutils",
        needs: &["cp", "sort", "shuf", "split", "tee", "install"],
        short: true,
        run: coreutils::run,
    },
    Program { name: "tar", needs: &["tar", "gzip"], short: true, run: coreutils::tar },
    Program { name: "git", needs: &["git"], short: false, run: git::run },
    Program { name: "git-user", needs: &["git"], short: false, run: git::by_ordinary_user },
    Program { name: "read-only", needs: &["cp", "install", "tar"], short: true, run: coreutils::read_only },
    Program { name: "fio", needs: &["fio"], short: false, run: fio::run },
    Program { name: "redis", needs: &["redis-server", "redis-check-aof"], short: false, run: redis::run },
    Program { name: "lmdb", needs: &["mdb_load", "mdb_dump", "mdb_stat", "mdb_copy"], short: false, run: lmdb::run },
    Program { name: "leveldb", needs: &["python3"], short: false, run: leveldb::run },
    Program { name: "rocksdb", needs: &["ldb"], short: false, run: rocksdb::run },
    Program { name: "postgres", needs: &["pgbench"], short: false, run: postgres::run },
    Program { name: "mariadb", needs: &["mariadb", "mariadb-install-db"], short: false, run: mariadb::run },
    Program {
        name: "mariadb-keep",
        needs: &["mariadb", "mariadb-install-db"],
        short: false,
        run: mariadb::with_checkpoints,
    },
    Program { name: "duckdb", needs: &["python3"], short: false, run: duckdb::run },
    Program { name: "kyoto", needs: &["c++"], short: false, run: kyoto::run },
    Program { name: "java", needs: &["javac", "java"], short: false, run: java::run },
    Program { name: "node", needs: &["node"], short: true, run: node::run },
    Program { name: "sqlite-suite", needs: &[], short: false, run: suite::run },
    Program { name: "stress-ng", needs: &["stress-ng"], short: false, run: stress::run },
];

/// Run unmodified programs on atomic files, kill them at random moments, and check what is left
///
/// Each runs on tmpfs and on a disk. What is not installed is skipped, and said to be. Exit status: 0 if nothing was
/// found.
#[derive(Parser)]
struct Args {
    /// Programs [default: all]
    names: Vec<String>,
    /// SIGKILLs for each program and file system
    #[arg(long, default_value_t = 24)]
    kills: u64,
    /// Seed [default: from the clock; printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Only what takes seconds: sqlite3, python, coreutils, tar, read-only, node
    #[arg(long)]
    short: bool,
    /// Only on these file systems [default: both]
    #[arg(long, value_delimiter = ',', value_parser = ["tmpfs", "disk"])]
    on: Vec<String>,
    /// More options for famio run
    #[arg(last = true)]
    options: Vec<String>,
}

fn main() -> ExitCode {
    exit_code("famio-programs", run(&Args::parse()))
}

fn run(args: &Args) -> Result<bool, String> {
    if let Some(unknown) = args.names.iter().find(|name| PROGRAMS.iter().all(|program| program.name != **name)) {
        let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        return Err(format!("{unknown}: not among {}", names.join(", ")));
    }
    let seed = args.seed.unwrap_or_else(Random::fresh_seed);
    println!("seed {seed} (repeat with --seed {seed})");
    let (mut clean, mut skipped) = (true, Vec::new());
    for program in PROGRAMS {
        let named = args.names.iter().any(|name| name == program.name);
        if !(named || args.names.is_empty() && (program.short || !args.short)) {
            continue;
        }
        if let Some(missing) = program.needs.iter().find(|command| under::find(command).is_none()) {
            println!("{:14} SKIPPED: {missing} is not installed", program.name);
            skipped.push(program.name);
            continue;
        }
        for on in ["tmpfs", "disk"] {
            if args.on.is_empty() || args.on.iter().any(|wanted| wanted == on) {
                // Derived from the seed and the name alone, so that one program can be repeated without the others.
                let own = program
                    .name
                    .bytes()
                    .chain(on.bytes())
                    .fold(seed, |hash, byte| hash * 31 % 0xff_ffff_fffb + u64::from(byte));
                match one(args, program, on, own)? {
                    Some(sound) => clean &= sound,
                    None => skipped.push(program.name),
                }
            }
        }
    }
    skipped.dedup();
    let left_out = if skipped.is_empty() { String::new() } else { format!(", but SKIPPED: {}", skipped.join(", ")) };
    println!("total: {}{left_out}", if clean { "ok" } else { "NOT OK" });
    Ok(clean)
}

/// Runs one program in one place. `None`: it was skipped.
fn one(args: &Args, program: &Program, on: &str, seed: u64) -> Result<Option<bool>, String> {
    let parent = if on == "tmpfs" { place::memory().to_path_buf() } else { place::disk()? };
    let mut place = Place::new(&parent, "famio-programs")?;
    let options: Vec<&str> = args.options.iter().map(String::as_str).collect();
    let mut job = Job {
        under: Under::new(place.path(), &options)?,
        kills: args.kills,
        random: Random::new(seed),
        short: args.short,
    };
    let started = Instant::now();
    let mut report = Report::default();
    let done = (program.run)(&mut job, &mut report);
    drop(job);
    if let Err(error) = done {
        report.finding(error);
    }
    println!(
        "{:14} {:6} {report} ({:.1} s)",
        program.name,
        place::file_system(place.path()),
        started.elapsed().as_secs_f64()
    );
    report.details();
    if !report.is_clean() {
        place.keep();
        println!("          left for a look: {}", place.path().display());
    }
    Ok(report.skipped.is_none().then(|| report.is_clean()))
}
