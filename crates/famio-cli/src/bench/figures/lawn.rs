//! LAWN (DAC 2018): writes that are atomic without a log of their own.

use super::declared::Work::{Apps, Calls};
use super::declared::{Cell, Declared, Metric, Paper::Lawn, Work, cell};
use super::extent::Extent;
use super::sides::{every_policy, with_baselines};
use crate::bench::apps::{App, AppCell, Personality};
use crate::bench::document::Shape::{Bars, Lines};
use crate::bench::document::words::bytes;
use crate::bench::document::workload::Pattern::Random;
use crate::bench::document::workload::Workload;
use crate::bench::io::side::Side;

pub fn figures() -> Vec<Declared> {
    let figure = |name, title, work| Declared::new(Lawn, name, title, work);
    let calls = |x, y, sides, cells| Calls { x, y, shape: Lines, sides, cells };
    vec![
        figure(
            "lawn-5",
            "Each write atomic by itself: random writes, each with fsync",
            calls("bytes of a write", Metric::Throughput, with_baselines, synced_writes),
        ),
        figure(
            "lawn-6",
            "Threads that share a file: random writes of 1 KiB, each with fsync",
            calls("threads", Metric::Throughput, every_policy, || {
                let write = Workload::write(Random, 1024).fsync(1);
                [1, 2, 4, 8].map(|threads| cell(threads.to_string(), write.threads(threads))).into()
            }),
        ),
        figure(
            "lawn-7",
            "Bytes to the medium for each byte written: random writes, each with fsync",
            Calls {
                x: "bytes of a write",
                y: Metric::Medium,
                shape: Bars,
                sides: with_baselines,
                cells: || {
                    let write = |size| cell(bytes(size), Workload::write(Random, size).fsync(1));
                    [64, 256, 1024, 4096].map(write).into()
                },
            },
        ),
        figure("lawn-8", "Filebench's personalities, two processes", servers(|_| mixes(&Personality::FILEBENCH))),
        figure(
            "lawn-9",
            "A mix of FFSB's operations, each as often as any other, two processes",
            servers(|_| mixes(&[Personality::Ffsb])),
        ),
    ]
}

fn synced_writes() -> Vec<Cell> {
    [64, 256, 512, 1024, 4096].map(|size| cell(bytes(size), Workload::write(Random, size).fsync(1))).into()
}

fn servers(cells: fn(&Extent) -> Vec<AppCell>) -> Work {
    Apps { x: "load", y: "operations a second", cells }
}

fn mixes(personalities: &[Personality]) -> Vec<AppCell> {
    let sides = || [Side::plain(), Side::famio(None), Side::leave()];
    let cell = |personality: Personality, side: Side| AppCell {
        series: side.name.clone(),
        x: personality.title().into(),
        side,
        app: App::Folder(personality),
    };
    personalities.iter().flat_map(|&one| sides().map(|side| cell(one, side))).collect()
}
