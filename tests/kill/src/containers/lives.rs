//! The lives of one process: started, killed, judged, perhaps recovered, and started again.

use super::board::{self, Commit, now};
use super::contain::Container;
use super::epochs::{CELL, Script, State, Wrong};
use super::kernel;
use famio_test_support::launch::{Famio, literal};
use famio_test_support::random::Random;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One of the processes.
pub struct Member<'a> {
    pub name: String,
    pub container: &'a Container,
    /// Without it, the file is a plain file.
    pub famio: Option<&'a Famio>,
    pub application: &'a str,
    pub file: PathBuf,
    /// A file on tmpfs.
    pub board: PathBuf,
    pub script: Script,
    /// Longest pause between two epochs.
    pub pause: Duration,
    now: Mutex<Option<Running>>,
}

/// What is running now.
struct Running {
    /// `nsenter`, whose child it is.
    parent: u32,
    /// Whether it has checked its file, and writes.
    works: bool,
    /// When it was killed.
    killed: Option<u64>,
}

/// A process that does not end by itself after that time never will.
const LONGEST: Duration = Duration::from_secs(60);

/// What came of all of its lives.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub kills: u64,
    /// Those that hit before the first commit: in the recovery, or the check.
    pub early: u64,
    /// Calls of famio recover, and those that were killed.
    pub recoveries: (u64, u64),
    pub commits: Vec<Commit>,
    /// Epochs during which the process was killed, from the end of the one before.
    pub unfinished: Vec<Commit>,
    /// The state after the last epoch known to be committed.
    pub known: State,
    /// How long `open` took after each kill, in nanoseconds: with the recovery, if nobody recovered before.
    pub openings: Vec<u64>,
    pub lost: u64,
    pub torn: u64,
    pub failed: u64,
    pub findings: Vec<String>,
}

impl<'a> Member<'a> {
    /// Makes its file, which is all zeros.
    pub fn new(
        (name, application, container): (String, &'a str, &'a Container),
        famio: Option<&'a Famio>,
        (disk, memory): (&Path, &Path),
        script: Script,
        pause: Duration,
    ) -> Result<Self, String> {
        let (file, board) = (disk.join(&name), memory.join(format!("{name}.board")));
        let failed = |error| format!("{}: {error}", file.display());
        std::fs::write(&file, vec![0; script.cells as usize * CELL]).map_err(failed)?;
        File::create(&board).and_then(|_| File::open(&file)?.sync_all()).map_err(failed)?;
        Ok(Self { name, container, famio, application, file, board, script, pause, now: Mutex::new(None) })
    }

    /// Sends SIGKILL, perhaps only if the process works. Returns whether there was one.
    pub fn kill(&self, only_at_work: bool) -> bool {
        let Ok(mut now) = self.now.lock() else { return false };
        // Not reaped, while the lock is held.
        let Some(running) = now.as_mut().filter(|running| running.works || !only_at_work) else { return false };
        let hit = kernel::children(running.parent as i32).into_iter().any(kernel::kill);
        if hit {
            running.killed = Some(board::now());
        }
        hit
    }

    /// Lives until `is_over`, then ends by itself.
    pub fn live(&self, mut random: Random, is_over: &AtomicBool) -> Result<Record, String> {
        let mut record = Record { known: self.script.beginning(), ..Record::default() };
        // One that is killed at the very end lives once more, and ends by itself.
        while self.one_life(&mut record, is_over)? {
            if random.below(2) == 0 && !self.recover(&mut random, &mut record)? {
                break;
            }
        }
        Ok(record)
    }

