//! Classes of steps, which can be left out.

use crate::options::Options;

/// A class of steps.
#[derive(Clone, Copy)]
pub struct Class {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Only on request.
    pub asked: bool,
}

const fn class(name: &'static str, what: &'static str) -> Class {
    Class { name, what, asked: false }
}

/// Those of the program, in the order of `enum class` in host.h; then those of the neighbour.
pub const CLASSES: &[Class] = &[
    class("base", "open, write, read, fsync, close, lseek, ftruncate, stat, dup"),
    class("numbers", "open and dup give the numbers that they give on a plain file"),
    class("close", "close_range, closefrom, loops over all numbers, close of numbers that are not open"),
    Class { name: "inline", what: "close past libc, by the system call itself", asked: true },
    class("std", "descriptors 0, 1 and 2 are closed, led elsewhere, and written to"),
    class("move", "dup2, dup3, F_DUPFD to any number, over other files"),
    class("probe", "looks at, and writes by, numbers that are not open"),
    class("full", "no number is free (EMFILE)"),
    class("nofile", "setrlimit(RLIMIT_NOFILE), down to 4"),
    class("fsize", "setrlimit(RLIMIT_FSIZE), down to 0"),
    class("as", "setrlimit(RLIMIT_AS), down to 256 MiB"),
    class("signals", "a timer's handler writes, syncs, opens and closes while the program allocates and forks"),
    class("cancel", "pthread_cancel, deferred"),
    class("async-cancel", "pthread_cancel, asynchronous"),
    class("fork", "children that work on what they inherit, and exit"),
    class("daemon", "the parent exits, the child goes on"),
    class("vfork", "vfork and posix_spawn"),
    class("exec", "exec of the program itself"),
    class("chroot", "chroot to the program's folder"),
    class("setuid", "root becomes an ordinary user"),
    class("seteuid", "root acts for a user for some calls"),
    class("umask", "umask"),
    class("chmod", "files become 0444 and other modes, and back"),
    class("chown", "files get another owner"),
    class("names", "unlink, rename, link, replace"),
    class("rmfamio", "rm -r .famio"),
    class("direct", "O_DIRECT, aligned and not"),
    class("user", "the program is an ordinary user's, in his folder"),
    class("guest", "an ordinary user's, in a folder that he may not write"),
    class("kill", "SIGKILL between two steps, and famio recover"),
    class("left", "nothing is left after a clean end"),
    class("shm", "neighbour: what lies in /dev/shm, and guessable names there"),
    class("dotfamio", "neighbour: .famio in folders that others may write, and what lies in it"),
    class("journals", "neighbour: changed and made-up journals and marks, in his own folder"),
    class("kinds", "neighbour: FIFOs, links, devices, folders where files are expected"),
    class("truncate", "neighbour: cuts and grows what others may have mapped"),
    class("locks", "neighbour: flock, F_SETLK, F_OFD_SETLK on all that he may open"),
    class("leases", "neighbour: F_SETLEASE on his own files, never given up"),
    class("settings", "neighbour: famio.toml of all kinds"),
    class("swap", "neighbour: exchanges files, folders and links at any moment"),
    class("deep", "neighbour: trees deeper than a path may be, and a thousand junk journals"),
    class("readers", "neighbour: reads and maps what he may read, under Famio and without"),
    class("group", "victim: files that a group may write"),
    class("kill-victim", "victim: killed now and then"),
];

/// A set of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes(pub u64);

impl Classes {
    /// The classes chosen on the command line.
    pub fn chosen(options: &Options) -> Result<Self, String> {
        let one =
            |name: &String| Self::number(name).map(|at| 1 << at).ok_or_else(|| format!("{name}: no class of steps"));
        let all = |names: &[String]| {
            names.iter().filter(|name| !name.is_empty()).map(one).try_fold(0, |set, bit| Ok::<u64, String>(set | bit?))
        };
        let usual = (0..CLASSES.len()).filter(|&at| !CLASSES[at].asked).fold(0, |set, at| set | 1 << at);
        let chosen = if options.only.is_empty() { usual } else { all(&options.only)? | 1 };
        Ok(Self((chosen | all(&options.with)?) & !all(&options.without)?))
    }

    fn number(name: &str) -> Option<usize> {
        CLASSES.iter().position(|class| class.name == name)
    }

    /// Whether the class is in the set.
    pub fn has(self, name: &str) -> bool {
        Self::number(name).is_some_and(|at| self.0 >> at & 1 == 1)
    }

    /// Without it.
    pub fn without(self, name: &str) -> Self {
        Self(Self::number(name).map_or(self.0, |at| self.0 & !(1 << at)))
    }

    /// Prints all classes.
    pub fn list() {
        for class in CLASSES {
            println!("{:13}{}{}", class.name, class.what, if class.asked { " (only with --with)" } else { "" });
        }
    }
}
