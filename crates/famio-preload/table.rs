// The table of hooks: read by build.rs, which makes the exports, and by the test that keeps docs/posix.md in step.

/// One line of `hooks.txt`.
pub struct Row {
    /// What is done with an atomic file.
    pub treatment: String,
    /// How the export is made.
    pub shape: String,
    /// The name, and its aliases.
    pub names: Vec<String>,
    /// Arguments as `name: type`.
    pub arguments: Vec<String>,
    /// The C result's type.
    pub result: String,
    /// What is run.
    pub body: String,
    /// For the reader.
    pub remark: String,
}

impl Row {
    /// Whether the first argument is the descriptor that the call works on.
    pub fn takes_descriptor(&self) -> bool {
        self.arguments.first().is_some_and(|argument| argument == "fd: i32")
    }
}

/// A heading with its rows.
pub struct Section {
    /// The heading.
    pub title: String,
    /// The rows below it.
    pub rows: Vec<Row>,
}

/// Reads the table.
pub fn parse(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push(Section { title: title.to_owned(), rows: Vec::new() });
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let escaped = line.replace("\\|", "\u{1}");
        let fields: Vec<String> = escaped.split('|').map(|field| field.trim().replace('\u{1}', "|")).collect();
        let [treatment, shape, names, prototype, body, remark] = fields.as_slice() else {
            panic!("hooks.txt:{}: six fields expected, {} found", index + 1, fields.len());
        };
        assert!(
            ["handle", "demote", "refuse", "watch", "forward"].contains(&treatment.as_str()),
            "hooks.txt:{}: treatment {treatment}",
            index + 1
        );
        let (arguments, result) = match prototype.split_once(") -> ") {
            Some((arguments, result)) => (arguments.trim_start_matches('('), result),
            None => ("", ""),
        };
        sections.last_mut().expect("a section before the first row").rows.push(Row {
            treatment: treatment.clone(),
            shape: shape.clone(),
            names: names.split(", ").map(str::to_owned).collect(),
            arguments: arguments.split(", ").filter(|argument| !argument.is_empty()).map(str::to_owned).collect(),
            result: result.to_owned(),
            body: body.clone(),
            remark: remark.clone(),
        });
    }
    sections
}

/// The table as `docs/posix.md`.
pub fn document(sections: &[Section]) -> String {
    let mut text = String::from(HEAD);
    for section in sections {
        text += &format!("\n## {}\n\n", section.title);
        for row in &section.rows {
            let names: Vec<String> = row.names.iter().map(|name| format!("`{name}`")).collect();
            let remark = if row.remark.is_empty() { String::new() } else { format!(": {}", row.remark) };
            text += &wrapped(&format!("- {}: **{}**{remark}", names.join(", "), row.treatment));
        }
    }
    text
}

/// An item of a list, in lines of at most 120 characters.
fn wrapped(item: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in item.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > 120 {
            text += "\n  ";
            width = 2;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text += word;
        width += length;
    }
    text.push('\n');
    text
}

const HEAD: &str = "# POSIX calls under Famio

<!-- Made from crates/famio-preload/hooks.txt and table.rs; change them and run
     `FAMIO_BLESS=1 cargo test -p famio-preload --test table`. -->

What `libfamio_preload.so` does with each libc function that can reach the data of an **atomic file**, for people who
want to know how a call differs from the kernel's. For every other file and descriptor these functions do what libc
does.

- **handle**: the library answers.
- **demote**: the library commits and checkpoints the file and leaves it to the kernel, with a notice on stderr; from
  there on it is an ordinary file for the rest of the process.
- **refuse**: an error, in a process whose configuration names atomic files.
- **watch**: libc or the kernel answers; the library prepares or takes note.
- **forward**: not interposed, for the reason given.

The library cannot see inlined system calls, static or set-user-id programs, and what a child made by `vfork` or
`posix_spawn` does before it runs another program. `famio doctor CMD` looks for these in a program.

