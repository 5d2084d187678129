//! Whether text is coloured: as the user says, or if it goes to a terminal that shows colours.

use clap::ValueEnum;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU8, Ordering};

/// When text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto = 0,
    /// Also into pipes and files
    Always = 1,
    /// Nowhere
    Never = 2,
}

static CHOICE: AtomicU8 = AtomicU8::new(Color::Auto as u8);

/// How something is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Table heads.
    Head,
    /// Good.
    Good,
    /// Needs attention.
    Care,
    /// Bad.
    Bad,
}

/// Sets the choice.
pub fn choose(color: Color) {
    CHOICE.store(color as u8, Ordering::Relaxed);
}

/// The choice on a command line that is not parsed yet, since help and usage errors are coloured, too.
pub fn of_words(words: impl Iterator<Item = OsString>) -> Color {
    let mut words = words.take_while(|word| word != "--");
    while let Some(word) = words.next() {
        let value = match word.to_str() {
            Some("--color") => words.next().and_then(|word| word.into_string().ok()),
            Some(word) => word.strip_prefix("--color=").map(String::from),
            None => None,
        };
        if let Some(color) = value.and_then(|value| Color::from_str(&value, false).ok()) {
            return color;
        }
    }
    Color::Auto
}

impl Color {
    /// The same for clap.
    pub fn of_clap(self) -> clap::ColorChoice {
        match self {
            Color::Auto => clap::ColorChoice::Auto,
            Color::Always => clap::ColorChoice::Always,
            Color::Never => clap::ColorChoice::Never,
        }
    }
}

fn is_on(is_terminal: bool) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match CHOICE.load(Ordering::Relaxed) {
        1 => true,
        2 => false,
        _ => is_terminal && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
    }
}

/// For stdout.
pub fn paint(text: &str, style: Style) -> String {
    painted(text, style, is_on(std::io::stdout().is_terminal()))
}

/// For stderr.
pub fn paint_error(text: &str, style: Style) -> String {
    painted(text, style, is_on(std::io::stderr().is_terminal()))
}

fn painted(text: &str, style: Style, is_on: bool) -> String {
    if !is_on {
        return text.into();
    }
    let code = match style {
        Style::Head => "1",
        Style::Good => "32",
        Style::Care => "33",
        Style::Bad => "1;31",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// The number of visible characters.
pub fn width(text: &str) -> usize {
    let mut count = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            chars.by_ref().take_while(|c| *c != 'm').for_each(drop);
        } else {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_found_before_the_program_s_own_words() {
        let of = |text: &str| of_words(text.split(' ').map(OsString::from));
        assert_eq!(of("famio --color never status"), Color::Never);
        assert_eq!(of("famio status --color=always ."), Color::Always);
        assert_eq!(of("famio run -- ls --color=always"), Color::Auto);
        assert_eq!(of("famio --color"), Color::Auto);
    }

    #[test]
    fn colours_take_no_width() {
        let text = painted("bad", Style::Bad, true);
        assert_eq!((width(&text), width("bad"), painted("bad", Style::Bad, false).as_str()), (3, 3, "bad"));
    }
}
