//! The part of a program's ELF header that says whether this machine's dynamic loader will load the library.

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ReadCache};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PT_INTERP: u32 = 3;
/// Sections that the Go linker always creates.
pub const GO_SECTIONS: [&str; 2] = [".go.buildinfo", ".note.go.buildid"];
/// Longest path that the kernel takes as an interpreter.
const LONGEST_PATH: u64 = 4096;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// The kind of a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not an ELF file.
    NotElf,
    /// Of another architecture, or 32-bit.
    Foreign,
    /// No dynamic loader.
    Static,
    /// Loaded by this dynamic loader.
    Dynamic(Vec<u8>),
}

/// Reads a program's header. A damaged header is an error; the kernel would not run the program either.
pub fn read(file: &File) -> io::Result<Kind> {
    let mut header = [0; 64];
    let length = read_up_to(file, &mut header)?;
    if length < 4 || header[..4] != *b"\x7fELF" {
        return Ok(Kind::NotElf);
    }
    if length < header.len() {
        return Err(damaged("ELF header cut short"));
    }
    let (class, data, machine) = (header[4], header[5], u16_at(&header, 18));
    if class != 2 || data != 1 || machine != MACHINE {
        return Ok(Kind::Foreign);
    }
    let (table, size, count) = (u64_at(&header, 32), u16_at(&header, 54), u16_at(&header, 56));
    if size < 56 {
        return Err(damaged("program headers too small"));
    }
    for index in 0..u64::from(count) {
        let mut entry = [0; 56];
        let at = table.checked_add(index * u64::from(size)).ok_or_else(|| damaged("program headers out of range"))?;
        file.read_exact_at(&mut entry, at)?;
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) == PT_INTERP {
            let (offset, length) = (u64_at(&entry, 8), u64_at(&entry, 32));
            if length == 0 || length > LONGEST_PATH {
                return Err(damaged("bad interpreter path"));
            }
            let mut path = vec![0; length as usize];
            file.read_exact_at(&mut path, offset)?;
            path.truncate(path.iter().position(|&byte| byte == 0).unwrap_or(path.len()));
            return Ok(Kind::Dynamic(path));
        }
    }
    Ok(Kind::Static)
}

/// Whether the Go linker made this program. Reads only headers.
pub fn is_go(file: &File) -> bool {
    let cache = ReadCache::new(file);
    let parsed = ElfFile64::<Endianness, _>::parse(&cache);
    parsed.is_ok_and(|parsed| GO_SECTIONS.iter().any(|name| parsed.section_by_name(name).is_some()))
}

/// Reads from the start until `bytes` is full or the file ends.
pub fn read_up_to(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn kind_of(bytes: &[u8]) -> io::Result<Kind> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        read(&file)
    }

    /// A header with program headers of these types, each with `/ld` as its content.
    fn program(class: u8, machine: u16, types: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = types.len() as u8;
        let end = 64 + 56 * types.len();
        for kind in types {
            let mut entry = [0; 56];
            entry[..4].copy_from_slice(&kind.to_le_bytes());
            entry[8..16].copy_from_slice(&(end as u64).to_le_bytes());
            entry[32] = 4;
            bytes.extend(entry);
        }
        bytes.extend(b"/ld\0");
        bytes
    }

    #[test]
    fn kinds() {
        assert_eq!(kind_of(b"#!/bin/sh\n").unwrap(), Kind::NotElf);
        assert_eq!(kind_of(b"").unwrap(), Kind::NotElf);
        assert_eq!(kind_of(&program(1, MACHINE, &[3])).unwrap(), Kind::Foreign);
        assert_eq!(kind_of(&program(2, 3, &[3])).unwrap(), Kind::Foreign);
        assert_eq!(kind_of(&program(2, MACHINE, &[1, 1])).unwrap(), Kind::Static);
        assert_eq!(kind_of(&program(2, MACHINE, &[6, 3, 1])).unwrap(), Kind::Dynamic(b"/ld".to_vec()));
    }

    #[test]
    fn damage_is_an_error() {
        assert!(kind_of(b"\x7fELF\x02").is_err());
        let whole = program(2, MACHINE, &[1, 3]);
        for length in 64..whole.len() {
            assert!(kind_of(&whole[..length]).is_err(), "{length}");
        }
        let mut far = whole.clone();
        far[39] = 0xff;
        assert!(kind_of(&far).is_err());
    }

    #[test]
    fn this_test_is_dynamic() {
        let file = File::open("/proc/self/exe").unwrap();
        assert!(matches!(read(&file).unwrap(), Kind::Dynamic(_) | Kind::Static));
    }
}