A glob on paths selects atomic files. Links are followed, and once a file is open in a process, every other path to it
in that process leads to the same atomic file. A second `open` of an atomic file may get a duplicate of the first one's
descriptor, with its own description in the library ([twins](outsiders.md#twins)).

## io_uring and kernel AIO

Requests of io_uring and of kernel AIO (libaio) would bypass the library. So `famio run` installs a seccomp filter: in
the program and all that it starts, `io_uring_setup` and `io_setup` fail with `ENOSYS`, however they are called.
Programs then fall back to the calls below.

- With `--async-io allow` there is no filter, and the library does not refuse either: what io_uring does to an atomic
  file is not protected, and a file that libaio's `io_submit` names is demoted.
- If the filter cannot be installed (in a container that forbids it) and the kernel would take the calls, `famio run`
  does not run the program without that option.
- Without `CAP_SYS_ADMIN` the kernel takes a filter only together with `no_new_privs`: set-user-id programs that the
  program starts, such as `sudo`, gain no rights.
- A ring that another process set up and passed on works, and is not noticed.
- Without `famio run`, by `LD_PRELOAD` alone, the library still refuses io_uring that is set up through libc or
  liburing.

## Signal handlers

What POSIX lists as async-signal-safe is so on atomic files, too: `open`, `close`, `read`, `write`, `pread`, `pwrite`
and their vectors, `fsync`, `fdatasync`, `lseek`, `dup`, `dup2`, `fcntl`, `ftruncate`, the `stat` family, `fork`,
`_exit` and `execve`. They take no memory from libc's allocator and no lock of libc's, and start no thread.

Calls on atomic files take at most 9 KiB of the caller's stack: `open` 6 KiB, a write of up to 512 bytes 4 KiB, a longer
one 8 KiB, and 9 KiB where a session begins or a file is cut (the first write that is not at the end, `O_TRUNC`). Only
an `open` that recovers a file after a crash takes more, up to 24 KiB.

A handler runs before or after a call on an atomic file, never in the middle: a signal that comes while the call holds a
lock is kept, with its `siginfo_t`, until the lock is free. So a handler may leave by `siglongjmp`, and `_exit` in it
commits. To that end the handlers that `sigaction` and `signal` set run behind a function of the library's; the program
sees them as it has set them. Exceptions:

- Handlers that are set in another way (`sigset`, or a system call of the program's own), or with `SA_RESETHAND`, or
  before the library was loaded, run at once. If they interrupted a call that holds a lock, their own calls on atomic
  files fail with `EDEADLK`, and `_exit` in them is a crash.
- The first write to any file starts the library's background thread, which checkpoints files and hands them over to
  other processes, but not in a handler. It starts with the next write to a new file, or SYNC, outside a handler. Until
  then other processes cannot have the files that this process has written. (It is not started with the program: a
  second thread costs every program time, and keeps it from `unshare(CLONE_NEWUSER)`.)
- `fork` in a handler that has interrupted `malloc` waits for ever, as in any program with threads: libc's `fork` takes
  the allocator's lock, and a program with open atomic files has a thread of the library's.
- A program's own allocator that writes atomic files while it holds its lock must permit one more allocation by the
  thread in it, at the first write.
- A thread of the library waits for `SIGSTKFLT`, which the kernel itself never sends: it tells of another process that
  opens a file. While the process writes atomic files, one that somebody sends to the process may be lost.

**Cancellation.** Calls on atomic files are no cancellation points, nor is `open` of any file. In `fopen`, `freopen`,
`fclose`, `fseek` and their like, `fgetwc`, `fgetws` and `mkstemp` of any file, a cancelled thread ends before the call,
not in the middle. This matters for a thread that waits in one of them: for the other end of a FIFO, or for a terminal.
A thread that may be cancelled at any instruction (`PTHREAD_CANCEL_ASYNCHRONOUS`) is cancelled after a read, write, SYNC,
lock or `close` by descriptor, not in the middle. POSIX allows no other function of files there either; in those (`open`,
`stat`) the cancellation of such a thread may end the program.

## The library's descriptors

The library has three descriptors for each file that is written, one or two more during checkpoints or while the file is
mapped, and three more for maps of a large file. They have the highest numbers below the limit, at most 4095, and are
closed on `exec`.

- A call of the program by one of these numbers (`write`, `close`, `dup`, `fcntl`, `fstat`, `mmap` and the others below)
  fails with `EBADF`. `close_range` and `closefrom` leave them open, and `dup2` or `F_DUPFD` to such a number moves the
  library's descriptor away.
- If an inlined system call closes one, the library notices that before the next use, and opens the file anew by name.
  If its own locks on the file are lost in that way, other processes take the file for closed. While a session begins or
  ends in a program with a single thread, it looks once: a process that shares the descriptors without being a thread
  (`clone` with `CLONE_FILES` alone), or a handler installed past libc, must not close any at that moment.
";
