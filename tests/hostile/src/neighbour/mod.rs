//! A hostile neighbour beside a victim, and beside root.

pub mod agent;
mod attack;
mod attacker;
mod files;
mod forge;
mod held;
mod litter;
mod names;
mod oracle;
mod originals;
mod output;
mod root;
mod scene;
pub mod victim;

use crate::classes::{CLASSES, Classes};
use crate::findings::Findings;
use crate::options::Options;
use crate::space::Space;
use famio_test_support::random::Random;
use scene::Scene;
use std::time::{Duration, Instant};

/// Duration of a scene.
const LASTS: Duration = Duration::from_millis(2500);

/// Plays scenes until the time is over.
pub fn campaign(
    space: &Space,
    options: &Options,
    chosen: Classes,
    seed: u64,
    time: Duration,
    findings: &mut Findings,
) -> Result<(), String> {
    let started = Instant::now();
    let before = findings.cases();
    let mut random = Random::new(seed);
    for number in 0.. {
        let over = options.cases.map_or(started.elapsed() >= time, |cases| number >= cases);
        if over || findings.enough() {
            break;
        }
        let own = if number == 0 { seed } else { random.below(1 << 40) };
        let mut draw = Random::new(own ^ 0x006e_6569_6768);
        let mut classes = chosen;
        let first = CLASSES.iter().position(|class| class.name == "shm").unwrap_or(0);
        for class in &CLASSES[first..] {
            if options.only.is_empty() && draw.below(2) == 0 {
                classes = classes.without(class.name);
            }
        }
        let on = match (draw.below(2), options.on.as_str()) {
            (_, "tmpfs") | (0, "both") => "tmpfs",
            _ => "disk",
        };
        let scene = Scene::new(space, on, own, classes)?;
        let found = scene.play(LASTS)?;
        if found.is_empty() {
            findings.pass();
            continue;
        }
        let names: Vec<_> = CLASSES[first..].iter().map(|class| class.name).filter(|name| classes.has(name)).collect();
        let mut again: Vec<String> = Vec::new();
        for (name, words) in [("--without", &options.without), ("--only", &options.only), ("--with", &options.with)] {
            let words = words.join(",");
            if !words.is_empty() {
                again.push(name.to_owned());
                again.push(words);
            }
        }
        let mut kept = None;
        for found in &found {
            if findings.fail(found) {
                println!("FOUND: {}\n  {}", found.kind, found.detail.replace('\n', "\n  "));
                println!("  on {on}; classes {}", names.join(","));
                println!("  again: famio-hostile neighbour --seed {own} --cases 5 --on {on} {}", again.join(" "));
                let name = format!("neighbour-{}", findings.number());
                let kept = kept.get_or_insert_with(|| space.keep(&name, &scene.folder));
                println!("  kept: {}", kept.display());
            }
        }
    }
    println!("neighbour: {} scenes, {} s", findings.cases() - before, started.elapsed().as_secs());
    Ok(())
}
