//! One operation of a recording.

use super::names::{Holder, Names};
use super::object::ObjectId;

/// One operation, as requested.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Watch {
        object: ObjectId,
        bytes: Vec<u8>,
        is_file: bool,
    },
    Copy {
        object: ObjectId,
        at: u64,
        bytes: Vec<u8>,
    },
    Stage {
        object: ObjectId,
        at: u64,
        bytes: Vec<u8>,
    },
    Store {
        object: ObjectId,
        at: u64,
        value: u64,
    },
    Flush {
        object: ObjectId,
        at: u64,
        len: usize,
    },
    Fence,
    FenceOfAll,
    Write {
        object: ObjectId,
        at: u64,
        bytes: Vec<u8>,
    },
    Resize {
        object: ObjectId,
        to: u64,
    },
    WriteOut {
        object: ObjectId,
    },
    Sync {
        object: ObjectId,
    },
    SyncFailed {
        object: ObjectId,
    },
    Names(Names),
    /// The file's own name is not durable.
    Nameless,
    SyncNames(Holder),
    Mark(u64),
}

impl Op {
    /// A description without the bytes.
    pub(super) fn brief(&self) -> String {
        let len = |what: &str, object: &ObjectId, at: &u64, bytes: &[u8]| {
            format!("{what} {} bytes at {at} of object {}", bytes.len(), object.0)
        };
        match self {
            Op::Watch { object, bytes, .. } => format!("object {}: {} bytes", object.0, bytes.len()),
            Op::Copy { object, at, bytes } => len("copy", object, at, bytes),
            Op::Stage { object, at, bytes } => len("stage", object, at, bytes),
            Op::Write { object, at, bytes } => len("pwritev", object, at, bytes),
            Op::Names(names) => {
                let is = |there: bool| if there { "there" } else { "gone" };
                format!(
                    "mark {}, journal {}, {} records",
                    is(names.mark.is_some()),
                    is(names.journal.is_some()),
                    names.records.len()
                )
            }
            other => format!("{other:?}"),
        }
    }
}
