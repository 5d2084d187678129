//! The domain of a file: from its file system, a trial mapping, and the user's settings.

use super::{Domain, TestHooks};
use crate::error::{Error, Result};
use crate::settings::{Durability, Settings, TierChoice};
use crate::sys::device::{OfDevice, sysfs_of};
use crate::sys::{FileSystem, InternalFd};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd};

/// What was detected about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    /// What a store to it needs to survive.
    pub domain: Domain,
    /// The domain without regard to the settings.
    pub natural: Domain,
    /// The file system, by the name that `mount` uses.
    pub file_system: &'static str,
    /// The platform flushes its caches itself when power fails, so no write-backs are needed. Only for pmem.
    pub eadr: bool,
}

/// The kind of a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// On a disk of this machine.
    Disk,
    /// In memory.
    Memory,
    /// Unsupported; what it is, for the message.
    Refused(&'static str),
}

/// `f_type` of the supported and refused file systems, from the kernel's `magic.h` and from out-of-tree file systems.
const FILE_SYSTEMS: &[(u32, &str, Kind)] = &[
    (0xEF53, "ext2/3/4", Kind::Disk),
    (0x5846_5342, "xfs", Kind::Disk),
    (0x9123_683E, "btrfs", Kind::Disk),
    (0xF2F5_2010, "f2fs", Kind::Disk),
    (0xCA45_1A4E, "bcachefs", Kind::Disk),
    (0x2FC1_2FC1, "zfs", Kind::Disk),
    (0x794C_7630, "overlayfs", Kind::Disk),
    (0x0102_1994, "tmpfs", Kind::Memory),
    (0x6969, "nfs", Kind::Refused("a network file system")),
    (0xFF53_4D42, "cifs", Kind::Refused("a network file system")),
    (0xFE53_4D42, "smb2", Kind::Refused("a network file system")),
    (0x517B, "smbfs", Kind::Refused("a network file system")),
    (0x00C3_6400, "ceph", Kind::Refused("a cluster file system")),
    (0x5346_414F, "afs", Kind::Refused("a network file system")),
    (0x6B41_4653, "afs", Kind::Refused("a network file system")),
    (0x7375_7245, "coda", Kind::Refused("a network file system")),
    (0x0102_1997, "9p", Kind::Refused("a network file system")),
    (0x786F_4256, "vboxsf", Kind::Refused("a shared folder of the host")),
    (0x0116_1970, "gfs2", Kind::Refused("a cluster file system")),
    (0x7461_636F, "ocfs2", Kind::Refused("a cluster file system")),
    (0x0BD0_0BD0, "lustre", Kind::Refused("a cluster file system")),
    (0x4750_4653, "gpfs", Kind::Refused("a cluster file system")),
    (0x6573_5546, "fuse", Kind::Refused("a FUSE file system")),
];

/// Detects the domain of an open file (read-only suffices), or, for a file to be created in it, of an open folder.
///
/// # Errors
/// `EOPNOTSUPP`: Famio can give no guarantee there. `EINVAL`: the settings weaken durability without saying so. Others:
/// the kernel's.
pub fn detect(fd: BorrowedFd<'_>, settings: &Settings) -> Result<Detected> {
    detect_on(&FileSystem::of(fd)?, fd, settings)
}

/// As [`detect`], on a file system of which this was found.
///
/// # Errors
/// As [`detect`].
pub(crate) fn detect_on(system: &FileSystem, fd: BorrowedFd<'_>, settings: &Settings) -> Result<Detected> {
    if let Some(domain) = TestHooks::current().domain {
        return Ok(Detected { domain, natural: domain, file_system: "test", eadr: false });
    }
    let (file_system, kind) = identify(system.magic)?;
    let natural = match kind {
        Kind::Memory => Domain::Process,
        _ if maps_sync(fd)? => Domain::Pmem,
        _ => Domain::PageCache,
    };
    let domain = choose(natural, file_system, settings)?;
    let eadr = domain == Domain::Pmem && caches_are_flushed(fd);
    Ok(Detected { domain, natural, file_system, eadr })
}

impl Detected {
    /// Why this domain, in words for `famio doctor`.
    pub fn reason(&self) -> String {
        let reason = natural_reason(self.natural, self.file_system);
        match self.domain {
            domain if domain == self.natural => reason,
            Domain::Emulated => format!("asked for; {reason}"),
            _ => format!("durability process was asked for; {reason}"),
        }
    }
}

fn natural_reason(natural: Domain, file_system: &str) -> String {
    match natural {
        Domain::Process | Domain::Emulated => format!("{file_system} is memory: it ends with the boot"),
        Domain::Pmem => format!("{file_system} mapped it with MAP_SYNC"),
        Domain::PageCache => format!("{file_system} refuses MAP_SYNC: data goes through the page cache"),
    }
}

