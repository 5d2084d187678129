//! Map-ahead and the mapping cache, against mmap with and without MAP_POPULATE.

use super::{Declared, Paper::MapAhead, Work::Maps};
use crate::bench::map::Task;

pub fn figures() -> Vec<Declared> {
    let figure = |name, title, task| Declared { name, paper: MapAhead, title, work: Maps(task) };
    vec![
        figure("map-ahead-1", "A mapped file, read from front to back", Task::Sequential),
        figure("map-ahead-2", "A mapped file, records of 4 KiB read at random", Task::Random),
        figure("map-ahead-3", "Many small files, mapped and read by Zipf's law", Task::Zipf),
    ]
}
