//! Builds the C shim that reaches the thread block.

fn main() {
    println!("cargo:rerun-if-changed=src/thread/tls.c");
    cc::Build::new().file("src/thread/tls.c").flag("-fPIC").warnings(true).compile("famio_tls");
}
