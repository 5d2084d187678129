//! The cost of the lowest layer on this machine: copies through each medium, and a guarded call. `cargo run --release
//! -p famio --example persist_speed`

use famio::map::{Mapping, guard};
use famio::pmem::{Domain, Medium, cpu, medium};
use std::hint::black_box;
use std::os::fd::AsFd;
use std::time::Instant;

const FILE: u64 = 256 << 20;

fn main() {
    println!("{}", cpu::features());
    guard::install().expect("the guard");
    let (file, path) = scratch();
    let map = Mapping::read_write(file.as_fd(), Domain::Emulated, FILE).expect("a mapping");
    std::fs::remove_file(path).expect("removing the scratch file");
    map.populate(0, FILE as usize, true).expect("populating");
    println!("\nns a copy, in sequence through {} MiB of tmpfs", FILE >> 20);
    println!("{:>9} {:>16} {:>16} {:>16}", "bytes", "emulated, fence", "fence every 10", "process");
    let (emulated, process) = (medium(Domain::Emulated, false), medium(Domain::Process, false));
    for len in [8, 64, 100, 128, 512, 1024, 2048, 4096, 65536, 1 << 20] {
        let [each, tenth, plain] =
            [(emulated, 1), (emulated, 10), (process, 1)].map(|(medium, every)| copies(medium, &map, len, every));
        println!("{len:>9} {each:>16.1} {tenth:>16.1} {plain:>16.1}");
    }
    let source = [1u8; 4096];
    let mut target = [0u8; 4096];
    println!("\nns a guarded call");
    let bare = time(10_000_000, |i| {
        // SAFETY: nothing faults.
        black_box(unsafe { guard::run(|| black_box(i)) }).ok();
    });
    println!("{:>9} {bare:.2}", "empty");
    for len in [8, 64, 4096] {
        let plain = time(5_000_000, |_| black_box(&mut target)[..len].copy_from_slice(&black_box(&source)[..len]));
        let guarded = time(5_000_000, |_| {
            // SAFETY: both arrays are alive and apart.
            unsafe { guard::copy(black_box(&mut target).as_mut_ptr(), black_box(&source).as_ptr(), len) }.unwrap();
        });
        println!("{len:>9} copy {plain:.2}, guarded {guarded:.2}");
    }
    let fault = time(100_000, |_| {
        // SAFETY: guarded; nothing is mapped there.
        unsafe { guard::copy(target.as_mut_ptr(), 0x10 as *const u8, 8) }.unwrap_err();
    });
    println!("{:>9} {fault:.0}", "a fault");
    let install = time(100_000, |_| guard::install().unwrap());
    println!("{:>9} {install:.0}", "install");
}

fn scratch() -> (std::fs::File, String) {
    let path = format!("/dev/shm/famio-persist-speed-{}", std::process::id());
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("a file on tmpfs");
    file.set_len(FILE).expect("its size");
    (file, path)
}

fn copies(medium: &dyn Medium, map: &Mapping, len: usize, every: usize) -> f64 {
    let source = vec![3u8; len];
    let places = FILE as usize / len;
    time(((1 << 26) / len).clamp(50, 200_000), |i| {
        let target = map.ptr(((i % places) * len) as u64, len).expect("within the file");
        // SAFETY: within the file, and not used by others.
        unsafe { medium.copy(target, source.as_ptr(), len) };
        if i % every == 0 {
            medium.fence();
        }
    })
}

/// The best of seven rounds.
fn time(count: usize, mut body: impl FnMut(usize)) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        (0..count).for_each(&mut body);
        best = best.min(start.elapsed().as_nanos() as f64 / count as f64);
    }
    best
}
