//! A program or library file: what it imports and exports, and what its machine code does.

use super::raw;
use crate::program::elf::GO_SECTIONS;
use object::elf::{DF_1_PIE, DT_FLAGS_1, PT_DYNAMIC, PT_INTERP};
use object::read::elf::{Dyn, ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SectionKind};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

/// One file.
#[derive(Debug, Default)]
pub struct Image {
    /// The file's name.
    pub name: String,
    /// Dynamic symbols that it imports.
    pub imports: Vec<Import>,
    /// Dynamic functions that it exports.
    pub exports: Vec<String>,
    /// Numbers of the system calls that its code makes directly.
    pub raw: BTreeSet<u32>,
    /// Linked by the Go linker.
    pub is_go: bool,
    /// A library, rather than a program.
    pub is_library: bool,
    /// A program without a loader.
    pub is_static: bool,
    /// A part of the C library, which may make system calls.
    pub is_libc: bool,
}

/// An imported symbol.
#[derive(Debug)]
pub struct Import {
    /// Without its version.
    pub name: String,
    /// From libc.so.6, according to its version.
    pub of_glibc: bool,
}

/// Parts of glibc, by their names' prefixes.
const LIBC: [&str; 12] = [
    "libc.so",
    "ld-linux",
    "libpthread.so",
    "librt.so",
    "libdl.so",
    "libm.so",
    "libmvec.so",
    "libresolv.so",
    "libutil.so",
    "libnss_",
    "libanl.so",
    "libc_malloc_debug.so",
];

/// Reads no more than this of a file, which may be another user's.
const MAX_FILE_LEN: u64 = 1 << 30;

/// Reads a file of this machine's architecture.
pub fn read(path: &Path) -> Result<Image, String> {
    let mut bytes = Vec::new();
    let file = crate::look::open(path).map_err(|error| error.to_string())?;
    file.take(MAX_FILE_LEN).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    of(name, &bytes).map_err(|error| error.to_string())
}

fn of(name: String, bytes: &[u8]) -> object::Result<Image> {
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    let endian = file.endian();
    let versions = file.elf_section_table().versions(endian, bytes)?;
    let version = |index| {
        let versions = versions.as_ref()?;
        let index = versions.version_index(endian, index);
        versions.version(index.into()).ok()?
    };
    let mut image = Image { is_libc: LIBC.iter().any(|start| name.starts_with(start)), name, ..Image::default() };
    for symbol in file.dynamic_symbols() {
        let Ok(name) = symbol.name() else { continue };
        if name.is_empty() {
            continue;
        }
        if symbol.is_undefined() {
            let of_glibc = version(symbol.index()).is_some_and(|version| version.file() == Some(b"libc.so.6"));
            image.imports.push(Import { name: name.to_owned(), of_glibc });
        } else if symbol.is_definition() && symbol.is_global() {
            image.exports.push(name.to_owned());
        }
    }
    let (mut interpreter, mut dynamic, mut program) = (false, false, false);
    for segment in file.elf_program_headers() {
        interpreter |= segment.p_type(endian) == PT_INTERP;
        dynamic |= segment.p_type(endian) == PT_DYNAMIC;
        for entry in segment.dynamic(endian, bytes)?.unwrap_or_default() {
            program |= entry.tag(endian) == DT_FLAGS_1 && entry.val(endian) & DF_1_PIE.0 != 0;
        }
    }
    image.is_static = !interpreter && (program || !dynamic);
    image.is_library = !interpreter && !image.is_static;
    for section in file.sections() {
        let name = section.name().unwrap_or_default();
        image.is_go |= GO_SECTIONS.contains(&name);
        if section.kind() == SectionKind::Text && !image.is_libc {
            raw::search(section.data()?, &mut image.raw);
        }
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_program() {
        let image = read(Path::new("/proc/self/exe")).unwrap();
        assert!(!image.is_library && !image.is_go && !image.is_libc);
        if !image.is_static {
            let write = image.imports.iter().find(|import| import.name == "write").unwrap();
            assert!(write.of_glibc || cfg!(not(target_env = "gnu")));
        }
    }

    #[test]
    fn damage_is_an_error_and_no_panic() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        assert!(of("x".into(), b"").is_err());
        for at in (0..512).chain((512..bytes.len().min(1 << 16)).step_by(997)) {
            let mut damaged = bytes[..bytes.len().min(1 << 20)].to_vec();
            damaged[at] ^= 0xff;
            let _ = of("x".into(), &damaged);
        }
    }
}
