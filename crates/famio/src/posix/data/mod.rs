//! Calls that move or change a file's bytes by a descriptor: read, write, their vector forms, size, SYNC, maps, and
//! queues of requests.

pub(super) mod aio;
pub(super) mod direct;
pub(super) mod full_disk;
pub(super) mod io;
pub(super) mod mapping;
pub(super) mod rings;
pub(super) mod seek;
pub(super) mod size;
pub(super) mod sync;
pub(super) mod vector;