/// Whether a file has a tiered journal: the file lies on a disk and its journal in memory that persists by itself, to
/// the degree that the settings demand.
pub fn is_tiered(file: &Detected, journal: &Detected, settings: &Settings) -> bool {
    let volatile = |domain| matches!(domain, Domain::Process | Domain::Emulated);
    settings.tier == TierChoice::Auto
        && file.natural == Domain::PageCache
        && journal.natural.is_byte_addressable()
        && journal.domain.is_byte_addressable()
        && (!volatile(journal.domain) || volatile(file.domain))
}

/// Whether a file is on a file system that supports atomic files, and not on a virtual one such as `/proc`. `O_PATH`
/// suffices.
pub(crate) fn is_known(fd: BorrowedFd<'_>) -> bool {
    FileSystem::of(fd).is_ok_and(|found| identify(found.magic).is_ok())
}

/// Whether a file's bytes lie in ordinary memory, on a tmpfs.
pub(crate) fn is_in_memory(fd: BorrowedFd<'_>) -> bool {
    FileSystem::of(fd).is_ok_and(|found| matches!(identify(found.magic), Ok((_, Kind::Memory))))
}

fn identify(magic: u32) -> Result<(&'static str, Kind)> {
    match FILE_SYSTEMS.iter().find(|row| row.0 == magic) {
        Some(&(_, name, Kind::Refused(what))) => Err(Error::with(
            libc::EOPNOTSUPP,
            format!("{name} (type {magic:#x}) is {what}: Famio can't know what survives there; use a local one"),
        )),
        Some(&(_, name, kind)) => Ok((name, kind)),
        None => Err(Error::with(
            libc::EOPNOTSUPP,
            format!("unknown file system (type {magic:#x}): Famio can't know what survives there"),
        )),
    }
}

/// Applies the settings to the natural domain. They may weaken it only explicitly.
fn choose(natural: Domain, file_system: &str, settings: &Settings) -> Result<Domain> {
    let process = settings.durability == Durability::Process;
    if settings.emulated {
        if natural != Domain::Process && !process {
            return Err(Error::with(
                libc::EINVAL,
                format!(
                    "domain emulated survives no power loss, and {natural} here does: \
                     ask for durability process too, or go to a tmpfs ({})",
                    natural_reason(natural, file_system)
                ),
            ));
        }
        return Ok(Domain::Emulated);
    }
    Ok(if process { Domain::Process } else { natural })
}

/// Whether the kernel maps this very file with `MAP_SYNC`: DAX can differ from file to file. Touches no page, so an
/// empty file suffices.
fn maps_sync(fd: BorrowedFd<'_>) -> Result<bool> {
    use rustix::io::Errno;
    let stat = rustix::fs::fstat(fd)?;
    if !may_have_dax(stat.st_dev) {
        return Ok(false);
    }
    // A folder refuses MAP_SYNC with the same error as a file without DAX, so a file in the folder is tried.
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    if kind == rustix::fs::FileType::Directory {
        return maps_sync(unnamed_file_in(fd)?.as_fd());
    }
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: a new mapping at an address that the kernel chooses; replaces nothing.
    match unsafe { rustix::mm::mmap(core::ptr::null_mut(), PAGE, ProtFlags::READ, flags, fd, 0) } {
        Ok(trial) => {
            // SAFETY: the mapping just made, which no other code has seen.
            unsafe { rustix::mm::munmap(trial, PAGE) }?;
            Ok(true)
        }
        // EINVAL: a kernel before 4.15, without MAP_SHARED_VALIDATE.
        Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(false),
        Err(errno) => Err(Error::from(errno).context("trial mapping")),
    }
}

/// Whether a file on this device can have DAX: without a trial, which takes a file, where sysfs says no. What xfs has on a
/// realtime device beside this one then goes through the page cache.
fn may_have_dax(device: u64) -> bool {
    static KNOWN: OfDevice = OfDevice::new();
    KNOWN.get(device, || {
        let sysfs = sysfs_of(device);
        // A partition has no queue of its own.
        let found = ["queue/dax", "../queue/dax"].iter().find_map(|name| read_short(&format!("{sysfs}/{name}")));
        found.as_deref() != Some(b"0")
    })
}

/// The content of a small file of sysfs, without the space around it.
fn read_short(path: &str) -> Option<Vec<u8>> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0u8; 32];
    let length = rustix::io::read(&file, &mut text).ok()?;
    Some(text[..length].trim_ascii().to_vec())
}

