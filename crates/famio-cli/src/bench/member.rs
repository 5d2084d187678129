//! A process that takes part in a measurement: it gets its instructions on stdin, and reports on stdout.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};

/// One process. It is killed if it still runs in the end, because another process has failed.
pub struct Member {
    child: Child,
    /// Its stdin: a socket, since a write to a pipe whose reader has died would kill this command by SIGPIPE.
    input: Option<UnixStream>,
    output: BufReader<ChildStdout>,
}

impl Member {
    pub fn start(mut command: Command) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let (input, stdin) = UnixStream::pair().map_err(failed)?;
        command.stdin(OwnedFd::from(stdin)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take().ok_or("no pipe")?;
        Ok(Self { child, input: Some(input), output: BufReader::new(output) })
    }

    /// Its next line, or its explanation why there is none.
    pub fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(length) if length > 0 => Ok(line.trim_end().to_string()),
            _ => Err(self.end().err().unwrap_or("a process ended too early".into())),
        }
    }

    pub fn tell(&mut self, line: &str) {
        // If this fails, the process has ended; asking for its next line gives the reason.
        let _ = self.input.as_mut().map(|input| writeln!(input, "{line}"));
    }

    /// Tells it to exit, and waits for that.
    pub fn end(&mut self) -> Result<(), String> {
        self.input = None;
        let mut messages = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut messages);
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        match (status.success(), messages.trim()) {
            (true, _) => Ok(()),
            (_, "") => Err(format!("a process ended by {status}")),
            (_, messages) => Err(messages.trim_start_matches("famio: ").to_string()),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
