//! The famio command.

fn main() {}
