//! The words of the settings, on the command line and in famio.toml.

use clap::ValueEnum;
use serde::Deserialize;
use std::ffi::OsString;

/// What a SYNC must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityName {
    /// Power loss, if the file system permits
    Power,
    /// The end of the process, however it ends; faster, and gone at a power cut
    Process,
}

/// A domain that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainName {
    /// Treat ordinary memory as persistent memory, to measure and to test
    Emulated,
}

/// Which home a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// Chosen per file at each SYNC
    Auto,
    /// Old bytes to the journal, new bytes to the file
    Undo,
    /// New bytes to the journal, copied to the file later
    Redo,
    /// To the file or the journal, whichever does not hold the committed copy
    Alternate,
}

/// Where a program's locks on a file are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocksName {
    /// In memory while no other process can have the file open
    Auto,
    /// In the kernel
    Kernel,
}

/// Whether a pool on persistent memory forms a tier above files on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierName {
    /// It is
    Auto,
    /// It is used as one on a disk
    Off,
}

/// Which files have a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalName {
    /// Files that need one: not those that are new, only grow, or have a few bytes overwritten
    Auto,
    /// All that are changed
    Always,
}

/// What the last close of a file does with what no SYNC covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnCloseName {
    /// Commit: the close waits for the disk
    Commit,
    /// Leave a new file that was never synced to the kernel
    Leave,
}

/// Whether a close may be deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeferCloseName {
    /// Of a file that is closed and opened again and again
    Auto,
    /// Every file is closed at once
    Never,
}

/// Whether a program may set up io_uring or kernel AIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AsyncIoName {
    /// ENOSYS, so that programs fall back to calls that Famio handles
    Refuse,
    /// Their requests on atomic files are not protected
    Allow,
}

/// The command-line word for a value.
pub fn name_of(value: impl ValueEnum) -> OsString {
    value.to_possible_value().map(|value| value.get_name().into()).unwrap_or_default()
}
