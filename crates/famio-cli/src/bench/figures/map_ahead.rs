//! Map-ahead and the mapping cache, against mmap with and without MAP_POPULATE.

use super::declared::{Declared, Paper::MapAhead, Work::Maps};
use crate::bench::map::Task;

/// Choi, Kim, Han: Efficient Memory Mapped File I/O for In-Memory File Systems (HotStorage 2017).
const ABSTRACT: &str = "1.38 to 1.70 times the throughput of mmap in microbenchmarks (abstract)";

pub fn figures() -> Vec<Declared> {
    let figure =
        |name, title, task| Declared::new(MapAhead, name, title, Maps(task)).base("default").paper_says(ABSTRACT);
    vec![
        figure("map-ahead-1", "A mapped file, read from front to back", Task::Sequential),
        figure("map-ahead-2", "A mapped file, records of 4 KiB read at random", Task::Random),
        figure("map-ahead-3", "Many small files, mapped and read by Zipf's law", Task::Zipf),
    ]
}
