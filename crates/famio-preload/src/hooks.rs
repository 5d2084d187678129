//! The exported functions.
#![allow(missing_docs, clippy::missing_safety_doc, clippy::unnecessary_cast, non_snake_case)]
#![allow(clippy::too_many_arguments, clippy::unused_unit, unused_unsafe)]

use crate::outcome::{calling_libc, finish, finish_in_allocator, note, plain};
use crate::{aio, asynchronous, entry, fortify, old_stat, programs, signals, stdio, temporary};
use core::ffi::{CStr, c_char, c_long, c_void};
use famio::file::UserBuf;
use famio::posix::unpreloaded::Program;
use famio::posix::{self, passing, process};
use famio::sys::syscall as raw;

include!(concat!(env!("OUT_DIR"), "/hooks.rs"));
