//! One of the two runs: under Famio, or plain.

use super::board::{self, Board};
use super::case::{Case, Start};
use crate::people;
use crate::space::Space;
use crate::watch::{self, Ended};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCES: [(&str, &str); 6] = [
    ("host.h", include_str!("host/host.h")),
    ("main.c", include_str!("host/main.c")),
    ("files.c", include_str!("host/files.c")),
    ("descriptors.c", include_str!("host/descriptors.c")),
    ("rights.c", include_str!("host/rights.c")),
    ("processes.c", include_str!("host/processes.c")),
];

/// Builds the program.
pub fn compile(space: &Space) -> Result<(), String> {
    let folder = space.base.join("bin");
    for (name, text) in SOURCES {
        std::fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    let sources = SOURCES.iter().map(|(name, _)| *name).filter(|name| name.ends_with(".c"));
    let output = Command::new("cc")
        .current_dir(&folder)
        .args(["-O1", "-g", "-Wall", "-Wextra", "-pthread", "-o", "host"])
        .args(sources)
        // pthread_cancel would load it when called, which fails in another root, or without a free descriptor.
        .args(["-Wl,--no-as-needed", "-lgcc_s"])
        .output()
        .map_err(|error| format!("cc: {error}"))?;
    if !output.status.success() {
        return Err(format!("cc: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(())
}

/// The parameters of a run.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Only these steps; empty: all.
    pub only: &'a [u32],
    /// A SIGKILL comes before this step.
    pub kill: Option<u32>,
    /// A SIGKILL comes after this many answers.
    pub limit: Option<usize>,
}

/// The result of a run.
pub struct Side {
    /// Where its files are.
    pub folder: PathBuf,
    /// How it ended.
    pub ended: Ended,
    /// Where its remaining children hung, if they did.
    pub hung_later: Option<String>,
    /// Its record.
    pub board: Board,
    /// Its stderr.
    pub messages: String,
}

/// Carries out a run.
pub fn run(space: &Space, case: &Case, famio: bool, run: Run) -> Result<Side, String> {
    let name = if famio { "famio" } else { "plain" };
    let place = space.fresh(case.on, name)?;
    let (folder, log, messages) = (place.join("files"), place.join("log"), place.join("stderr"));
    let failed = |what: &Path| {
        let what = what.display().to_string();
        move |error: std::io::Error| format!("{what}: {error}")
    };
    prepare(&folder, case).map_err(failed(&folder))?;
    let file = std::fs::File::create(&log).map_err(failed(&log))?;
    file.set_len(board::BYTES).map_err(failed(&log))?;
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o666)).map_err(failed(&log))?;
    // A pipe, so that no limit on file sizes suppresses a notice.
    let (mut said, stderr) = std::io::pipe().map_err(failed(&messages))?;
    let text = folder.to_string_lossy().into_owned();
    let host = space.binary("host");
    let mut command = if famio {
        let mut command = space.famio_run(&[&format!("{text}/atomic-*")], &case.options);
        command.arg(&host);
        command
    } else {
        Command::new(&host)
    };
    let only = match run.only {
        [] => "-".to_owned(),
        steps => steps.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
    };
    command.arg(&folder).arg(&log).arg(case.seed.to_string()).arg(case.steps.to_string());
    command.arg(run.kill.map_or("-1".into(), |step| step.to_string()));
    command.arg(format!("{:x}", case.classes.0)).arg(only).arg("0").arg(run.limit.unwrap_or(0).to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    command.current_dir("/");
    let user = if case.start == Start::Root { 0 } else { people::USER };
    people::run_as(&mut command, user, &[people::GROUP]);
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    drop(command); // closes this process's end of the pipe
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        said.read_to_end(&mut text).map(|_| text)
    });
    let group = child.id() as i32;
    let ticks = || Board::read(&log).map_or(0, |board| u64::from(board.ticks) << 20 | u64::from(board.begun));
    let ended = watch::wait(&mut child, ticks)?;
    let hung_later = watch::rest(group, ticks);
    let board = Board::read(&log)?;
    let text = reader.join().map_err(|_| "the reader of stderr panicked")?.map_err(failed(&messages))?;
    std::fs::write(&messages, &text).map_err(failed(&messages))?;
    let messages = String::from_utf8_lossy(&text).into_owned();
    Ok(Side { folder, ended, hung_later, board, messages })
}

fn prepare(folder: &Path, case: &Case) -> std::io::Result<()> {
    std::fs::create_dir(folder)?;
    let mode = if case.start == Start::Guest { 0o755 } else { case.folder_mode };
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode))?;
    if case.start == Start::User {
        std::os::unix::fs::chown(folder, Some(people::USER), Some(people::USER))?;
    }
    if !case.made && case.start != Start::Guest {
        return Ok(());
    }
    for (number, name) in
        ["atomic-0", "atomic-1", "atomic-2", "atomic-s", "atomic-t", "plain-0", "plain-1"].iter().enumerate()
    {
        let path = folder.join(name);
        std::fs::write(&path, vec![b'0' + number as u8; 30_000 * (number + 1)])?;
        let mode = if case.start == Start::Guest { 0o666 } else { 0o644 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        if case.start == Start::User {
            std::os::unix::fs::chown(&path, Some(people::USER), Some(people::USER))?;
        }
    }
    Ok(())
}

/// Files by name: mode, owner, bytes.
pub type Contents = BTreeMap<String, (u32, u32, Vec<u8>)>;

/// All files of a folder.
pub fn contents(folder: &Path) -> Result<Contents, String> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == ".famio" {
            continue;
        }
        let path = entry.path();
        let stat = std::fs::symlink_metadata(&path).map_err(|error| format!("{name}: {error}"))?;
        let bytes = std::fs::read(&path).map_err(|error| format!("{name}: {error}"))?;
        all.insert(name, (stat.mode() & 0o7777, stat.uid(), bytes));
    }
    Ok(all)
}
