#[derive(clap::Args, Clone, Debug)]
pub struct Victim {
    pub seed: u64,
}
pub fn run(_: &Victim) -> Result<bool, String> {
    Ok(true)
}
pub fn crash(_: &std::path::Path) -> Result<bool, String> {
    Ok(true)
}
pub fn hold(_: &std::path::Path) -> Result<bool, String> {
    Ok(true)
}
