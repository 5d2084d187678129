use famio::file::*;
use famio::*;
use std::os::fd::*;
use std::time::Instant;
fn main() {
    let path = "/dev/shm/famio-speed";
    let size: u64 = std::env::var("SIZE").ok().map_or(256, |s| s.parse().unwrap()) << 20;
    let args: Vec<String> = std::env::args().collect();
    let policy = match args.get(1).map(|s| s.as_str()) {
        Some("undo") => PolicyChoice::Undo,
        Some("redo") => PolicyChoice::Redo,
        Some("alternate") => PolicyChoice::Alternate,
        _ => PolicyChoice::Auto,
    };
    let emulated = args.get(2).is_some();
    let _ = std::fs::remove_file(path);
    let file = std::fs::OpenOptions::new().read(true).write(true).create(true).open(path).unwrap();
    let block = vec![5u8; 1 << 20];
    use std::os::unix::fs::FileExt;
    for i in 0..size >> 20 {
        file.write_all_at(&block, i << 20).unwrap();
    }
    let buf = vec![9u8; 4096];
    let mut out = vec![0u8; 4096];
    let n = 60_000u64;
    let span: u64 = std::env::var("SPAN").ok().map_or(size, |s| s.parse::<u64>().unwrap() << 20);
    let seq = std::env::var("SEQ").is_ok();
    let rnd = move |i: u64| {
        if seq { i * 4096 % span } else { (i.wrapping_mul(0x9E3779B97F4A7C15) >> 20) % (span / 4096) * 4096 }
    };
    let t = Instant::now();
    for i in 0..n {
        file.write_all_at(&buf, rnd(i)).unwrap();
        if i % 10 == 9 {
            file.sync_all().unwrap();
        }
    }
    let kw = t.elapsed().as_nanos() as f64 / n as f64;
    let t = Instant::now();
    for i in 0..n {
        file.read_exact_at(&mut out, i * 4096 % size).unwrap();
    }
    let kr = t.elapsed().as_nanos() as f64 / n as f64;
    let t = Instant::now();
    for i in 0..n * 4 {
        file.write_all_at(&buf[..128], i * 128).unwrap();
    }
    let ks = t.elapsed().as_nanos() as f64 / (n * 4) as f64;
    let set = Settings { policy, emulated, ..Settings::default() };
    let f = AtomicFile::open(file.as_fd(), Access::Write, c"speed", &set).unwrap();
    let ub = [UserBuf { base: buf.as_ptr() as *mut u8, len: 4096 }];
    let ub1 = [UserBuf { base: buf.as_ptr() as *mut u8, len: 128 }];
    let uo = [UserBuf { base: out.as_mut_ptr(), len: 4096 }];
    for round in 0..4 {
        let t = Instant::now();
        let mut st = 0;
        for i in 0..n {
            unsafe {
                f.write(Position::At(rnd(i)), &ub).unwrap();
            }
            if i % 10 == 9 {
                let t = Instant::now();
                f.sync().unwrap();
                st += t.elapsed().as_nanos();
            }
        }
        let w = t.elapsed().as_nanos() as f64 / n as f64;
        let t = Instant::now();
        for i in 0..n {
            unsafe {
                f.read(i * 4096 % size, &uo).unwrap();
            }
        }
        let r = t.elapsed().as_nanos() as f64 / n as f64;
        let t = Instant::now();
        for i in 0..n * 4 {
            unsafe {
                f.write(Position::At(i * 128), &ub1).unwrap();
            }
        }
        let s = t.elapsed().as_nanos() as f64 / (n * 4) as f64;
        f.sync().unwrap();
        println!(
            "{policy:?} emu={emulated} round {round}: randwrite {w:.0} ns ({:.2}x) sync {} ns, read {r:.0} ({:.2}x), seq128 {s:.0} ({:.2}x)",
            kw / w,
            st as u64 / (n / 10),
            kr / r,
            ks / s
        );
    }
    f.remove_descriptor(file.as_raw_fd()).unwrap();
    std::fs::remove_file(path).unwrap();
}
