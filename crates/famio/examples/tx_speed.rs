//! The cost of a transaction, step by step, for developers; `famio bench tx` is for users. `cargo run --release -p
//! famio --example tx_speed [POLICY]`

use famio::{AtomicFile, Durability, PolicyChoice, Settings};
use std::time::Instant;

fn main() {
    let bytes = [7u8; 128];
    let only = std::env::args().nth(1);
    for (name, policy) in [
        ("auto", PolicyChoice::Auto),
        ("undo", PolicyChoice::Undo),
        ("redo", PolicyChoice::Redo),
        ("alternate", PolicyChoice::Alternate),
    ] {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        for size in [256usize << 10, 1 << 20, 4 << 20] {
            let path = format!("/dev/shm/tx-speed-{}", std::process::id());
            let settings = Settings { emulated: true, durability: Durability::Process, policy, ..Settings::default() };
            let file = AtomicFile::options().create(true).settings(settings).open(&path).unwrap();
            file.write_at(&vec![1; size], 0).unwrap();
            file.sync().unwrap();
            let place = |n: usize| ((n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % (size - 128)) & !63;
            let mut times = Vec::new();
            let mut n = 0;
            let (mut set, mut commit) = (Vec::new(), Vec::new());
            for _ in 0..50000 {
                let begun = Instant::now();
                let mut tx = file.transaction().unwrap();
                for _ in 0..32 {
                    tx.write_at(&bytes, place(n) as u64).unwrap();
                    n += 1;
                }
                let middle = begun.elapsed();
                tx.commit().unwrap();
                let all = begun.elapsed();
                times.push(all.as_nanos());
                set.push(middle.as_nanos());
                commit.push((all - middle).as_nanos());
            }
            for list in [&mut times, &mut set, &mut commit] {
                list.drain(..25000);
                list.sort();
            }
            println!(
                "{name} {} KiB: {} ns, writing {}, commit {}; p90 {}",
                size >> 10,
                times[12500],
                set[12500],
                commit[12500],
                times[22500]
            );
            file.close().unwrap();
            std::fs::remove_file(&path).unwrap();
        }
    }
}
