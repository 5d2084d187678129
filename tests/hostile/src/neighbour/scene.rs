//! A scene: folders, users, and a period in which all of them are active.

use super::oracle::picture;
use super::output::{SharedOutput, lock};
use super::root;
use crate::classes::Classes;
use crate::findings::Found;
use crate::people::{self, GROUP, NEIGHBOUR, VICTIM};
use crate::space::Space;
use crate::watch::{self, Ended, Patience};
use famio_kill::harness::has_mark;
use famio_test_support::random::Random;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A scene.
pub struct Scene<'a> {
    space: &'a Space,
    /// Where it is.
    pub folder: PathBuf,
    seed: u64,
    classes: Classes,
    secret: String,
    /// Whether the neighbour is in the victim's group.
    member: bool,
}

/// The victim's running program.
struct Running {
    child: Child,
    lines: Arc<AtomicU64>,
    patience: Patience,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl<'a> Scene<'a> {
    /// Creates the folders, and lets a program of the neighbour's crash, for journals to forge.
    pub fn new(space: &'a Space, on: &str, seed: u64, classes: Classes) -> Result<Self, String> {
        let folder = space.fresh(on, "scene")?;
        space.empty_shm();
        let secret = format!("FAMIO-SECRET-{seed:016x}");
        let member = classes.has("group") && seed.is_multiple_of(2);
        let scene = Self { space, folder, seed, classes, secret, member };
        scene.folders().map_err(|error| format!("{}: {error}", scene.folder.display()))?;
        for number in 0..3 {
            let options: &[&str] = [&[], &["--policy", "redo"][..], &["--policy", "undo"][..]][number];
            scene.crash(&scene.folder.join(format!("hostile/v-1{number}")), NEIGHBOUR, options)?;
        }
        Ok(scene)
    }

    /// Kills a program of this user's, which leaves a journal.
    fn crash(&self, file: &Path, user: u32, options: &[&str]) -> Result<(), String> {
        let mut command = self.space.famio_run(&["v-*"], options);
        command.arg(self.space.binary("famio-hostile")).arg("crash").arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        people::run_as(&mut command, user, &[]);
        let mut child = command.spawn().map_err(|error| format!("famio: {error}"))?;
        watch::wait(&mut child, || 0).map(drop)
    }

    fn folders(&self) -> std::io::Result<()> {
        let make = |name: &str, mode: u32, user: u32, group: u32| {
            let path = self.folder.join(name);
            std::fs::create_dir(&path)?;
            chown(&path, Some(user), Some(group))?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
        };
        std::fs::set_permissions(&self.folder, std::fs::Permissions::from_mode(0o755))?;
        make("sticky", 0o1777, 0, 0)?;
        make("victim", 0o755, VICTIM, VICTIM)?;
        make("shared", 0o3775, 0, GROUP)?;
        make("hostile", 0o755, NEIGHBOUR, NEIGHBOUR)?;
        make("canary", 0o755, 0, 0)?;
        let file = |name: &str, mode: u32, user: u32| {
            let path = self.folder.join(name);
            std::fs::write(&path, format!("{name}: no other user may change this\n{}\n", self.secret).repeat(50))?;
            chown(&path, Some(user), Some(user))?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
        };
        file("canary/secret", 0o600, 0)?;
        file("victim/secret", 0o600, VICTIM)?;
        // These files are readable.
        let quiet = |name: &str, user: u32| {
            let path = self.folder.join(name);
            std::fs::write(&path, "quiet\n".repeat(3000))?;
            chown(path, Some(user), Some(user))
        };
        quiet("canary/passwd", 0)?;
        quiet("victim/quiet", VICTIM)
    }

    fn files(&self) -> Vec<(PathBuf, &'static str)> {
        let group = if self.member { "0664:loose" } else { "0664:strict" };
        let mut files = vec![
            (self.folder.join("sticky/v-0"), "0600:strict"),
            (self.folder.join("sticky/v-1"), "0644:strict"),
            (self.folder.join("victim/v-2"), "0600:strict"),
            (self.folder.join("victim/v-3"), "0644:strict"),
        ];
        if self.classes.has("group") {
            files.push((self.folder.join("shared/v-4"), group));
        }
        files
    }

    fn victim(&self, output: &SharedOutput, seed: u64, rounds: Option<u64>) -> Result<Running, String> {
        let mut command = self.space.famio_run(&["v-*"], &[]);
        command.arg(self.space.binary("famio-hostile")).args([
            "victim",
            "--seed",
            &seed.to_string(),
            "--secret",
            &self.secret,
        ]);
        if let Some(rounds) = rounds {
            command.args(["--rounds", &rounds.to_string()]);
        }
        for (path, kind) in self.files() {
            command.arg(format!("{}:{kind}", path.display()));
        }
        let from = if seed.is_multiple_of(2) { self.folder.join("sticky") } else { "/".into() };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(from);
        people::run_as(&mut command, VICTIM, &[VICTIM, GROUP]);
        let mut child = command.spawn().map_err(|error| format!("famio: {error}"))?;
        let lines = Arc::new(AtomicU64::new(0));
        let text = lock(output).oracle.lines();
        let _ = child.stdin.as_mut().map(|stdin| stdin.write_all(text.as_bytes()));
        let out = child.stdout.take().ok_or("no pipe")?;
        let err = child.stderr.take().ok_or("no pipe")?;
        let (shared, count) = (output.clone(), lines.clone());
        let says = std::thread::spawn(move || {
            for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                count.fetch_add(1, Ordering::Relaxed);
                let mut output = lock(&shared);
                output.oracle.hear(&line);
                if let Some(what) = line.strip_prefix("E ") {
                    let kind: String = what.chars().take_while(|c| !c.is_ascii_digit()).take(90).collect();
                    output.note(Found::new(kind.trim_end_matches("v-").trim_end(), what));
                }
            }
        });
        let shared = output.clone();
        let complains = std::thread::spawn(move || {
            for line in BufReader::new(err).split(b'\n').map_while(Result::ok) {
                let (mut output, line) = (lock(&shared), String::from_utf8_lossy(&line).into_owned());
                output.oracle.hear_famio(&line);
                output.messages.push_back(line);
                if output.messages.len() > 20 {
                    output.messages.pop_front();
                }
            }
        });
        let patience = Patience::new(child.id() as i32);
        Ok(Running { child, lines, patience, readers: vec![says, complains] })
    }

