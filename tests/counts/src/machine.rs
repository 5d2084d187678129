//! What counts depend on, besides the source.

use famio::pmem::cpu;

/// The build, and the machine as seen by the program: under valgrind, which emulates a CPU of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    facts: Vec<(String, String)>,
}

impl Machine {
    /// For this program.
    pub fn here() -> Self {
        // SAFETY: gives a static string.
        let libc = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        let facts = [
            ("rustc", env!("COUNTS_RUSTC").to_string()),
            ("build", env!("COUNTS_BUILD").to_string()),
            ("libc", format!("glibc {}", libc.to_string_lossy())),
            ("cpu", format!("{}{}, {}", std::env::consts::ARCH, vectors(), cpu::features())),
        ];
        Self { facts: facts.map(|(name, value)| (name.to_string(), value)).into() }
    }

    /// Reads a line `name: value`; false: not one of these.
    pub fn take(&mut self, line: &str) -> bool {
        let Some((name, value)) = line.split_once(": ") else { return false };
        self.facts.push((name.to_string(), value.to_string()));
        true
    }

    /// One fact per line.
    pub fn text(&self) -> String {
        self.facts.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
    }

    /// Describes the first fact in which `here` differs.
    pub fn differs_from(&self, here: &Self) -> Option<String> {
        let value = |machine: &Self, wanted: &str| {
            let found = machine.facts.iter().find(|(name, _)| name == wanted);
            found.map_or("unknown".to_string(), |(_, value)| value.clone())
        };
        let names = here.facts.iter().map(|(name, _)| name);
        let mut pairs = names.map(|name| (name, value(self, name), value(here, name)));
        pairs.find(|(_, then, now)| then != now).map(|(name, then, now)| format!("{name}: {then}, and here {now}"))
    }
}

/// The features by which the C library chooses its copy functions.
#[cfg(target_arch = "x86_64")]
fn vectors() -> &'static str {
    match (std::is_x86_feature_detected!("avx512f"), std::is_x86_feature_detected!("avx2")) {
        (true, _) => " with AVX-512",
        (false, true) => " with AVX2",
        (false, false) => "",
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn vectors() -> &'static str {
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Machine {
        let mut machine = Machine::default();
        assert!(text.lines().all(|line| machine.take(line)));
        machine
    }

    #[test]
    fn what_is_written_is_read() {
        let here = Machine::here();
        assert_eq!(of(&here.text()), here);
        assert_eq!(here.differs_from(&here), None);
    }

    #[test]
    fn a_difference_is_named() {
        let (then, now) = (of("rustc: 1\ncpu: a"), of("rustc: 1\ncpu: b"));
        assert_eq!(then.differs_from(&now).unwrap(), "cpu: a, and here b");
        assert_eq!(of("rustc: 1").differs_from(&now).unwrap(), "cpu: unknown, and here b");
    }
}
