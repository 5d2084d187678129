//! The form of a bench's results: options that several benches share.

use std::path::PathBuf;

/// JSON or a table.
#[derive(clap::Args, Clone, Default)]
pub struct Json {
    /// Print JSON (docs/json.md) instead of the table
    #[arg(long)]
    pub json: bool,
}

/// The same for a bench that measures figures.
#[derive(clap::Args)]
pub struct Output {
    #[command(flatten)]
    json: Json,
    /// Write a page with charts into this folder, and the raw data beside it as JSON and CSV
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

impl Output {
    /// Whether JSON is wanted.
    pub fn json(&self) -> bool {
        self.json.json
    }
}
