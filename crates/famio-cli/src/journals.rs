//! The arguments of commands that only look at journals.

use crate::settings::Options;
use std::path::PathBuf;

/// Which journals, and how to print them.
#[derive(clap::Args)]
pub struct Journals {
    /// Files, folders (with everything below) or pools
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Print a JSON array of objects (docs/json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub options: Options,
}
