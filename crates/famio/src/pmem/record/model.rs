//! What a crash may leave of what was written.
//!
//! *Mapped lines.* The last write to each word wins, if it arrived; whether a write arrives is open until it is
//! certain. Ordinary stores to one line arrive in order (a prefix of them), the words of a copy in any order. A
//! thread's fence makes certain what the thread has copied and what it has flushed: every ordinary store to the line
//! before the flush, by whatever thread. On page-cache files, the file's `fdatasync` makes certain what it finds; the
//! stores have no order there.
//!
//! *Written files.* Each 512-byte sector of a write arrives or not (in persistent memory: each line, if the write is
//! small), and changes of size arrive in order, until an `fdatasync` succeeds. What a failed one found is dropped: it
//! may arrive, but no later success makes it certain.
//!
//! *Process.* Everything a thread did is there when it does the next thing; its last copy may be torn. The same holds
//! for mapped lines if the platform flushes its caches itself (eADR).
//!
//! *Ordered.* Changes of names and marks arrive in order. What was written out before one that has arrived is certain,
//! and what was written out before a flush, of whatever file.
//!
//! *Names.* The mark, and the journal's place: see `names`.

use super::behaviour::Behaviour;
use super::image::Image;
use super::names::{Names, Versions};
use super::object::{Content, ObjectId};
use super::op::Op;
use crate::pmem::{Domain, LINE};
use std::collections::{BTreeMap, HashMap};

pub(super) const WORD: u64 = 8;
pub(super) const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

/// The operations of a run have numbers from here on; those of a previous run, which was killed, have lower ones.
const BEFORE: usize = 1 << 40;

/// A part of an operation, within one line.
#[derive(Clone)]
pub(super) struct Write {
    /// The operation's number in the trace, plus [`BEFORE`].
    pub seq: usize,
    pub at: u64,
    pub bytes: Vec<u8>,
    /// Ordered with respect to the other ordered writes of its line.
    pub ordered: bool,
    pub certain: bool,
    /// Can never become certain.
    pub forgotten: bool,
    /// When it was first written out.
    pub out: Option<usize>,
}

