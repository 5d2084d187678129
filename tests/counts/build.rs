//! Passes the build's settings to the program: counts of different builds cannot be compared.

use std::env::var;
use std::process::Command;

fn main() {
    let said = Command::new(var("RUSTC").expect("RUSTC")).arg("--version").output().expect("rustc --version");
    let said = String::from_utf8_lossy(&said.stdout);
    println!("cargo:rustc-env=COUNTS_RUSTC={}", said.trim().trim_start_matches("rustc "));
    // The only setting that cargo does not tell a build script.
    println!("cargo:rerun-if-env-changed=CARGO_PROFILE_RELEASE_LTO");
    let lto = var("CARGO_PROFILE_RELEASE_LTO").unwrap_or_else(|_| "as in Cargo.toml".into());
    let mut build =
        format!("{}, opt-level {}, lto {lto}", var("PROFILE").expect("PROFILE"), var("OPT_LEVEL").expect("OPT_LEVEL"));
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().replace('\x1f', " ");
    if !flags.is_empty() {
        build += &format!(", {flags}");
    }
    println!("cargo:rustc-env=COUNTS_BUILD={build}");
    println!("cargo:rerun-if-changed=build.rs");
}
