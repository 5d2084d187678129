//! `exec`: another program continues in this process, with the descriptors that stay open.

use super::process;
use crate::file;
use crate::posix::descriptors::description::Handle;
use crate::posix::descriptors::table;
use crate::posix::descriptors::verify::{descriptor_flags, is_still};
use crate::posix::raw;
use crate::posix::runtime::say::{Once, say, say_once};
use crate::posix::runtime::state::{in_vfork_child, is_on};
use crate::sys::address_space::Lowered;
use core::ffi::c_char;
use std::ffi::CStr;
use std::os::fd::RawFd;

/// Before `exec`: closes files clean. The descriptors that stay open are atomic files of the new program too if it is
/// `managed` (it loads this library with this configuration); otherwise they show the kernel's view. Dropping the
/// returned [`Passing`] undoes this if `exec` fails.
pub fn before_exec(managed: bool) -> Passing {
    process::tell_of_standard_error();
    if !is_on() {
        return Passing::nothing(Lowered::new(false));
    }
    let lowered = Lowered::new(in_vfork_child());
    if !table::any() {
        if !in_vfork_child() && crate::posix::call::lock::not_reentered().is_ok() {
            crate::posix::descriptors::rights::tidy();
        }
        return Passing::nothing(lowered);
    }
    if in_vfork_child() {
        keep_from_new_program(managed);
        return Passing::nothing(lowered);
    }
    // A file that is only mapped has no descriptor, but stores to commit.
    let mut own = file::shadow::any() || table::Unlisted::any() || file::any_deferred_close();
    table::for_each(0, u32::MAX, |_, handle| own |= handle.is_ours());
    let has_released = own && crate::posix::call::lock::not_reentered().is_ok();
    if has_released {
        crate::posix::descriptors::inherit::demote_out_of_reach("an exec after");
        process::close_all();
        file::release_all();
        crate::posix::descriptors::rights::tidy();
        each_inherited(|fd, handle| {
            if handle.split().is_err() {
                return keep(fd);
            }
            if handle.is_ours() && handle.file().is_demoted() {
                let _ = handle.demote(fd); // already split
            }
            if handle.is_shared() {
                return; // see below
            }
            if managed && handle.is_live() {
                handle.pass_on(fd);
            } else if handle.is_ours() && !handle.is_demoted() {
                handle.show_kernel(fd);
                if say_once(Once::Exec) {
                    say(
                        handle.path(),
                        &format!("descriptor {fd} passes through exec; the new program has an ordinary file"),
                    );
                }
            }
        });
    }
    keep_from_new_program(managed);
    file::remove_demotion_notes_but(|file| {
        let mut stays = false;
        each_inherited(|_, handle| stays |= core::ptr::eq(&**handle.file(), file));
        stays
    });
    Passing { shows_kernel: own && !managed, has_no_notes: true, has_released, _lowered: lowered }
}

/// Whether a program with this environment loads this library with its configuration. A static or set-user-id program
/// does not; that cannot be seen from here.
///
/// # Safety
/// `environment` is null, or an array of C strings that ends with null.
pub unsafe fn has_library(environment: *const *const c_char) -> bool {
    let (mut loads, mut configured, mut at) = (false, false, environment);
    // SAFETY: the caller's promise.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            let library = b"libfamio_preload.so";
            loads |= entry.starts_with(b"LD_PRELOAD=") && entry.windows(library.len()).any(|part| part == library);
            configured |= entry.len() > b"FAMIO_ATOMIC=".len() && entry.starts_with(b"FAMIO_ATOMIC=");
            at = at.add(1);
        }
    }
    loads && configured
}

/// What to undo if `exec` fails.
pub struct Passing {
    /// Descriptors show the kernel's view.
    shows_kernel: bool,
    /// Notes of demoted files were removed.
    has_no_notes: bool,
    /// The files were closed, as at the end of the process.
    has_released: bool,
    _lowered: Lowered,
}

impl Passing {
    fn nothing(lowered: Lowered) -> Self {
        Self { shows_kernel: false, has_no_notes: false, has_released: false, _lowered: lowered }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if self.shows_kernel {
            each_inherited(|fd, handle| handle.hide_kernel(fd));
        }
        if self.has_no_notes {
            file::note_demotions_again();
        }
        if self.has_released {
            file::map_all_again();
        }
    }
}

/// Before `exec`: closes descriptors that other processes have too and that cannot be an atomic file in the new
/// program. There they would show neither the other processes' writes nor this one's appends; using a closed one is
/// an error rather than wrong data.
fn keep_from_new_program(managed: bool) {
    let child = in_vfork_child();
    each_inherited(|fd, handle| {
        if managed && handle.is_shared() {
            return;
        }
        // A vfork child that put another file at this number wants that file to pass.
        if (child || !handle.is_ours() || handle.is_shared()) && !handle.is_demoted() && is_still(fd, handle) {
            keep(fd);
            if fd <= 2 {
                say(
                    handle.path(),
                    &format!(
                        "descriptor {fd} is of an atomic file that other processes have, too; the new program, which is not under Famio, starts without it"
                    ),
                );
            }
        }
    });
}

/// Keeps `fd` from the new program.
fn keep(fd: RawFd) {
    // SAFETY: changes a flag of the process's own descriptor.
    unsafe { raw!(SYS_fcntl, fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}

fn each_inherited(mut visit: impl FnMut(RawFd, &Handle)) {
    table::for_each(0, u32::MAX, |fd, handle| {
        let flags = descriptor_flags(fd);
        if flags >= 0 && flags as i32 & libc::FD_CLOEXEC == 0 {
            visit(fd, handle);
        }
    });
}
