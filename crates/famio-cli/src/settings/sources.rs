//! The command line, the environment and `famio.toml`, in this order of precedence. Globs accumulate.

use super::layer::Layer;
use super::options::{ConfigChoice, Options};
use super::origins::{Origins, Source};
use super::size::Size;
use super::{environment, file};
use famio::Settings;
use famio::settings::check_journal_limit;
use std::path::Path;

/// All sources together: `top` is the command line's layer, already absolute.
fn gather(top: Layer, config: ConfigChoice<'_>) -> Result<Layer, String> {
    Ok(merge(&layers(top, config)?))
}

/// All sources one by one, the strongest first.
pub fn layers(top: Layer, config: ConfigChoice<'_>) -> Result<Vec<(Source, Layer)>, String> {
    let here = std::env::current_dir().map_err(|error| format!("current folder: {error}"))?;
    // The command line counts even if the variable is wrong; globs accumulate.
    let said: Vec<&str> =
        top.variables().into_iter().map(|(name, _)| name).filter(|name| *name != environment::ATOMIC).collect();
    let environment = environment::read(|name| std::env::var_os(name).filter(|_| !said.contains(&name)), &here)?;
    let mut all = vec![(Source::CommandLine, top), (Source::Environment, environment)];
    let path = match config {
        ConfigChoice::None => None,
        ConfigChoice::File(path) => Some(path.to_path_buf()),
        ConfigChoice::Search => file::search(&here, std::env::var_os("HOME").as_deref().map(Path::new)),
    };
    if let Some(path) = path {
        let layer = file::read(&path)?;
        all.push((Source::File(path), layer));
    }
    all.iter().try_for_each(|(source, layer)| check_limit(source, layer))?;
    Ok(all)
}

fn check_limit(source: &Source, layer: &Layer) -> Result<(), String> {
    let Some(Size(bytes)) = layer.journal_limit else { return Ok(()) };
    check_journal_limit(bytes).map(|_| ()).map_err(|why| format!("{}: {why}", source.names("journal-limit")))
}

/// Combines several sources, the strongest first.
pub fn merge(layers: &[(Source, Layer)]) -> Layer {
    layers.iter().fold(Layer::default(), |above, (_, layer)| above.over(layer.clone()))
}

impl Options {
    /// The settings of a command that has only these options.
    pub fn gather(&self) -> Result<Settings, String> {
        Ok(gather(self.layer()?, self.config())?.settings())
    }

    /// The same, with the globs and the origins of everything.
    pub fn gather_with_origins(&self) -> Result<(Settings, Origins), String> {
        let layers = layers(self.layer()?, self.config())?;
        Ok((merge(&layers).settings(), Origins::of(&layers)))
    }
}