impl Write {
    pub fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

/// A write to a file, or a change of its size (without bytes).
#[derive(Clone)]
pub(super) struct FileWrite {
    pub write: Write,
    /// The size that it sets, if any.
    pub size: Option<u64>,
}

/// A watched object.
#[derive(Clone, Default)]
pub(super) struct Object {
    /// The certain content, with nothing pending before it.
    pub bytes: Vec<u8>,
    /// The file's certain size; `None` for memory.
    pub size: Option<u64>,
    /// The file's size including everything pending.
    latest_size: u64,
    pub lines: BTreeMap<u64, Vec<Write>>,
    pub file: Vec<FileWrite>,
}

/// Stores bytes; the vector grows as needed, and missing bytes are zeros.
pub(super) fn put(bytes: &mut Vec<u8>, at: u64, new: &[u8]) {
    let (at, end) = (at as usize, at as usize + new.len());
    if bytes.len() < end {
        if at >= bytes.len() && new.iter().all(|&byte| byte == 0) {
            return;
        }
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(new);
}

/// Sets a file's size; cut bytes are zeros if it grows again.
pub(super) fn resize(bytes: &mut Vec<u8>, to: u64) {
    bytes.truncate(to as usize);
}

impl Object {
    fn checkpoint_line(&mut self, line: u64) {
        let Some(writes) = self.lines.get_mut(&line) else { return };
        let barrier = self.file.first().map_or(usize::MAX, |first| first.write.seq);
        let done = writes.iter().take_while(|write| write.certain && write.seq < barrier).count();
        for write in writes.drain(..done) {
            put(&mut self.bytes, write.at, &write.bytes);
        }
        if writes.is_empty() {
            self.lines.remove(&line);
        }
    }

    fn checkpoint_file(&mut self) {
        while let Some(FileWrite { write, size }) = self.file.first().filter(|first| first.write.certain) {
            let older = |w: &Write| w.seq < write.seq && w.at < write.end() && w.end() > write.at;
            if self.lines.values().flatten().any(older) {
                return;
            }
            put(&mut self.bytes, write.at, &write.bytes);
            if let Some(size) = *size {
                if write.bytes.is_empty() {
                    resize(&mut self.bytes, size);
                    let seq = write.seq;
                    self.lines.values_mut().for_each(|line| line.retain(|w| w.seq > seq || w.at < size));
                    self.lines.retain(|_, line| !line.is_empty());
                }
                self.size = Some(size);
            }
            self.file.remove(0);
        }
        let lines: Vec<u64> = self.lines.keys().copied().collect();
        lines.into_iter().for_each(|line| self.checkpoint_line(line));
    }
}

/// The medium after some operations of a trace.
#[derive(Clone)]
pub(super) struct Model {
    behaviour: Behaviour,
    pub objects: Vec<Object>,
    pub names: Versions,
    /// What a thread's next fence makes certain: lines with the last operation that counts, and whether only that
    /// operation counts (a copy) or every ordered store up to it (a flush).
    waiting: HashMap<u32, Vec<(ObjectId, u64, usize, bool)>>,
}

impl Model {
    pub fn new(behaviour: Behaviour) -> Self {
        Self { behaviour, objects: Vec::new(), names: Versions::certain(&Names::default()), waiting: HashMap::new() }
    }

    /// A medium that holds what a crash left, durably.
    pub fn of_image(behaviour: Behaviour, image: &Image) -> Self {
        let object = |content: &Content| Object {
            bytes: content.bytes.clone(),
            size: Some(content.size),
            latest_size: content.size,
            ..Object::default()
        };
        Self {
            behaviour,
            objects: image.objects.iter().map(object).collect(),
            names: Versions::certain(&image.names),
            waiting: HashMap::new(),
        }
    }

    /// The threads are dead: no fence will make certain what they waited for. Operations are numbered from the
    /// beginning again.
    pub fn killed(&mut self) {
        self.waiting.clear();
        let mut all: Vec<&mut usize> = self.names.times().collect();
        for object in &mut self.objects {
            let lines = object.lines.values_mut().flatten();
            let writes = lines.chain(object.file.iter_mut().map(|file| &mut file.write));
            all.extend(writes.flat_map(|write| core::iter::once(&mut write.seq).chain(&mut write.out)));
        }
        let mut order: Vec<usize> = all.iter().map(|seq| **seq).collect();
        order.sort_unstable();
        order.dedup();
        // 0 is the time of what was there at first.
        all.into_iter().for_each(|seq| *seq = order.partition_point(|&other| other < *seq) + usize::from(*seq != 0));
    }

    /// The writes that a failed sync has dropped, or that are written out and not certain, each with the number of its
    /// object.
    pub fn forgotten(&self) -> impl Iterator<Item = (usize, &Write)> {
        self.objects.iter().enumerate().flat_map(|(number, object)| {
            let lines = object.lines.values().flatten();
            let all = lines.chain(object.file.iter().map(|file| &file.write));
            all.filter(|write| write.forgotten || !write.certain && write.out.is_some())
                .map(move |write| (number, write))
        })
    }

    /// Whether lines are durable as soon as they are stored.
    fn is_eager(&self) -> bool {
        self.behaviour == Behaviour::Eadr || self.is_process()
    }

    fn is_process(&self) -> bool {
        self.behaviour == Behaviour::Domain(Domain::Process)
    }

    fn is_page_cache(&self) -> bool {
        self.behaviour == Behaviour::Domain(Domain::PageCache) || self.is_ordered()
    }

    pub fn is_ordered(&self) -> bool {
        self.behaviour == Behaviour::Ordered
    }

    /// The units into which a write to a file may be torn. The kernel stores to persistent memory as programs do; a
    /// large write is data, and torn in fewer ways.
    pub fn unit_of(&self, write: &Write) -> u64 {
        let in_memory = matches!(self.behaviour, Behaviour::Eadr | Behaviour::Domain(Domain::Pmem));
        if in_memory && write.bytes.len() <= 4096 { LINE as u64 } else { SECTOR }
    }

    /// Whether this operation makes anything certain, so that fewer images are possible after it than before.
    pub fn is_boundary(&self, op: &Op) -> bool {
        if self.is_eager() {
            return !matches!(op, Op::Flush { .. } | Op::Fence | Op::FenceOfAll | Op::Watch { .. });
        }
        matches!(
            op,
            Op::Fence | Op::FenceOfAll | Op::Sync { .. } | Op::SyncFailed { .. } | Op::SyncNames(_) | Op::Mark(_)
        )
    }

    pub fn apply(&mut self, seq: usize, thread: u32, op: &Op) {
        // After those of a previous run that was killed.
        let seq = seq + BEFORE;
        if self.is_eager() {
            self.fence(thread);
        }
        match op {
            Op::Watch { object, bytes, is_file } => {
                assert_eq!(object.0, self.objects.len());
                let size = bytes.len() as u64;
                let bytes = bytes.clone();
                let file = is_file.then_some(size);
                self.objects.push(Object { bytes, size: file, latest_size: size, ..Object::default() });
            }
            Op::Copy { object, at, bytes } => {
                let mut from = 0;
                while from < bytes.len() {
                    let start = at + from as u64;
                    let len = (LINE - start as usize % LINE).min(bytes.len() - from);
                    self.write_line(seq, thread, *object, start, &bytes[from..from + len], false);
                    from += len;
                }
            }
            Op::Stage { object, at, bytes } => {
                // Ordinary stores, of at most a word, in ascending order. The library must not rely on that order.
                let ordered = !self.is_page_cache();
                let mut from = 0;
                while from < bytes.len() {
                    let start = at + from as u64;
                    let len = (8 - start as usize % 8).min(bytes.len() - from);
                    self.write_line(seq, thread, *object, start, &bytes[from..from + len], ordered);
                    from += len;
                }
            }
            Op::Store { object, at, value } => {
                let ordered = !self.is_page_cache();
                self.write_line(seq, thread, *object, *at, &value.to_ne_bytes(), ordered);
            }
            Op::Flush { object, at, len } => {
                let lines = at / LINE as u64..=(at + *len as u64 - 1) / LINE as u64;
                self.waiting.entry(thread).or_default().extend(lines.map(|line| (*object, line, seq, false)));
            }
            Op::Fence if self.is_page_cache() => drop(self.waiting.remove(&thread)),
            Op::Fence => self.fence(thread),
            Op::FenceOfAll if self.is_page_cache() => self.waiting.clear(),
            Op::FenceOfAll => {
                let threads: Vec<u32> = self.waiting.keys().copied().collect();
                threads.into_iter().for_each(|thread| self.fence(thread));
            }
            Op::Write { object, at, bytes } => {
                let file = &mut self.objects[object.0];
                let end = at + bytes.len() as u64;
                let size = (end > file.latest_size).then_some(end);
                file.write(seq, *at, bytes.clone(), size);
                self.at_once(*object);
            }
            Op::Resize { object, to } => {
                let file = &mut self.objects[object.0];
                // The rest of the last page may be cleared before the new size is durable.
                let cleared = to.next_multiple_of(PAGE).min(file.latest_size).saturating_sub(*to);
                if cleared > 0 {
                    file.write(seq, *to, vec![0; cleared as usize], None);
                }
                file.write(seq, *to, Vec::new(), Some(*to));
                self.at_once(*object);
            }
            Op::WriteOut { object } => {
                self.sync(*object, |write| {
                    if !write.forgotten {
                        write.out.get_or_insert(seq);
                    }
                });
            }
            Op::Sync { object } => {
                self.sync(*object, |write| write.certain |= !write.forgotten);
            }
            Op::SyncFailed { object } => self.sync(*object, |write| write.forgotten |= !write.certain),
            Op::Names(now) => {
                self.names.change(seq, now);
                if self.is_process() {
                    self.names.sync_all();
                }
            }
            Op::Nameless => self.names.nameless = !self.is_process(),
            Op::SyncNames(holder) => {
                let last = self.names.sync(*holder, self.is_ordered());
                if self.is_ordered() {
                    self.sync_all(|write| write.certain |= write.out.is_some_and(|out| out < last));
                }
            }
            Op::Mark(_) => {}
        }
    }

    fn write_line(&mut self, seq: usize, thread: u32, object: ObjectId, at: u64, bytes: &[u8], ordered: bool) {
        let line = at / LINE as u64;
        let bytes = bytes.to_vec();
        let write = Write { seq, at, bytes, ordered, certain: false, forgotten: false, out: None };
        self.objects[object.0].lines.entry(line).or_default().push(write);
        if !ordered || self.is_eager() {
            self.waiting.entry(thread).or_default().push((object, line, seq, true));
        }
    }

    fn fence(&mut self, thread: u32) {
        for (object, line, seq, only) in self.waiting.remove(&thread).unwrap_or_default() {
            let object = &mut self.objects[object.0];
            for write in object.lines.get_mut(&line).into_iter().flatten() {
                write.certain |= if only { write.seq == seq } else { write.ordered && write.seq <= seq };
            }
            object.checkpoint_line(line);
        }
    }

    /// For a killed process, everything that the kernel was told is done.
    fn at_once(&mut self, object: ObjectId) {
        if self.is_process() {
            self.sync(object, |write| write.certain = true);
        }
    }

    /// As [`sync`](Self::sync), on those of all objects.
    fn sync_all(&mut self, found: impl Fn(&mut Write)) {
        for object in (0..self.objects.len()).map(ObjectId) {
            self.sync(object, &found);
        }
    }

    /// The effect of `fdatasync` on the writes that it finds. It covers mapped lines only on the page cache:
    /// elsewhere it must not hide a missing flush.
    fn sync(&mut self, object: ObjectId, mut found: impl FnMut(&mut Write)) {
        let with_lines = self.is_page_cache();
        let object = &mut self.objects[object.0];
        object.file.iter_mut().for_each(|file| found(&mut file.write));
        if with_lines {
            object.lines.values_mut().flatten().for_each(found);
        }
        object.checkpoint_file();
    }
}

impl Object {
    /// A write, which may change the size; or, without bytes, a change of size only.
    fn write(&mut self, seq: usize, at: u64, bytes: Vec<u8>, size: Option<u64>) {
        self.latest_size = size.unwrap_or(self.latest_size);
        let write = Write { seq, at, bytes, ordered: false, certain: false, forgotten: false, out: None };
        self.file.push(FileWrite { write, size });
    }
}
