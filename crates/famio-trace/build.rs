//! Generates a wrapper for each traced function, from `kinds.txt` and the names and aliases in the interposer's
//! `hooks.txt`.

#[allow(dead_code, reason = "this crate uses a part of the file")]
#[path = "../famio-preload/table.rs"]
mod hooks;

use std::fmt::Write;
use std::{env, fs, path::PathBuf};

const HOOKS: &str = "../famio-preload/hooks.txt";
const WITHOUT_WRAPPER: [&str; 5] = ["by_hand", "not_needed", "not_seen", "not_traced", "not_files"];

fn main() {
    for file in ["kinds.txt", HOOKS, "../famio-preload/table.rs", "src/shim.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    let sections = hooks::parse(&fs::read_to_string(HOOKS).expect(HOOKS));
    let rows: Vec<&hooks::Row> = sections.iter().flat_map(|section| &section.rows).collect();
    let kinds = fs::read_to_string("kinds.txt").expect("kinds.txt");
    let lines = kinds.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines = lines.map(|line| line.split_once('|').expect("kind | names"));
    let lines: Vec<(&str, Vec<&str>)> =
        lines.map(|(kind, names)| (kind.trim(), names.split(',').map(str::trim).collect())).collect();
    let is_named = |name: &str| lines.iter().any(|(_, names)| names.contains(&name));
    let mut wrappers = String::from("#include \"wrap.h\"\n");
    let (mut constants, mut exports) = (String::new(), String::new());
    for (number, (kind, names)) in lines.iter().enumerate() {
        if WITHOUT_WRAPPER.contains(kind) {
            continue;
        }
        writeln!(constants, "pub(crate) const {}: u32 = {number};", kind.to_uppercase()).expect("a string");
        for &name in names {
            let row = rows.iter().find(|row| row.names.iter().any(|other| other == name));
            let row = row.unwrap_or_else(|| panic!("kinds.txt: {name} is not in {HOOKS}"));
            for alias in &row.names {
                // If a row has two functions, such as flock and lockf, an alias belongs to the one whose name is its
                // prefix.
                let others = row.names.iter().filter(|other| *other != name && is_named(other));
                let is_others = others.into_iter().any(|other| alias == other || alias.starts_with(other.as_str()));
                if alias == name || (!is_named(alias) && !is_others) {
                    writeln!(wrappers, "WRAP({alias}, {number})").expect("a string");
                    export(&mut exports, alias);
                }
            }
        }
    }
    for name in ["dprintf", "__dprintf_chk"] {
        export(&mut exports, name);
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR"));
    fs::write(out.join("wrappers.c"), wrappers).expect("wrappers.c");
    fs::write(out.join("kinds.rs"), constants).expect("kinds.rs");
    fs::write(out.join("exports.rs"), exports).expect("exports.rs");
    cc::Build::new()
        .file("src/shim.c")
        .file(out.join("wrappers.c"))
        .include("src")
        .flag("-fPIC")
        .flag("-fvisibility=hidden")
        // A thread that is cancelled inside libc's function unwinds through the wrapper.
        .flag("-fexceptions")
        .flag("-fno-builtin")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .compile("famio_trace_shim");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
}

/// The export: only Rust symbols leave the library, so it is a Rust function that jumps to the C function with all
/// arguments unchanged.
fn export(text: &mut String, name: &str) {
    writeln!(
        text,
        "unsafe extern \"C\" {{ fn famio_wrap_{name}(); }}\n\
         #[unsafe(no_mangle)]\n#[unsafe(naked)]\npub unsafe extern \"C\" fn {name}() {{\n    \
         core::arch::naked_asm!(jump!(), sym famio_wrap_{name})\n}}"
    )
    .expect("a string");
}
