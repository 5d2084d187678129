//! Progress bars, on a terminal only: for long recoveries and flushes, and for kills.

use famio::recovery::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// With less than this, recovery is over before a bar can be read.
const WORTH_A_BAR: u64 = 16 << 20;

/// A bar on stderr, hidden if that is not a terminal.
pub struct Bar(ProgressBar, &'static str);

impl Bar {
    /// A bar that shows up at `begin`.
    pub fn new() -> Self {
        Self::of("recovering")
    }

    /// The same for other work.
    pub fn of(work: &'static str) -> Self {
        Self(ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()), work)
    }
}

/// A bar that counts kills, up to `most` if given.
pub fn kills(most: Option<u64>) -> ProgressBar {
    let (bar, template) = match most {
        Some(most) => (ProgressBar::new(most), "{bar:40} {pos}/{len} kills {elapsed}, {eta} left"),
        None => (ProgressBar::no_length(), "{pos} kills {elapsed}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// A bar that counts measurements, and shows the time left and what is being measured.
pub fn measurements(count: u64) -> ProgressBar {
    let bar = ProgressBar::new(count);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left  {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

impl Progress for Bar {
    fn begin(&self, bytes: u64) {
        if bytes < WORTH_A_BAR {
            return;
        }
        let template = format!("{} {{bar:40}} {{bytes}}/{{total_bytes}} {{bytes_per_sec}} {{eta}}", self.1);
        let style = ProgressStyle::with_template(&template);
        if let Ok(style) = style {
            self.0.set_style(style);
        }
        self.0.reset();
        self.0.set_length(bytes);
        self.0.set_draw_target(ProgressDrawTarget::stderr());
    }

    fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn end(&self) {
        self.0.finish_and_clear();
        self.0.set_draw_target(ProgressDrawTarget::hidden());
    }
}
