#[derive(clap::Args, Clone, Debug)]
pub struct Agent {
    pub seed: u64,
}
pub fn run(_: &Agent) -> Result<bool, String> {
    Ok(true)
}
