//! Root, who runs Famio's commands on all users' files.

use crate::findings::Found;
use crate::people;
use crate::space::Space;
use crate::watch::{self, Ended};
use famio_test_support::random::Random;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs one command on a folder of the scene; returns what was found.
pub fn command(space: &Space, scene: &Path, random: &mut Random) -> Result<Vec<Found>, String> {
    let folders =
        ["", "hostile", "sticky", "shared", "victim", "hostile/junk", "hostile/walk", "victim/v-3", "hostile/plain"];
    let over = scene.join(folders[random.below(folders.len() as u64) as usize]);
    let from = scene.join(["", "hostile", "sticky"][random.below(3) as usize]);
    let what: &[&str] = match random.below(8) {
        0 => &["status"],
        1 => &["check"],
        2 => &["recover", "--dry-run"],
        3 => &["hold"],
        4 => &["doctor"],
        _ => &["recover"],
    };
    if !over.exists() {
        return Ok(Vec::new());
    }
    one(space, what, &over, &from)
}

/// Runs this command.
pub fn one(space: &Space, what: &[&str], over: &Path, from: &Path) -> Result<Vec<Found>, String> {
    let mut command = if what == ["hold"] {
        let mut command = space.famio_run(&["v-*"], &[]);
        command.arg(space.binary("famio-hostile")).arg("hold").arg(over.parent().unwrap_or(over).join("victim/v-3"));
        command
    } else {
        let mut command = Command::new(space.binary("famio"));
        command.args(what).arg(over);
        command
    };
    let said = space.base.join("said-by-root");
    let out = std::fs::File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
    let err = out.try_clone().map_err(|error| error.to_string())?;
    command.stdin(Stdio::null()).stdout(out).stderr(err).current_dir(from);
    people::run_as(&mut command, 0, &[]);
    let words = what.join(" ");
    let mut child = command.spawn().map_err(|error| format!("famio {words}: {error}"))?;
    let ended = watch::wait(&mut child, || 0)?;
    let text = String::from_utf8_lossy(&std::fs::read(&said).unwrap_or_default()).into_owned();
    let mut last: Vec<&str> = text.lines().rev().take(6).collect();
    last.reverse();
    let detail = format!("famio {words} {} in {}\n{}", over.display(), from.display(), last.join("\n"));
    let mut found = Vec::new();
    match &ended {
        Ended::Hung(threads) => found.push(Found::new(
            format!("root: famio {words} hung{}", watch::place(threads)),
            format!("{detail}\n{threads}"),
        )),
        Ended::Status(status) => {
            if let Some(crash) = ended.crash() {
                found.push(Found::new(format!("root: famio {words}: {crash}"), detail));
            } else if text.contains("panicked") {
                found.push(Found::new(format!("root: famio {words} panicked"), detail));
            } else if !status.success() && text.lines().any(reads_settings) {
                found.push(Found::new(format!("root: famio {words} obeys another user's settings"), detail));
            }
        }
    }
    Ok(found)
}

/// Whether a message complains about the contents of another user's settings, rather than about skipping such a file.
fn reads_settings(line: &str) -> bool {
    const CONTENT: [&str; 5] = ["TOML", "UTF-8", "unknown", "expected", "too large"];
    line.contains("famio.toml") && !line.contains("not obeyed") && CONTENT.iter().any(|word| line.contains(word))
}
