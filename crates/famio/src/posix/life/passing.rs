//! Descriptors that go from process to process through sockets (`SCM_RIGHTS`).

use super::process;
use crate::posix::descriptors::{inherit, table};
use libc::{mmsghdr, msghdr};
use std::os::fd::RawFd;

/// Calls `visit` for every descriptor in a message.
///
/// # Safety
/// `message` is null, or valid for the kernel, which has received it or is about to.
unsafe fn each(message: *const msghdr, mut visit: impl FnMut(RawFd)) {
    // SAFETY: the caller's promise; the macros stay inside `msg_control`.
    unsafe {
        if message.is_null() || (*message).msg_control.is_null() {
            return;
        }
        let mut part = libc::CMSG_FIRSTHDR(message);
        while !part.is_null() {
            if (*part).cmsg_level == libc::SOL_SOCKET && (*part).cmsg_type == libc::SCM_RIGHTS {
                let (start, length) = (libc::CMSG_DATA(part), (*part).cmsg_len as usize);
                let room = ((*message).msg_control as usize + (*message).msg_controllen).saturating_sub(start as usize);
                let bytes = length.saturating_sub(start as usize - part as usize).min(room);
                for index in 0..bytes / size_of::<RawFd>() {
                    visit(start.cast::<RawFd>().add(index).read_unaligned());
                }
            }
            part = libc::CMSG_NXTHDR(message, part);
        }
    }
}

/// Before a message is sent.
///
/// # Safety
/// `message` is null, or valid for the kernel, which has received it or is about to.
pub unsafe fn sends(message: *const msghdr) {
    if table::any() {
        // SAFETY: the caller's promise.
        unsafe { each(message, inherit::pass_descriptor) };
    }
}

/// Before `count` messages are sent.
///
/// # Safety
/// They are null, or this many, each null or valid for the kernel.
pub unsafe fn sends_many(messages: *const mmsghdr, count: u32) {
    if table::any() && !messages.is_null() {
        for index in 0..count as usize {
            // SAFETY: the caller's promise.
            unsafe { sends(&raw const (*messages.add(index)).msg_hdr) };
        }
    }
}

/// After a message was received, or an error.
///
/// # Safety
/// `message` is null, or valid for the kernel, which has received it or is about to.
pub unsafe fn received(message: *const msghdr, result: isize) {
    if result >= 0 && process::is_on() {
        // SAFETY: the kernel has filled it in.
        unsafe { each(message, process::receive_descriptor) };
    }
}

/// After `result` messages were received, or an error.
///
/// # Safety
/// They are null, or this many, each null or valid for the kernel.
pub unsafe fn received_many(messages: *const mmsghdr, result: i32) {
    for index in 0..result.max(0) as usize {
        // SAFETY: the kernel has filled in this many.
        unsafe { received(&raw const (*messages.add(index)).msg_hdr, 0) };
    }
}
