//! A hostile neighbour.

pub mod agent;
pub mod victim;

use crate::Options;
use crate::classes::Classes;
use crate::findings::Findings;
use crate::space::Space;
use std::time::Duration;

pub fn campaign(_: &Space, _: &Options, _: Classes, _: u64, _: Duration, _: &mut Findings) -> Result<(), String> {
    Ok(())
}
