//! Completion scripts and manual pages, generated from the command line's definition, so that they cannot differ from
//! it.

use crate::failure::{FAILED, Failure};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio completions bash > ~/.local/share/bash-completion/completions/famio
  famio completions fish > ~/.config/fish/completions/famio.fish")]
pub struct Completions {
    shell: Shell,
}

/// Write the manual pages of all commands
#[derive(clap::Args)]
pub struct Pages {
    /// The folder for them
    folder: PathBuf,
}

/// Prints the script for this command line.
pub fn completions(args: Completions, mut command: Command) -> Result<i32, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "famio", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(0)
}

/// Writes the pages of this command line.
pub fn pages(args: Pages, command: Command) -> Result<i32, Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write(&command, &args.folder)
        .map_err(|error| Failure::new(FAILED, format!("{}: {error}", args.folder.display())))?;
    Ok(0)
}

/// Writes the page of a command, and those of its subcommands.
fn write(command: &Command, folder: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_string();
    // The text after the help is formatted here; the crate would join its example lines.
    let page = Man::new(command.clone().after_help("").after_long_help("")).manual("Famio").source("Famio");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(more) = command.get_after_help() {
        more_section(&more.to_string(), &mut text)?;
    }
    writeln!(text, ".SH SEE ALSO\n.BR famio (1),\n.BR famio.toml (5),\n.BR famio (7)")?;
    std::fs::write(folder.join(format!("{name}.1")), text)?;
    command.get_subcommands().filter(|command| !command.is_hide_set()).try_for_each(|command| write(command, folder))
}

/// Prose is filled; indented lines stay as they are.
fn more_section(more: &str, text: &mut Vec<u8>) -> io::Result<()> {
    writeln!(text, ".SH NOTES")?;
    let mut is_literal = false;
    for line in more.lines() {
        let wanted = line.starts_with(' ');
        if wanted != is_literal && !line.is_empty() {
            writeln!(text, "{}", if wanted { ".nf" } else { ".fi" })?;
            is_literal = wanted;
        }
        match line {
            "" => {
                writeln!(text, "{}.PP", if is_literal { ".fi\n" } else { "" })?;
                is_literal = false;
            }
            "Examples:" => writeln!(text, ".SH EXAMPLES")?,
            line => {
                let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
                writeln!(text, "{}{line}", if line.starts_with('.') { "\\&" } else { "" })?;
            }
        }
    }
    if is_literal { writeln!(text, ".fi") } else { Ok(()) }
}
