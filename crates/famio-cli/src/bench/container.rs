//! Containers for the processes of a measurement, by `unshare` (util-linux): what a container runtime does, too.

use std::process::{Command, Stdio};

const UNSHARE: [&str; 7] = ["--user", "--map-root-user", "--mount", "--pid", "--ipc", "--fork", "--kill-child"];

/// The same command in a container of its own.
pub fn of(command: &Command) -> Command {
    let mut inside = Command::new("unshare");
    inside.args(UNSHARE).arg("--").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside
}

/// Why there are none here.
pub fn missing() -> Option<String> {
    let mut command = of(&Command::new("true"));
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let works = ended.is_ok_and(|status| status.success());
    (!works).then(|| "needs containers: install util-linux (unshare), and allow user namespaces".into())
}
