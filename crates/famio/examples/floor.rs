use famio::map::*;
use famio::pmem::*;
use std::os::fd::*;
use std::time::Instant;
fn main() {
    let path = "/dev/shm/famio-floor";
    let size: u64 = 256 << 20;
    let file = std::fs::OpenOptions::new().read(true).write(true).create(true).open(path).unwrap();
    file.set_len(size).unwrap();
    let map = Mapping::read_write(file.as_fd(), Domain::Emulated, size).unwrap();
    map.populate(0, size as usize, true).unwrap();
    let buf = vec![9u8; 4096];
    let mut out = vec![0u8; 4096];
    let n = 200_000u64;
    let rnd = |i: u64| (i.wrapping_mul(0x9E3779B97F4A7C15) >> 20) % (size / 4096) * 4096;
    for (name, d) in [("emulated", Domain::Emulated), ("process", Domain::Process)] {
        let m = medium(d, false);
        for _ in 0..2 {
            let t = Instant::now();
            for i in 0..n {
                unsafe {
                    m.copy(map.base().add(rnd(i) as usize), buf.as_ptr(), 4096);
                }
                m.fence();
            }
            let w = t.elapsed().as_nanos() as f64 / n as f64;
            let x = std::sync::atomic::AtomicU64::new(0);
            let t = Instant::now();
            for i in 0..n {
                unsafe {
                    m.copy(map.base().add(rnd(i) as usize), buf.as_ptr(), 4096);
                }
                x.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
            let wl = t.elapsed().as_nanos() as f64 / n as f64;
            let t = Instant::now();
            for i in 0..n {
                unsafe {
                    m.copy(map.base().add(rnd(i) as usize), buf.as_ptr(), 4096);
                }
                if i % 10 == 0 {
                    m.fence();
                }
            }
            let wn = t.elapsed().as_nanos() as f64 / n as f64;
            let t = Instant::now();
            for i in 0..n {
                unsafe {
                    m.copy(map.base().add(rnd(i) as usize), buf.as_ptr(), 4096);
                }
                x.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                x.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                x.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                x.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
            let wl4 = t.elapsed().as_nanos() as f64 / n as f64;
            println!("4k: locked {wl:.0} 4 locked {wl4:.0} fence each 10 {wn:.0}");
            let t = Instant::now();
            for i in 0..n {
                unsafe {
                    m.copy(map.base().add((i * 128 % size) as usize), buf.as_ptr(), 128);
                }
                m.fence();
            }
            let s = t.elapsed().as_nanos() as f64 / n as f64;
            let t = Instant::now();
            for i in 0..n {
                unsafe {
                    m.copy(map.base().add((i * 128 % size) as usize), buf.as_ptr(), 128);
                }
            }
            let snf = t.elapsed().as_nanos() as f64 / n as f64;
            let t = Instant::now();
            for i in 0..n {
                unsafe {
                    map.base().add((i * 64 % 65536) as usize).write_volatile(1);
                    m.flush(map.base().add((i * 64 % 65536) as usize), 64);
                }
                m.fence();
            }
            let fl = t.elapsed().as_nanos() as f64 / n as f64;
            let t = Instant::now();
            for _ in 0..n {
                unsafe {
                    map.base().write_volatile(1);
                    m.flush(map.base(), 64);
                }
                m.fence();
            }
            let fl1 = t.elapsed().as_nanos() as f64 / n as f64;
            let t = Instant::now();
            for i in 0..n {
                unsafe {
                    std::ptr::copy_nonoverlapping(map.base().add((i * 4096 % size) as usize), out.as_mut_ptr(), 4096);
                }
                std::hint::black_box(&out);
            }
            let r = t.elapsed().as_nanos() as f64 / n as f64;
            println!(
                "{name}: rand4k {w:.0} seq128 {s:.0} (no fence {snf:.0}) flush+fence {fl:.0} same line {fl1:.0} read {r:.0}"
            );
        }
    }
    std::fs::remove_file(path).unwrap();
}