/// An unnamed file in the folder `fd`: it inherits the folder's DAX attribute, as a journal there would.
pub(crate) fn unnamed_file_in(fd: BorrowedFd<'_>) -> Result<InternalFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let refused = |errno| Error::from(errno).context("neither a file that can be mapped nor a folder to try one in");
    crate::sys::openat(fd, c".", flags, Mode::RUSR | Mode::WUSR).map_err(refused)
}

const PAGE: usize = 4096;

/// Whether the NVDIMM region behind `fd` is in the platform's flush-on-power-failure domain. If the region cannot be
/// found (behind a volume manager), all regions must be.
fn caches_are_flushed(fd: BorrowedFd<'_>) -> bool {
    match region_of(fd) {
        Some(region) => region_flushes(&region),
        None => {
            // A machine has few regions; a gap in the numbers (a destroyed region) hides none below the bound.
            let mut all = (0..64).map(|n| format!("region{n}")).filter(|name| region_exists(name)).peekable();
            all.peek().is_some() && all.all(|name| region_flushes(&name))
        }
    }
}

/// The region's name in sysfs's path of the file's block device: `…/ndbus0/region0/namespace0.0/block/pmem0`.
fn region_of(fd: BorrowedFd<'_>) -> Option<String> {
    let device = rustix::fs::fstat(fd).ok()?.st_dev;
    let path = rustix::fs::readlink(sysfs_of(device), Vec::new()).ok()?;
    region_in(path.to_str().ok()?).map(str::to_owned)
}

fn region_in(path: &str) -> Option<&str> {
    path.split('/').find(|part| {
        part.strip_prefix("region").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

fn region_exists(region: &str) -> bool {
    rustix::fs::stat(format!("/sys/bus/nd/devices/{region}")).is_ok()
}

fn region_flushes(region: &str) -> bool {
    read_short(&format!("/sys/bus/nd/devices/{region}/persistence_domain")).is_some_and(|text| text == b"cpu_cache")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn on(path: &str, settings: &Settings) -> Result<Detected> {
        detect(File::open(path).unwrap().as_fd(), settings)
    }

    #[test]
    fn tmpfs_is_process_and_may_be_emulated() {
        let file = crate::pmem::test_file("/dev/shm", 0);
        let detected = detect(file.as_fd(), &Settings::default()).unwrap();
        assert_eq!((detected.domain, detected.file_system, detected.eadr), (Domain::Process, "tmpfs", false));
        let settings = Settings { emulated: true, ..Settings::default() };
        assert_eq!(detect(file.as_fd(), &settings).unwrap().domain, Domain::Emulated);
    }

    #[test]
    fn a_folder_gives_what_its_files_would() {
        assert_eq!(on("/dev/shm", &Settings::default()).unwrap().domain, Domain::Process);
        let here = on(".", &Settings::default()).unwrap();
        let file = crate::pmem::test_file(".", 0);
        assert_eq!(here, detect(file.as_fd(), &Settings::default()).unwrap());
    }

    #[test]
    fn what_can_give_no_guarantee_is_refused_by_name_and_number() {
        let error = on("/proc/self/status", &Settings::default()).unwrap_err();
        assert_eq!(error.errno(), libc::EOPNOTSUPP);
        assert!(error.to_string().contains("0x9fa0"), "{error}");
        let error = identify(0x6969).err().unwrap();
        assert!(error.to_string().starts_with("nfs (type 0x6969) is a network file system"), "{error}");
    }

    #[test]
    fn settings_never_weaken_in_silence() {
        let settings = |emulated, durability| Settings { emulated, durability, ..Settings::default() };
        let of = |natural, s: &Settings| choose(natural, "tmpfs", s);
        for disk in [Domain::PageCache, Domain::Pmem] {
            assert_eq!(of(disk, &settings(false, Durability::Power)).unwrap(), disk);
            assert_eq!(of(disk, &settings(false, Durability::Process)).unwrap(), Domain::Process);
            assert_eq!(of(disk, &settings(true, Durability::Process)).unwrap(), Domain::Emulated);
            assert_eq!(of(disk, &settings(true, Durability::Power)).unwrap_err().errno(), libc::EINVAL);
        }
        assert_eq!(of(Domain::Process, &settings(true, Durability::Power)).unwrap(), Domain::Emulated);
        assert_eq!(of(Domain::Process, &settings(false, Durability::Process)).unwrap(), Domain::Process);
    }

    #[test]
    fn the_region_is_found_in_a_device_path() {
        let path = "../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/region12/namespace12.0/block/pmem12";
        assert_eq!(region_in(path), Some("region12"));
        assert_eq!(region_in("../../devices/virtual/block/dm-0"), None);
        assert!(!region_flushes("region999"));
    }
}
