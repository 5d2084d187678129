//! One process that runs a program's load: under Famio, the library is in it.

use super::app::App;
use std::path::PathBuf;

/// What to do.
#[derive(clap::Args)]
pub struct Args {
    /// A program with its load, as JSON
    app: String,
    /// Where its data is
    folder: PathBuf,
    /// Which of the processes this is
    me: u32,
}

/// Works, and prints the report.
pub fn main(args: &Args) -> Result<(), String> {
    let app: App = serde_json::from_str(&args.app).map_err(|error| format!("the app: {error}"))?;
    app.work(&args.folder, args.me)
}
