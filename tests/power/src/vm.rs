//! The virtual machine: finding `dax-vm`, and one boot.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The path of dax-vm; `None`: not found.
pub fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FAMIO_DAX_VM").filter(|value| !value.is_empty()) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("dax-vm"));
    // Beside the repository.
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/dax-vm/dax-vm");
    on_path.chain([beside]).find(|path| path.is_file())
}

/// How a boot ended, and its output.
pub struct Boot {
    pub status: ExitStatus,
    pub lines: Vec<String>,
    /// The end of stderr.
    pub messages: String,
}

impl Boot {
    /// Whether the power was cut.
    pub fn was_cut(&self) -> bool {
        self.status.code() == Some(137)
    }

    /// Whether the machine failed, rather than the program in it.
    pub fn has_failed(&self) -> bool {
        self.status.code() == Some(125)
    }
}

/// One boot with these options of dax-vm and this command.
pub fn boot(dax_vm: &Path, options: &[String], command: &[String]) -> Result<Boot, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dax_vm.display());
    let mut child = Command::new(dax_vm);
    child.arg("run").args(["--cpus", "1", "--timeout", "180"]).args(options).arg("--").args(command);
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("no pipes".into());
    };
    let messages = std::thread::spawn(move || {
        let lines: Vec<String> = BufReader::new(errors).lines().map_while(Result::ok).collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    });
    let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect();
    let status = child.wait().map_err(failed)?;
    Ok(Boot { status, lines, messages: messages.join().map_err(|_| "reader panicked")? })
}
