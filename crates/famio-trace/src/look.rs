//! What must be examined before a call that will change it.

use crate::layout::{Record, Shared};
use crate::stat::{self, Regular};
use crate::*;
use core::ffi::c_char;

/// In the wrapper's frame: the state before the call.
#[repr(C)]
pub struct Look {
    is_file: u64,
    device: u64,
    inode: u64,
    size: u64,
    is_named: u64,
    /// The number plus 1 of the record of the file that loses its name.
    record: u64,
    spare: [u64; 2],
}

impl Look {
    /// Of a descriptor.
    pub fn of(fd: i32) -> Self {
        Self::new(stat::of(fd))
    }

    /// For a path, whose record can be found only before the call.
    fn named(folder: i32, name: *const c_char) -> Self {
        let mut look = Self::new(stat::at(folder, name));
        if let (Some(file), Some(shared)) = (look.file(), start::shared()) {
            let number = known::by_path(shared, &file, || stat::Path::named(folder, name));
            look.record = number.map_or(0, |number| number as u64 + 1);
        }
        look
    }

    /// The record of the file that loses its name.
    pub fn record<'a>(&self, shared: &'a Shared) -> Option<&'a Record> {
        shared.records.get((self.record as usize).checked_sub(1)?)
    }

    fn new(found: Option<Regular>) -> Self {
        let file = found.unwrap_or(Regular { device: 0, inode: 0, size: 0, is_named: false });
        let Regular { device, inode, size, is_named } = file;
        Self {
            is_file: found.is_some().into(),
            device,
            inode,
            size,
            is_named: is_named.into(),
            record: 0,
            spare: [0; 2],
        }
    }

    /// The file that the call was about to change.
    pub fn file(&self) -> Option<Regular> {
        let &Self { is_file, device, inode, size, is_named, .. } = self;
        (is_file != 0).then_some(Regular { device, inode, size, is_named: is_named != 0 })
    }
}

/// The file that a call of this kind is about to change.
pub fn before(kind: u32, a: &[isize; 6]) -> Look {
    let path = |at: usize| a[at] as *const c_char;
    match kind {
        WRITES | WRITES_AT | WRITES_V2 | PRINTS | CUTS | SENDS => Look::of(a[0] as i32),
        COPIES => Look::of(a[2] as i32),
        // SAFETY: any descriptor is fine; a bad pointer faults here as it would in libc.
        AIO_WRITES => Look::of(unsafe { (*(a[0] as *const libc::aiocb)).aio_fildes }),
        REMOVES => Look::named(libc::AT_FDCWD, path(0)),
        REMOVES_AT => Look::named(a[0] as i32, path(1)),
        RENAMES => Look::named(libc::AT_FDCWD, path(0)),
        RENAMES_AT => Look::named(a[0] as i32, path(1)),
        _ => Look::new(None),
    }
}
