//! Which paths the globs select. Matching does not allocate, since it is part of every `open` of the program.

use super::path_text::{PathText, descriptor_path, folder_and_name, real_path, start};
use super::patterns;
use crate::name_prefilter::{NamePrefilter, name_start};
use crate::posix::raw;
use glob::{MatchOptions, Pattern};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };
/// As many links as the kernel follows.
const LINKS: usize = 40;

/// The most globs that are told apart; a file that a later glob selects counts for the last of them.
pub const MOST_TOLD_APART: usize = 256;

/// A set of globs, by their numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Marks([u64; MOST_TOLD_APART / 64]);

impl Marks {
    fn add(&mut self, glob: usize) {
        let glob = glob.min(MOST_TOLD_APART - 1);
        self.0[glob / 64] |= 1 << (glob % 64);
    }

    /// Whether `glob` is in the set.
    pub fn has(&self, glob: usize) -> bool {
        glob < MOST_TOLD_APART && self.0[glob / 64] >> (glob % 64) & 1 != 0
    }

    pub(in crate::posix) fn words(self) -> [u64; MOST_TOLD_APART / 64] {
        self.0
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a glob just fails to select a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NearMiss {
    /// It would, without regard to case.
    Case,
    /// It would, in another folder: the last component matches.
    Folder,
}

/// The pattern of a path, made absolute.
struct Place {
    whole: Pattern,
    /// Of the last component of the path.
    last: Pattern,
    glob: usize,
}

/// The user's globs. Each is a line of text that expands to some patterns.
pub struct Globs {
    /// Patterns without a slash, which match the last component; with the number of their glob.
    names: Vec<(Pattern, usize)>,
    paths: Vec<Place>,
    /// Number of globs.
    count: usize,
    /// The name prefilter of all patterns.
    pub(in crate::posix) name_prefilter: NamePrefilter,
    /// The folder of journals, which are never atomic.
    pool: Option<Vec<u8>>,
}

fn fits(pattern: &Pattern, text: &[u8]) -> bool {
    match core::str::from_utf8(text) {
        Ok(text) => pattern.matches_with(text, OPTIONS),
        Err(_) => pattern.matches_with(&String::from_utf8_lossy(text), OPTIONS),
    }
}

impl Globs {
    /// Selects nothing.
    pub fn none(pool: Option<&Path>) -> Self {
        Globs {
            names: Vec::new(),
            paths: Vec::new(),
            count: 0,
            name_prefilter: NamePrefilter::none(),
            pool: pool.map(|pool| pool.as_os_str().as_bytes().to_vec()),
        }
    }

    /// Reads newline-separated globs; a relative glob with a slash begins at `folder`.
    pub fn new(globs: &[u8], folder: &[u8], pool: Option<&Path>) -> Result<Self, String> {
        let mut this = Globs::none(pool);
        let home = super::environment::home();
        for glob in globs.split(|&byte| byte == b'\n').filter(|glob| !glob.is_empty()) {
            let glob =
                core::str::from_utf8(glob).map_err(|_| format!("{} is not UTF-8", String::from_utf8_lossy(glob)))?;
            for pattern in patterns::expand(glob, home).map_err(|why| format!("{glob}: {why}"))? {
                this.add(&pattern, folder).map_err(|why| format!("{glob}: {why}"))?;
            }
            this.count += 1;
        }
        if this.count == 0 {
            return Err("no glob in it".into());
        }
        let last = this.names.iter().map(|(pattern, _)| pattern).chain(this.paths.iter().map(|place| &place.last));
        for pattern in last {
            this.name_prefilter.add(pattern.as_str().as_bytes());
        }
        Ok(this)
    }

    /// How many globs there are.
    pub fn count(&self) -> usize {
        self.count
    }

    fn add_place(&mut self, whole: &str) -> Result<(), String> {
        let pattern = |text: &str| Pattern::new(text).map_err(|error| error.to_string());
        let name = whole.rsplit('/').next().unwrap_or(whole);
        self.paths.push(Place { whole: pattern(whole)?, last: pattern(name)?, glob: self.count });
        Ok(())
    }

    /// Adds a pattern of the current glob.
    fn add(&mut self, glob: &str, folder: &[u8]) -> Result<(), String> {
        if glob.contains('/') {
            let escaped = Pattern::escape(&String::from_utf8_lossy(folder));
            let mut text = PathText::new();
            let fitted = if glob.starts_with('/') { true } else { text.join(escaped.as_bytes()) };
            if !fitted || !text.join(glob.as_bytes()) || text.is_empty() {
                return Err("too long".into());
            }
            let absolute = String::from_utf8_lossy(text.get()).into_owned();
            self.add_place(&absolute)?;
            self.add_real(&absolute)?;
        } else {
            self.names.push((Pattern::new(glob).map_err(|error| error.to_string())?, self.count));
        }
        if let Some(literal) = patterns::literal(glob) {
            // The glob may name a link; a program may resolve it and open the target.
            let plain = if glob.starts_with('/') { Vec::new() } else { folder.to_vec() };
            let mut path = PathText::new();
            if path.join(&plain) && path.join(literal.as_bytes()) {
                let flags = libc::O_PATH | libc::O_CLOEXEC;
                // SAFETY: the text is terminated by a zero; the descriptor is ours.
                unsafe {
                    let fd = raw!(SYS_openat, libc::AT_FDCWD, path.c_str(), flags, 0);
                    if fd >= 0 {
                        let mut real = PathText::new();
                        if descriptor_path(fd as RawFd, &mut real) && real.get() != path.get() {
                            self.add_place(&Pattern::escape(&String::from_utf8_lossy(real.get())))?;
                        }
                        raw!(SYS_close, fd);
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the same glob with the folders before its first wildcard resolved.
    fn add_real(&mut self, absolute: &str) -> Result<(), String> {
        // The longest prefix of whole components without a wildcard.
        let mut cut = 0;
        for (at, _) in absolute.match_indices('/').skip(1) {
            if patterns::literal(&absolute[..at]).is_none() {
                break;
            }
            cut = at;
        }
        let (folder, rest) = absolute.split_at(cut);
        let Some(folder) = patterns::literal(folder).filter(|folder| !folder.is_empty()) else { return Ok(()) };
        let mut text = PathText::new();
        if !text.push(folder.as_bytes()) {
            return Ok(());
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the text is terminated by a zero.
        let fd = unsafe { raw!(SYS_openat, libc::AT_FDCWD, text.c_str(), flags, 0) };
        if fd < 0 {
            return Ok(());
        }
        let known = descriptor_path(fd as RawFd, &mut text);
        // SAFETY: the descriptor is ours, and refers to a folder.
        unsafe { raw!(SYS_close, fd) };
        if known && text.get() != folder.as_bytes() {
            self.add_place(&(Pattern::escape(&String::from_utf8_lossy(text.get())) + rest))?;
        }
        Ok(())
    }

    /// Which globs select a path; links are followed as by `open`. For paths that are known to be selected, or are
    /// shown to the user.
    pub fn marks_of(&self, path: &[u8]) -> Marks {
        let mut marks = Marks::default();
        self.matches_or_marks(libc::AT_FDCWD, path, true, Some(&mut marks));
        marks
    }

    /// Adds the globs that select an open file, by the program's path and by the kernel's.
    pub(in crate::posix) fn mark(&self, dirfd: RawFd, said: &[u8], real: &[u8], marks: &mut Marks) {
        self.matches_or_marks(dirfd, said, true, Some(marks));
        self.matches_name(libc::AT_FDCWD, real, Some(marks));
    }

    /// How `glob` just fails to select an absolute path. Allocates nothing.
    pub fn near_miss(&self, glob: usize, path: &[u8]) -> Option<NearMiss> {
        const ANY_CASE: MatchOptions = MatchOptions { case_sensitive: false, ..OPTIONS };
        let path = core::str::from_utf8(path).ok()?;
        let name = &path[name_start(path.as_bytes())..];
        let names = || self.names.iter().filter(|(_, of)| *of == glob);
        let places = || self.paths.iter().filter(|place| place.glob == glob);
        // A star matches every name, so it is no sign that this folder was intended.
        let tells = |pattern: &Pattern| pattern.as_str().bytes().any(|byte| byte.is_ascii_alphanumeric());
        if names().any(|(pattern, _)| pattern.matches_with(name, ANY_CASE))
            || places().any(|place| place.whole.matches_with(path, ANY_CASE))
        {
            Some(NearMiss::Case)
        } else if places().any(|place| tells(&place.last) && place.last.matches_with(name, ANY_CASE)) {
            Some(NearMiss::Folder)
        } else {
            None
        }
    }

    /// Whether a file opened by this path is selected. If `follow`, links are followed as the kernel would.
    pub(in crate::posix) fn matches(&self, dirfd: RawFd, path: &[u8], follow: bool) -> bool {
        self.matches_or_marks(dirfd, path, follow, None)
    }

    /// As [`matches`](Self::matches); with `marks`, collects all globs that select the file.
    fn matches_or_marks(&self, dirfd: RawFd, path: &[u8], follow: bool, mut marks: Option<&mut Marks>) -> bool {
        let mut found = self.matches_name(dirfd, path, marks.as_deref_mut());
        if !follow || (found && marks.is_none()) {
            return found;
        }
        let mut dirfd = dirfd;
        let mut here = PathText::new();
        if !here.push(path) {
            return found;
        }
        for _ in 0..LINKS {
            let mut link = PathText::new();
            // SAFETY: the path is terminated by a zero; the kernel writes at most the buffer's length.
            if !unsafe { link.fill(|to, length| raw!(SYS_readlinkat, dirfd, here.c_str(), to, length)) } {
                return found;
            }
            if link.get()[0] == b'/' {
                dirfd = libc::AT_FDCWD;
                here.clear();
            } else {
                here.cut(here.get().iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1));
            }
            if !here.push(link.get()) {
                return found;
            }
            found |= self.matches_name(dirfd, here.get(), marks.as_deref_mut());
            if found && marks.is_none() {
                return true;
            }
        }
        found
    }

    /// Whether a path without symbolic links may be selected, by its last component. If false, it certainly is not.
    pub(in crate::posix) fn may_match(&self, path: &[u8]) -> bool {
        self.name_prefilter.may_match(path) && {
            let name = folder_and_name(path).1;
            self.fits_name(name) || self.fits_last(name)
        }
    }

    /// Whether a file of that name is selected in any folder.
    fn fits_name(&self, name: &[u8]) -> bool {
        self.names.iter().any(|(pattern, _)| fits(pattern, name))
    }

    /// Whether a file of that name is selected in some folder.
    fn fits_last(&self, name: &[u8]) -> bool {
        self.paths.iter().any(|place| fits(&place.last, name))
    }

    /// Whether an open file is selected, by the kernel's name for it. Uses no other heap than the library's own: an
    /// allocator may be opening the file for itself, with its lock held.
    pub(in crate::posix) fn matches_open(&self, fd: RawFd) -> bool {
        let mut text = PathText::new();
        descriptor_path(fd, &mut text) && self.matches_name(libc::AT_FDCWD, text.get(), None)
    }

    fn matches_name(&self, dirfd: RawFd, path: &[u8], mut marks: Option<&mut Marks>) -> bool {
        let name = folder_and_name(path).1;
        if matches!(name, b"" | b"." | b"..") || !self.name_prefilter.may_match(path) {
            return false;
        }
        let by_name = self.fits_name(name);
        if !by_name && !self.fits_last(name) {
            return false;
        }
        let mut text = PathText::new();
        let mut found = false;
        if start(dirfd, path, &mut text) && text.join(path) {
            if self.is_own(text.get()) {
                return false;
            }
            found = (by_name && marks.is_none()) || self.matches_place(text.get(), marks.as_deref_mut());
        }
        if (!found || marks.is_some()) && real_path(dirfd, path, &mut text) {
            if self.is_own(text.get()) {
                return false;
            }
            found |= (by_name && marks.is_none()) || self.matches_place(text.get(), marks.as_deref_mut());
        }
        if let Some(marks) = marks {
            self.names.iter().filter(|(pattern, _)| fits(pattern, name)).for_each(|(_, glob)| marks.add(*glob));
        }
        found || by_name
    }

    /// Whether an absolute path matches.
    fn matches_place(&self, path: &[u8], marks: Option<&mut Marks>) -> bool {
        let Some(marks) = marks else { return self.paths.iter().any(|place| fits(&place.whole, path)) };
        self.paths.iter().filter(|place| fits(&place.whole, path)).for_each(|place| marks.add(place.glob));
        !marks.is_empty()
    }

    /// Famio's own files: in a folder `.famio`, or in the pool.
    pub(in crate::posix) fn is_own(&self, path: &[u8]) -> bool {
        if path.windows(8).any(|part| part == b"/.famio/") {
            return true;
        }
        let Some(pool) = &self.pool else { return false };
        path.strip_prefix(pool.as_slice()).is_some_and(|rest| rest.first() == Some(&b'/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(text: &str, folder: &str) -> Globs {
        Globs::new(text.as_bytes(), folder.as_bytes(), Some(Path::new("/pool"))).unwrap()
    }

    fn hit(globs: &Globs, path: &str) -> bool {
        globs.matches(libc::AT_FDCWD, path.as_bytes(), true)
    }

    #[test]
    fn names_match_in_every_folder() {
        let globs = globs("*.db\napp", "/x");
        for (path, selected) in [
            ("a.db", true),
            ("/some/where/a.db", true),
            ("/some/where/app", true),
            ("/some/app/where", false),
            ("a.db-journal", false),
            ("/x/.famio/a.db", false),
            ("/pool/a.db", false),
            ("/pool2/a.db", true),
            ("/", false),
            ("", false),
        ] {
            assert_eq!(hit(&globs, path), selected, "{path}");
        }
    }

    #[test]
    fn a_name_needs_no_room_for_its_folder() {
        let name = "a".repeat(libc::PATH_MAX as usize - 1);
        assert!(Globs::new(name.as_bytes(), b"/some/folder", None).is_ok());
        assert!(Globs::new(format!("/{name}").as_bytes(), b"/", None).is_err_and(|why| why.ends_with("too long")));
    }

    #[test]
    fn the_edges_of_a_name_tell_most() {
        let may_be = |globs: &Globs, name: &str| globs.name_prefilter.may_match(name.as_bytes());
        let some = globs("*.db\napp\n/data/log[0-9]?", "/x");
        assert!(may_be(&some, "anything"), "any, because of the star and the question mark");
        let some = globs("a*.db\napp", "/x");
        assert!(may_be(&some, "a.db") && may_be(&some, "app") && may_be(&some, "a\u{e9}"));
        assert!(
            !may_be(&some, "a.txt") && !may_be(&some, "b.db") && !may_be(&some, "") && !some.may_match(b"/a/a.txt")
        );
        assert!(may_be(&globs("*", "/x"), "q") && may_be(&globs("[ab]", "/x"), "b"));
    }

    #[test]
    fn paths_match_as_a_whole() {
        let globs = globs("data/*.db\n/abs/**/log", "/work [1]");
        for (path, selected) in [
            ("/work [1]/data/a.db", true),
            ("/work [1]/./data//x/../a.db", true),
            ("/work [1]/data/b/a.db", false),
            ("/data/a.db", false),
            ("/abs/log", true),
            ("/abs/1/2/log", true),
            ("/abs/1/2/logs", false),
        ] {
            assert_eq!(hit(&globs, path), selected, "{path}");
        }
    }

    #[test]
    fn it_is_known_which_globs_mean_a_file() {
        let globs = globs("*.db\n{/data/a,/data/b}.db\ndir/\n/data/*", "/x");
        assert_eq!(globs.count(), 4);
        for (path, marks) in [
            ("/data/a.db", vec![0, 1, 3]),
            ("/data/c.db", vec![0, 3]),
            ("/x/dir/deep/er/file", vec![2]),
            ("/x/dir", vec![]),
            ("/data/b.txt", vec![3]),
        ] {
            let found = globs.marks_of(path.as_bytes());
            let found: Vec<_> = (0..4).filter(|&glob| found.has(glob)).collect();
            assert_eq!((found, hit(&globs, path)), (marks.clone(), !marks.is_empty()), "{path}");
        }
        for (glob, path, nearly) in [
            (0, "/y/A.DB", Some(NearMiss::Case)),
            (1, "/DATA/a.db", Some(NearMiss::Case)),
            (1, "/y/a.db", Some(NearMiss::Folder)),
            (1, "/y/c.db", None),
            (2, "/y/c.db", None),
            (3, "/y/c.db", None),
        ] {
            assert_eq!(globs.near_miss(glob, path.as_bytes()), nearly, "{glob} {path}");
        }
    }

    #[test]
    fn links_lead_to_the_file() {
        let folder = std::env::temp_dir().join(format!("famio-globs-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("real")).unwrap();
        std::fs::write(folder.join("real/app.db"), "").unwrap();
        std::os::unix::fs::symlink("real/app.db", folder.join("link")).unwrap();
        std::os::unix::fs::symlink("real", folder.join("way")).unwrap();
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let by_name = globs("app.db", "/");
        assert!(hit(&by_name, &path("link")));
        assert!(!by_name.matches(libc::AT_FDCWD, path("link").as_bytes(), false));
        let by_path = globs(&path("real/app.db"), "/");
        assert!(hit(&by_path, &path("way/app.db")) && hit(&by_path, &path("link")));
        let by_other_path = globs(&path("way/app.*"), "/");
        assert!(hit(&by_other_path, &path("real/app.db")));
        let by_link = globs("link", folder.to_str().unwrap());
        assert!(hit(&by_link, &path("real/app.db")));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