    /// Returns whether it was killed, and nothing is wrong.
    fn one_life(&self, record: &mut Record, is_over: &AtomicBool) -> Result<bool, String> {
        let failed = |what: &str, error: std::io::Error| format!("{}: {what}: {error}", self.name);
        let said = self.board.with_extension("said");
        let state = self.board.with_extension("state");
        std::fs::write(&state, record.known.to_bytes()).map_err(|error| failed("state", error))?;
        let mut command = self.command(&state)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(&said).map_err(|error| failed("create", error))?);
        let mut child = command.spawn().map_err(|error| failed("nsenter", error))?;
        self.set(Some(Running { parent: child.id(), works: false, killed: None }));
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        output.read_line(&mut line).map_err(|error| failed("read", error))?;
        let checked = now();
        let found = line.starts_with("found ").then(|| number(&line, 1));
        if let Some(running) = self.now.lock().ok().as_mut().and_then(|now| now.as_mut()) {
            running.works = found.is_some();
        }
        if found.is_some() && record.kills > 0 {
            record.openings.push(number(&line, 2));
        }
        self.await_end(&mut child, &mut output, is_over);
        let killed = self.set(None).and_then(|running| running.killed);
        let status = child.wait().map_err(|error| failed("wait", error))?;
        if let Some(found) = found {
            record.known.advance(&self.script, found);
        }
        let mut board =
            File::options().read(true).write(true).open(&self.board).map_err(|error| failed("board", error))?;
        let commits = board::take(&mut board).map_err(|error| failed("board", error))?;
        record.known.advance(&self.script, commits.last().map_or(0, |commit| commit.epoch));
        let last = record.known.epoch;
        if let Some(killed) = killed {
            record.kills += 1;
            record.early += u64::from(commits.is_empty());
            let begun = commits.last().map_or(checked, |commit| commit.begun + commit.total());
            let (epoch, writing) = (last + 1, killed.saturating_sub(begun));
            record.unfinished.push(Commit { epoch, begun, writing, sync: 0, not_run: 0 });
        }
        record.commits.extend(commits);
        let message = std::fs::read_to_string(&said).unwrap_or_default().trim().replace('\n', "; ");
        Ok(match line.trim() {
            text if text.starts_with("lost ") => record.note(&self.name, Wrong::Lost(number(text, 1)), last),
            text if text.starts_with("torn ") => record.note(&self.name, Wrong::Torn(text[5..].into()), last),
            _ if status.success() => false,
            _ if killed.is_some() && status.signal() == Some(libc::SIGKILL) => true,
            _ => record.fail(format!("{}: ended ({status}) after epoch {last}: {message}", self.name)),
        })
    }

    /// Returns when it is dead, or has ended since its input ended with `is_over`.
    fn await_end(&self, child: &mut Child, output: &mut impl BufRead, is_over: &AtomicBool) {
        let input = child.stdin.take();
        let is_dead = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && !is_dead.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                drop(input);
                let ended = Instant::now();
                while !is_dead.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                    if ended.elapsed() > LONGEST {
                        kernel::children(child.id() as i32).into_iter().for_each(|id| _ = kernel::kill(id));
                    }
                }
            });
            // It says no more; its output ends with it.
            let _ = output.read_line(&mut String::new());
            is_dead.store(true, Ordering::Relaxed);
        });
    }

    fn set(&self, to: Option<Running>) -> Option<Running> {
        self.now.lock().ok().and_then(|mut now| std::mem::replace(&mut *now, to))
    }

    fn command(&self, state: &Path) -> Result<Command, String> {
        let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
        let mut command = match self.famio {
            None => self.container.command(&me),
            Some(famio) => {
                let run = famio.run(&[literal(&self.file)]);
                let mut command = self.container.command(run.get_program());
                // In front of the `--`.
                let words: Vec<_> = run.get_args().collect();
                command.args(&words[..words.len() - 1]).args(["--application", self.application, "--"]).arg(&me);
                command
            }
        };
        command.arg("member").arg(&self.file).arg(&self.board);
        let option = |name: &str, value: u64| format!("--{name}={value}");
        command.arg(option("seed", self.script.seed)).arg(option("cells", self.script.cells.into()));
        command.arg("--state").arg(state).arg(option("pause", self.pause.as_micros() as u64));
        command.args(self.famio.is_none().then_some("--plain"));
        Ok(command)
    }

    /// Runs `famio recover` in another container, sometimes killed and repeated. The file is a plain file then.
    fn recover(&self, random: &mut Random, record: &mut Record) -> Result<bool, String> {
        let Some(famio) = self.famio else { return Ok(true) };
        let failed = |error| format!("{}: {error}", famio.binary.display());
        let mut command = Command::new(&famio.binary);
        command.arg("recover").arg(&self.file).stdout(Stdio::piped()).stderr(Stdio::piped());
        record.recoveries.0 += 1;
        if random.below(2) == 0 {
            let mut child = command.spawn().map_err(failed)?;
            std::thread::sleep(random.time_up_to(Duration::from_millis(60)));
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            record.recoveries.1 += 1;
            // The next opener finds what this one left, or the next call does.
            if random.below(2) == 0 {
                return Ok(true);
            }
        }
        let output = command.output().map_err(failed)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().replace('\n', "; ");
            return Ok(record.fail(format!("{}: famio recover ({}): {text}", self.name, output.status)));
        }
        self.check_plain(record)
    }

    /// Checks the file without Famio. Returns whether nothing is wrong.
    pub fn check_plain(&self, record: &mut Record) -> Result<bool, String> {
        let failed = |error| format!("{}: {error}", self.file.display());
        let file = File::open(&self.file).map_err(failed)?;
        match self.script.check(file, &record.known).map_err(failed)? {
            Ok(found) => record.known.advance(&self.script, found),
            Err(wrong) => return Ok(record.note(&self.name, wrong, record.known.epoch)),
        }
        Ok(true)
    }
}

fn number(text: &str, word: usize) -> u64 {
    text.split_ascii_whitespace().nth(word).and_then(|word| word.parse().ok()).unwrap_or(0)
}

impl Record {
    fn note(&mut self, name: &str, wrong: Wrong, last: u64) -> bool {
        match wrong {
            Wrong::Lost(found) => {
                self.lost += last - found.min(last);
                self.findings.push(format!("{name}: epoch {last} was committed, {found} is there"));
            }
            Wrong::Torn(text) => {
                self.torn += 1;
                self.findings.push(format!("{name}: {text} ({last} was committed)"));
            }
        }
        false
    }

    fn fail(&mut self, text: String) -> bool {
        self.failed += 1;
        self.findings.push(text);
        false
    }
}
