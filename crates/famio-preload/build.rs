//! Generates the exports from `hooks.txt`, and builds the C shim.

#[allow(dead_code, reason = "this crate uses a part of the file")]
#[path = "table.rs"]
mod table;

use std::fmt::Write;
use std::{env, fs, path::PathBuf};

/// The same value as in `famio::posix::descriptors::table`, which `entry` asserts.
const LEAF_BITS: u32 = 12;

fn main() {
    for file in ["hooks.txt", "table.rs", "src/shim.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    let sections = table::parse(&fs::read_to_string("hooks.txt").expect("hooks.txt"));
    let rows: Vec<&table::Row> = sections.iter().flat_map(|section| &section.rows).collect();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR"));
    fs::write(out.join("hooks.rs"), rust(&rows)).expect("hooks.rs");
    fs::write(out.join("fronts.c"), fronts(&rows)).expect("fronts.c");
    cc::Build::new()
        .file("src/shim.c")
        .file(out.join("fronts.c"))
        .flag("-fPIC")
        .flag("-fvisibility=hidden")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .compile("famio_shim");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    // Cancellation points in Rust's standard library: see shim.c.
    for name in ["close", "getrandom", "pthread_join"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}

/// What allocators call while they hold their locks.
const IN_ALLOCATORS: [&str; 6] = ["mmap", "munmap", "mremap", "mprotect", "pkey_mprotect", "madvise"];

/// The Rust exports.
fn rust(rows: &[&table::Row]) -> String {
    let mut text = String::new();
    let mut next = Vec::new();
    for row in rows {
        let name = &row.names[0];
        let arguments = row.arguments.join(", ");
        let (result, body) = (&row.result, &row.body);
        match row.shape.as_str() {
            "call" | "plain" => {
                let finish = if IN_ALLOCATORS.contains(&name.as_str()) { "finish_in_allocator" } else { "finish" };
                let run = match (row.shape.as_str(), result.as_str()) {
                    ("call", _) if row.takes_descriptor() => {
                        format!(
                            "finish(|| if entry::is_refused(fd) {{ entry::REFUSED }} else {{ unsafe {{ {body} }} }}) as {result}"
                        )
                    }
                    ("call", _) => format!("{finish}(|| unsafe {{ {body} }}) as {result}"),
                    (_, "!") => format!("unsafe {{ {body} }}"),
                    _ => format!("plain(|| unsafe {{ {body} }})"),
                };
                for name in &row.names {
                    writeln!(
                        text,
                        "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {name}({arguments}) -> {result} {{\n    \
                         // SAFETY: the caller's promise is the C function's.\n    {run}\n}}"
                    )
                    .expect("a string");
                }
            }
            "libc" => {
                writeln!(
                    text,
                    "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn famio_hook_{name}({arguments}) -> {result} {{\n    \
                     // SAFETY: the caller's promise is the C function's.\n    \
                     calling_libc(|| unsafe {{ {body} }})\n}}\n\
                     unsafe extern \"C\" {{ fn famio_front_{name}(); }}"
                )
                .expect("a string");
                for alias in &row.names {
                    jump(&mut text, alias, &format!("famio_front_{name}"));
                }
            }
            "cancel" => {
                // The front passes on to libc's function in a tail call, so that no stack frame of ours exists when a
                // thread that waits in it is cancelled.
                writeln!(
                    text,
                    "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn famio_hook_{name}({arguments}) -> {result} {{\n    \
                     // SAFETY: the caller's promise is the C function's.\n    \
                     finish(|| unsafe {{ {body} }}) as {result}\n}}\n\
                     unsafe extern \"C\" {{ fn famio_front_{name}({arguments}) -> {result}; }}"
                )
                .expect("a string");
                for alias in &row.names {
                    jump(&mut text, alias, &format!("famio_front_{name}"));
                }
                next.push(name.clone());
            }
            "around" => {
                writeln!(
                    text,
                    "#[unsafe(no_mangle)]\npub extern \"C\" fn famio_noted_{name}(is_done: bool, result: {result}) {{\n    \
                     let result = is_done.then_some(result);\n    \
                     note(|| {body});\n}}\n\
                     unsafe extern \"C\" {{ fn famio_front_{name}(); }}"
                )
                .expect("a string");
                for alias in &row.names {
                    jump(&mut text, alias, &format!("famio_front_{name}"));
                }
                next.push(name.clone());
            }
            "before" | "after" => {
                let mut taken = row.arguments.clone();
                taken.extend((row.shape == "after").then(|| format!("result: {result}")));
                let taken = taken.join(", ");
                writeln!(
                    text,
                    "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn famio_noted_{name}({taken}) {{\n    \
                     // SAFETY: the caller's promise is the C function's.\n    \
                     note(|| unsafe {{ {body} }});\n}}\n\
                     unsafe extern \"C\" {{ fn famio_front_{name}(); }}"
                )
                .expect("a string");
                for alias in &row.names {
                    jump(&mut text, alias, &format!("famio_front_{name}"));
                }
                next.push(name.clone());
            }
            "shim" => {
                if name != "syscall" {
                    writeln!(text, "unsafe extern \"C\" {{ fn famio_shim_{name}(); }}").expect("a string");
                    for alias in &row.names {
                        jump(&mut text, alias, &format!("famio_shim_{name}"));
                    }
                }
            }
            "-" => {}
            other => panic!("{name}: shape {other}"),
        }
    }
    writeln!(text, "/// The fronts' number of low bits of a descriptor that select a slot in its leaf.\npub const LEAF_BITS: u32 = {LEAF_BITS};")
        .expect("a string");
    writeln!(text, "/// Functions whose fronts go on to libc's, in the order of `famio_next`.").expect("a string");
    let names: Vec<String> = next.iter().map(|name| format!("c\"{name}\"")).collect();
    writeln!(text, "pub const NEXT_NAMES: [&CStr; {}] = [{}];", next.len(), names.join(", ")).expect("a string");
    text
}

fn jump(text: &mut String, from: &str, to: &str) {
    writeln!(
        text,
        "#[unsafe(no_mangle)]\n#[unsafe(naked)]\npub unsafe extern \"C\" fn {from}() {{\n    \
         core::arch::naked_asm!(jump!(), sym {to})\n}}"
    )
    .expect("a string");
}

/// The C fronts of functions that pass on to libc's: no Rust frame exists when a thread that waits in one is
/// cancelled.
fn fronts(rows: &[&table::Row]) -> String {
    let mut text = String::from(
        "/* Made by build.rs. A descriptor that is not ours goes on to libc's function, with all arguments in their\n \
         * registers, by a tail call. */\n\
         #include <errno.h>\n\
         typedef long function(long, long, long, long, long, long);\n\
         #pragma GCC visibility push(hidden)\n\
         extern _Bool famio_is_managed(int fd);\n\
         extern _Bool famio_in_run;\n\
         extern void famio_synced(int fd);\n\
         extern _Bool famio_is_known(int fd);\n\
         extern int famio_whose(int fd);\n\
         extern void **const *const famio_descriptors;\n\
         struct fast_path { unsigned long descriptors, maps; void *config; int internal; };\n\
         extern const struct fast_path *const famio_fast_path;\n\
         extern function *volatile famio_next[];\n\
         extern function *famio_find_next(unsigned long index);\n\
         extern void pthread_testcancel(void) __attribute__((visibility(\"default\")));\n\
         extern long famio_without_cancel(function *, function *, long, long, long, long, long, long);\n\
         extern __thread int famio_cancels_at_once __attribute__((tls_model(\"initial-exec\")));\n\
         #pragma GCC visibility pop\n\
         /* By a number that is the library's own: the program has not opened it. */\n\
         static long refuse(void) { errno = EBADF; return -1; }\n\
         /* The result of famio_whose, without a call: the usual cases save no register. */\n\
         static inline _Bool is_atomic(int fd) {\n  \
         if (fd < 0) return 0;\n  \
         void **leaf = __atomic_load_n(&famio_descriptors[(unsigned)fd >> LEAF_BITS], __ATOMIC_ACQUIRE);\n  \
         return leaf && __atomic_load_n(&leaf[fd & ((1 << LEAF_BITS) - 1)], __ATOMIC_RELAXED);\n}\n\
         static inline _Bool may_be_internal(int fd) { return fd >= __atomic_load_n(&famio_fast_path->internal, __ATOMIC_RELAXED); }\n",
    )
    .replace("LEAF_BITS", &LEAF_BITS.to_string());
    for row in rows.iter().filter(|row| row.shape == "libc") {
        let name = &row.names[0];
        writeln!(
            text,
            "extern function famio_hook_{name} __attribute__((visibility(\"hidden\")));\n\
             long famio_front_{name}(long a, long b, long c, long d, long e, long f) {{\n  \
             pthread_testcancel();\n  return famio_hook_{name}(a, b, c, d, e, f);\n}}"
        )
        .expect("a string");
    }
    let goes_on = |row: &&&table::Row| ["cancel", "around", "before", "after"].contains(&row.shape.as_str());
    for (index, row) in rows.iter().filter(goes_on).enumerate() {
        let name = &row.names[0];
        if row.shape == "around" {
            writeln!(
                text,
                "extern void famio_noted_{name}(_Bool is_done, int result) __attribute__((visibility(\"hidden\")));\n\
                 long famio_front_{name}(long a, long b, long c, long d, long e, long f) {{\n  \
                 function *next = famio_next[{index}];\n  \
                 if (!next) next = famio_find_next({index});\n  \
                 famio_noted_{name}(0, 0);\n  long result = next(a, b, c, d, e, f);\n  \
                 famio_noted_{name}(1, (int)result);\n  return result;\n}}"
            )
            .expect("a string");
            continue;
        }
        if row.shape != "cancel" {
            // A note takes the arguments that it names; the remaining registers are not used.
            let mut passed = ["a", "b", "c", "d", "e", "f"][..row.arguments.len()].to_vec();
            passed.extend((row.shape == "after").then_some("result"));
            let taken = if passed.is_empty() { "void".to_owned() } else { vec!["long"; passed.len()].join(", ") };
            let noted = format!("famio_noted_{name}({});", passed.join(", "));
            let calls = match row.shape.as_str() {
                "before" => format!("{noted}\n  return next(a, b, c, d, e, f);"),
                _ => format!("long result = next(a, b, c, d, e, f);\n  {noted}\n  return result;"),
            };
            let refusal = if row.takes_descriptor() {
                "if (__builtin_expect(may_be_internal((int)a), 0) && famio_whose((int)a) == 2) return refuse();\n  "
            } else {
                ""
            };
            writeln!(
                text,
                "extern void famio_noted_{name}({taken}) __attribute__((visibility(\"hidden\")));\n\
                 long famio_front_{name}(long a, long b, long c, long d, long e, long f) {{\n  \
                 {refusal}function *next = famio_next[{index}];\n  \
                 if (!next) next = famio_find_next({index});\n  \
                 {calls}\n}}"
            )
            .expect("a string");
            continue;
        }
        // Syncs of unprotected files are reported at the end of the run.
        let told = ["fsync", "fdatasync", "sync_file_range"].contains(&name.as_str());
        let untold = if told { " && !famio_in_run" } else { "" };
        let tell = if told { "if (famio_in_run) famio_synced((int)a);\n    " } else { "" };
        // Internal descriptors are hidden from the program. `close` has to wait for descriptors that pass through the
        // number, and checks itself.
        let (whose, refusal) = match name.as_str() {
            "close" => ("famio_is_known", ""),
            _ => ("famio_whose", "if (whose == 2) return refuse();\n  "),
        };
        assert!(row.takes_descriptor(), "{name}: a cancellation point without a descriptor");
        writeln!(
            text,
            "extern function famio_hook_{name} __attribute__((visibility(\"hidden\")));\n\
             __attribute__((noinline, cold)) static long slowly_{name}(long a, long b, long c, long d, long e, long f) {{\n  \
             function *next = famio_next[{index}];\n  \
             if (__builtin_expect(famio_cancels_at_once, 0)) return famio_without_cancel(next, famio_hook_{name}, a, b, c, d, e, f);\n  \
             int whose = {whose}((int)a);\n  \
             if (__builtin_expect(next && !whose, 1)) {{\n    {tell}return next(a, b, c, d, e, f);\n  }}\n  \
             {refusal}return famio_hook_{name}(a, b, c, d, e, f);\n}}\n\
             long famio_front_{name}(long a, long b, long c, long d, long e, long f) {{\n  \
             if (__builtin_expect(!famio_cancels_at_once, 1)) {{\n    \
             if (is_atomic((int)a)) return famio_hook_{name}(a, b, c, d, e, f);\n    \
             function *next = famio_next[{index}];\n    \
             if (__builtin_expect(next && !may_be_internal((int)a){untold}, 1)) return next(a, b, c, d, e, f);\n  }}\n  \
             return slowly_{name}(a, b, c, d, e, f);\n}}"
        )
        .expect("a string");
    }
    text
}
