//! Replays a trace, and gives the images that a crash at any moment of it can leave.

use super::choices::{Choices, Plan};
use super::image::Image;
use super::model::Model;
use super::object::ObjectId;
use super::op::Op;
use super::trace::{Start, Trace};
use core::ops::ControlFlow;
use xxhash_rust::xxh3::Xxh3;

/// What a crash leaves if nothing has arrived that is not certain.
pub(super) fn least(model: &Model) -> Image {
    Choices::of(model).oldest()
}

impl Start {
    /// A hash of what of it is certain, and of what can never become so. Two that show the same may differ in it.
    pub fn hash(&self, file: ObjectId) -> u128 {
        let mut hash = Xxh3::new();
        hash.update(&least(&self.0).hash(file).to_le_bytes());
        for (object, write) in self.0.forgotten() {
            [object as u64, write.at, write.bytes.len() as u64]
                .iter()
                .for_each(|word| hash.update(&word.to_le_bytes()));
            hash.update(&write.bytes);
        }
        hash.digest128()
    }
}

impl Trace {
    /// Starts to replay it.
    pub fn replay(&self) -> Replay {
        Replay::new(self.clone())
    }
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