    fn neighbour(&self, output: &SharedOutput) -> Result<(Child, std::thread::JoinHandle<()>), String> {
        let mut command = Command::new(self.space.binary("famio-hostile"));
        command.args(["agent", "--seed", &self.seed.to_string(), "--classes", &self.classes.0.to_string()]);
        command.args(["--secret", &self.secret]).arg(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).current_dir("/");
        let groups: &[u32] = if self.member { &[GROUP] } else { &[] };
        people::run_as(&mut command, NEIGHBOUR, groups);
        let mut child = command.spawn().map_err(|error| format!("the neighbour: {error}"))?;
        let out = child.stdout.take().ok_or("no pipe")?;
        let shared = output.clone();
        let log = self.space.base.join("deeds");
        let reader = std::thread::spawn(move || {
            let mut log = std::fs::File::create(log).ok();
            for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if let Some(log) = &mut log {
                    let _ = writeln!(log, "{line}");
                }
                let mut output = lock(&shared);
                if let Some(place) = line.strip_prefix("SECRET ") {
                    let kind = if place.starts_with("/dev/shm") { "/dev/shm" } else { "a file or a process" };
                    output.note(Found::new(format!("the neighbour has read a 0600 file's bytes in {kind}"), place));
                }
                if line.starts_with("OPENED ") {
                    output.note(Found::new(
                        "root opened for writing what is no file (by a hint or a name)",
                        line.clone(),
                    ));
                }
                output.deeds.push_back(line);
                if output.deeds.len() > 40 {
                    output.deeds.pop_front();
                }
            }
        });
        Ok((child, reader))
    }

    /// Plays the scene; returns what was found.
    pub fn play(&self, lasts: Duration) -> Result<Vec<Found>, String> {
        let output = SharedOutput::default();
        let mut random = Random::new(self.seed);
        let before = self.pictures();
        let over = Arc::new(AtomicBool::new(false));
        let (mut neighbour, deeds) = self.neighbour(&output)?;
        let outcome = std::thread::scope(|threads| {
            let root = threads.spawn(|| {
                let mut random = Random::new(self.seed ^ 1);
                while !over.load(Ordering::SeqCst) {
                    let found = root::command(self.space, &self.folder, &mut random)?;
                    found.into_iter().for_each(|found| lock(&output).note(found));
                }
                Ok::<(), String>(())
            });
            let played = self.run_victims(&output, &mut random, lasts);
            over.store(true, Ordering::SeqCst);
            let root = root.join().unwrap_or_else(|_| Err("root's thread panicked".into()));
            played.and(root)
        });
        watch::kill_group(neighbour.id() as i32);
        let status = neighbour.wait().map_err(|error| format!("wait: {error}"))?;
        watch::rest(neighbour.id() as i32, || 0);
        let _ = deeds.join();
        outcome?;
        if std::os::unix::process::ExitStatusExt::signal(&status) != Some(libc::SIGKILL) {
            return Err(format!("the neighbour ended early: {status}"));
        }
        self.afterwards(&output, &before)?;
        Ok(std::mem::take(&mut lock(&output).found))
    }

    fn run_victims(&self, output: &SharedOutput, random: &mut Random, lasts: Duration) -> Result<(), String> {
        let started = Instant::now();
        let kills = self.classes.has("kill-victim");
        let mut running = self.victim(output, random.below(1 << 40), None)?;
        let mut next = started + random.time_up_to(lasts);
        loop {
            let ended = self.step(output, &mut running)?;
            let over = started.elapsed() > lasts;
            if kills && !ended && !over && Instant::now() > next {
                watch::kill_group(running.child.id() as i32);
                self.reap(output, running)?;
                next = Instant::now() + random.time_up_to(lasts);
                running = self.victim(output, random.below(1 << 40), None)?;
            } else if ended && !over {
                // It ended by itself, which was noted. Another one is started.
                self.reap(output, running)?;
                running = self.victim(output, random.below(1 << 40), None)?;
            } else if ended {
                return self.reap(output, running);
            } else if over {
                drop(running.child.stdin.take());
            }
        }
    }

    /// Watches the victim for a moment; returns whether it has ended.
    fn step(&self, output: &SharedOutput, running: &mut Running) -> Result<bool, String> {
        let pidfd = watch::pidfd(running.child.id() as i32)?;
        let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is alive.
        if unsafe { libc::poll(&mut poll, 1, 50) } > 0 {
            return Ok(true);
        }
        if let Some(threads) = running.patience.look(running.lines.load(Ordering::Relaxed)) {
            lock(output).note(Found::new(format!("the victim hung{}", watch::place(&threads)), threads));
            watch::kill_group(running.child.id() as i32);
        }
        Ok(false)
    }

    /// Reaps it, and notes how it ended.
    fn reap(&self, output: &SharedOutput, mut running: Running) -> Result<(), String> {
        let status = running.child.wait().map_err(|error| format!("wait: {error}"))?;
        running.readers.into_iter().for_each(|reader| drop(reader.join()));
        let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(libc::SIGKILL);
        lock(output).oracle.end(killed);
        if let Some(crash) = Ended::Status(status).crash() {
            lock(output).note(Found::new(format!("the victim: {crash}"), ""));
        } else if !killed && !status.success() {
            lock(output).note(Found::new(format!("the victim's program could not run: {status}"), ""));
        }
        Ok(())
    }

    /// After the neighbour has gone, leaving its obstacles.
    fn afterwards(&self, output: &SharedOutput, before: &BTreeMap<PathBuf, String>) -> Result<(), String> {
        let mut running = self.victim(output, self.seed ^ 7, Some(12))?;
        while !self.step(output, &mut running)? {}
        self.reap(output, running)?;
        // Whatever lies in its way, root's recover must recover a file of the victim's.
        let last = self.folder.join("victim/v-6");
        self.crash(&last, VICTIM, &[])?;
        for found in root::one(self.space, &["recover"], &self.folder, Path::new("/"))? {
            lock(output).note(found);
        }
        let wanted = [&[b'a'; 5000][..], &[b'b'; 9000], &[b'a'; 6000]].concat();
        let is = std::fs::read(&last).unwrap_or_default();
        if !self.space.plain && (is != wanted || has_mark(&last)) {
            let marked = if has_mark(&last) { ", and still marked" } else { "" };
            let said = std::fs::read_to_string(self.space.base.join("said-by-root")).unwrap_or_default();
            let said: String = said.lines().take(12).map(|line| format!("\n{line}")).collect();
            let detail = format!("{}: {} bytes{marked}{said}", last.display(), is.len());
            lock(output).note(Found::new("root's recover of all does not recover a file of the victim's", detail));
        }
        let strict: Vec<PathBuf> =
            self.files().into_iter().filter(|(_, kind)| kind.ends_with("strict")).map(|(path, _)| path).collect();
        let wrong = lock(output).oracle.look(&strict, "at the end");
        wrong.into_iter().for_each(|found| lock(output).note(found));
        let after = self.pictures();
        for path in before.keys().chain(after.keys()) {
            let (a, b) = (before.get(path), after.get(path));
            if a != b {
                let name = path.strip_prefix(&self.folder).unwrap_or(path).display();
                lock(output).note(Found::new(
                    format!("{name} was changed, made or removed by a user without the right"),
                    format!("{a:?}, then {b:?}"),
                ));
            }
        }
        for path in super::files::entries(&self.folder.join("hostile")) {
            if path.symlink_metadata().is_ok_and(|stat| stat.uid() != NEIGHBOUR) {
                lock(output).note(Found::new(
                    "a file that is not his was made in the neighbour's folder",
                    path.display().to_string(),
                ));
            }
        }
        Ok(())
    }

    /// The state of files that no other user may change.
    fn pictures(&self) -> BTreeMap<PathBuf, String> {
        let mut all = picture(&self.folder.join("canary"));
        all.extend(picture(&self.folder.join("victim/secret")));
        all.extend(picture(&self.folder.join("victim/quiet")));
        all
    }
}
