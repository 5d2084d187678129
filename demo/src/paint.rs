//! Colour on a terminal, plain text elsewhere.

use std::io::IsTerminal;
use std::sync::LazyLock;

static COLOUR: LazyLock<bool> = LazyLock::new(|| {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
});

fn paint(code: &str, text: &str) -> String {
    if *COLOUR { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
}

/// As it should be.
pub fn good(text: &str) -> String {
    paint("32", text)
}

/// As it should not be.
pub fn bad(text: &str) -> String {
    paint("31", text)
}

/// A headline.
pub fn head(text: &str) -> String {
    paint("1", text)
}
