//! Replays a trace, and gives the images that a crash at any moment of it can leave.

use super::choices::Choices;
use super::model::Model;
use super::names::Names;
use super::{ObjectId, Op, Start, Trace};
use core::ops::ControlFlow;
use xxhash_rust::xxh3::Xxh3;

/// How many images to look at.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// All images, if there are no more than this.
    pub exhaustive: u64,
    /// Otherwise: nothing, everything, and these with one and two lines (or sectors) different, up to this many;
    pub deviations: usize,
    /// and this many at random,
    pub random: usize,
    /// from this seed.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self { exhaustive: 1 << 10, deviations: 400, random: 100, seed: 1 }
    }
}

/// The bytes of an object: zeros from the end of `bytes` to `size`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Content {
    /// What it begins with.
    pub bytes: Vec<u8>,
    /// How long it is.
    pub size: u64,
}

impl Content {
    /// The bytes, without zeros at the end.
    pub fn trimmed(&self) -> &[u8] {
        let bytes = &self.bytes[..self.bytes.len().min(self.size as usize)];
        &bytes[..bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)]
    }

    /// All its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = self.trimmed().to_vec();
        all.resize(self.size as usize, 0);
        all
    }
}

/// What a crash left: the bytes of each object, and the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub(super) objects: Vec<Content>,
    /// Mark and journal; empty if no [`Place`](super::Place) was given.
    pub names: Names,
}

impl Image {
    /// The bytes of an object; for a file, as many as its size. `None`: it was not watched yet.
    pub fn get(&self, object: ObjectId) -> Option<Vec<u8>> {
        self.objects.get(object.0).map(Content::to_vec)
    }

    /// The same, without trailing zeros.
    pub fn content(&self, object: ObjectId) -> Option<&Content> {
        self.objects.get(object.0)
    }

    /// The same with some bits of one byte flipped.
    pub fn with_changed_byte(&self, object: ObjectId, at: usize, change: u8) -> Image {
        let mut image = self.clone();
        if let Some(byte) = image.objects.get_mut(object.0).and_then(|content| content.bytes.get_mut(at)) {
            *byte ^= change;
        }
        image
    }

    /// A hash of what can be reached: the file, its mark, and the names and bytes of its journal and of records.
    pub fn hash(&self, file: ObjectId) -> u128 {
        let mut hash = Xxh3::new();
        let records = self.names.records.values().copied();
        for object in [Some(file), self.names.journal].into_iter().flatten().chain(records) {
            if let Some(content) = self.content(object) {
                let bytes = content.trimmed();
                hash.update(&content.size.to_le_bytes());
                hash.update(&(bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
        }
        let names = [self.names.nameless, self.names.pool.is_some(), self.names.journal.is_some()];
        hash.update(&names.map(u8::from));
        hash.update(self.names.mark.as_deref().unwrap_or(b"none"));
        if self.names.folder.is_some() {
            hash.update(b"folder");
            self.names.records.keys().for_each(|name| hash.update(name.as_bytes()));
        }
        hash.digest128()
    }
}

/// What a crash leaves if nothing has arrived that is not certain.
pub(super) fn least(model: &Model) -> Image {
    Choices::of(model).oldest()
}

/// A replay of a trace: the medium after the first few operations.
pub struct Replay {
    trace: Trace,
    next: usize,
    model: Model,
    marks: Vec<u64>,
}

impl Replay {
    pub(super) fn new(trace: Trace) -> Self {
        let model = match &trace.start {
            Some(start) => start.0.clone(),
            None => Model::new(trace.behaviour),
        };
        Self { trace, next: 0, model, marks: Vec::new() }
    }

    /// Advances to the next moment after which fewer images are possible, or to the end; every image of the moments
    /// skipped is possible here, too. False at the end.
    pub fn advance(&mut self) -> bool {
        if self.next >= self.trace.len() {
            return false;
        }
        loop {
            self.step();
            if self.is_at_boundary() {
                return true;
            }
        }
    }

    /// Whether the next operation makes something certain, or this is the end.
    pub fn is_at_boundary(&self) -> bool {
        self.trace.ops.get(self.next).is_none_or(|(_, next)| self.model.is_boundary(next))
    }

    /// Whether the last operation was a system call, whose completion another process can see.
    pub fn was_call(&self) -> bool {
        let last = self.next.checked_sub(1).and_then(|last| self.trace.ops.get(last));
        last.is_some_and(|(_, op)| {
            matches!(op, Op::Write { .. } | Op::Resize { .. } | Op::Sync { .. } | Op::SyncFailed { .. } | Op::Names(_))
        })
    }

    /// Advances by one operation. False at the end.
    pub fn step(&mut self) -> bool {
        let Some((thread, op)) = self.trace.ops.get(self.next) else { return false };
        self.model.apply(self.next, *thread, op);
        if let Op::Mark(mark) = op {
            self.marks.push(*mark);
        }
        self.next += 1;
        true
    }

    /// The number of operations done.
    pub fn position(&self) -> usize {
        self.next
    }

    /// What was promised so far, in order.
    pub fn marks(&self) -> &[u64] {
        &self.marks
    }

    /// Describes the last operations.
    pub fn describe(&self, last: usize) -> Vec<String> {
        let from = self.next.saturating_sub(last);
        self.trace.ops[from..self.next].iter().map(|(thread, op)| format!("thread {thread}: {}", op.brief())).collect()
    }

    /// Calls `visit` with images that a crash now could leave. Returns their number, and the value with which `visit`
    /// broke off.
    pub fn crashes<B>(&self, plan: &Plan, mut visit: impl FnMut(&Image) -> ControlFlow<B>) -> (usize, Option<B>) {
        let choices = Choices::of(&self.model);
        let mut seen = 0;
        let result = choices.enumerate(plan, &mut |picks| {
            seen += 1;
            visit(&choices.image(picks))
        });
        (seen, result.break_value())
    }

    /// What the end of the process, by a kill now, leaves: everything that was stored, persistent or not. For
    /// continuing in the same boot: a recovery reads it, and the power may fail then.
    pub fn killed(&self) -> (Image, Start) {
        let choices = Choices::of(&self.model);
        let mut model = self.model.clone();
        model.killed();
        (choices.newest(), Start(model))
    }

    /// As [`killed`](Self::killed), in the middle of the next operation if that is a write of more than a page to a
    /// file: with `pages` of its pages written, or one less than it has. `None`: it is not such a write.
    pub fn killed_within(&self, pages: usize) -> Option<(Image, Start)> {
        let (thread, Op::Write { object, at, bytes }) = self.trace.ops.get(self.next)? else { return None };
        let whole = bytes.len().div_ceil(4096);
        let pages = pages.min(whole - 1);
        if pages == 0 {
            return None;
        }
        let part = Op::Write { object: *object, at: *at, bytes: bytes[..pages * 4096].to_vec() };
        let mut other = Self { model: self.model.clone(), ..self.part() };
        other.model.apply(self.next, *thread, &part);
        Some(other.killed())
    }

    fn part(&self) -> Self {
        Self { trace: self.trace.clone(), next: self.next, model: Model::new(self.trace.behaviour), marks: Vec::new() }
    }
}
