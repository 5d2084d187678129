//! A recording, and what the medium held when it began.

use super::behaviour::Behaviour;
use super::image::Image;
use super::model::Model;
use super::op::Op;
use std::sync::Arc;

/// What the medium holds when a recording begins.
#[derive(Clone)]
pub struct Start(pub(super) Model);

impl Start {
    /// The state that a crash left, durable.
    pub fn of_image(behaviour: Behaviour, image: &Image) -> Self {
        Self(Model::of_image(behaviour, image))
    }
}

/// A recording. Cheap to clone.
#[derive(Clone)]
pub struct Trace {
    pub(super) behaviour: Behaviour,
    pub(super) start: Option<Arc<Start>>,
    pub(super) ops: Arc<Vec<(u32, Op)>>,
}

impl Trace {
    /// The number of operations, marks included.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}
