//! Copy-on-write of pages of 4 KiB: a page is copied to a free one, changed there, and at a SYNC the table takes the
//! new page. Several pages of one SYNC are exchanged by a list that is committed first, as a shadow file system does it
//! by a change higher in its tree.

use super::map::{Map, fence};
use std::io::Error;
use std::path::Path;

const PAGE: usize = 4096;
/// Pages that a SYNC may exchange: more are exchanged earlier.
const MOST: usize = 4096;
/// The list begins with a line: how many pages. Of each there follow its place and the new page.
const LINE: usize = 64;

pub struct PageCopy {
    /// The file's own pages come first, then the spare ones.
    home: Map,
    spare: Map,
    /// On the medium: of each page where it is; then the list.
    table: Map,
    /// The same in memory.
    places: Vec<u32>,
    /// Pages that nothing lies in.
    free: Vec<u32>,
    /// Pages of this epoch, with where each was.
    pending: Vec<(u32, u32)>,
    is_pending: Vec<bool>,
}

impl PageCopy {
    pub fn new(home: Map, beside: &Path) -> Result<Self, Error> {
        if !home.len().is_multiple_of(PAGE) {
            return Err(Error::other("page copy-on-write needs a file of whole pages"));
        }
        let pages = home.len() / PAGE;
        let spare = Map::beside(beside, "pages", MOST * PAGE)?;
        let table = Map::beside(beside, "table", (pages * 8).next_multiple_of(LINE) + LINE + MOST * 16)?;
        Ok(Self {
            home,
            spare,
            table,
            places: (0..pages as u32).collect(),
            free: (pages as u32..(pages + MOST) as u32).collect(),
            pending: Vec::new(),
            is_pending: vec![false; pages],
        })
    }

    fn pages(&self) -> usize {
        self.places.len()
    }

    /// The map and the place in it of a page.
    fn map(&mut self, page: u32) -> (&mut Map, usize) {
        match (page as usize).checked_sub(self.pages()) {
            Some(spare) => (&mut self.spare, spare * PAGE),
            None => (&mut self.home, page as usize * PAGE),
        }
    }

    fn place(&self, page: u32) -> *const u8 {
        match (page as usize).checked_sub(self.pages()) {
            Some(spare) => self.spare.place(spare * PAGE, PAGE),
            None => self.home.place(page as usize * PAGE, PAGE),
        }
    }

    /// Each page of these bytes: which one, from where in it, and which of the bytes.
    fn parts(at: usize, length: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let (page, from) = ((at + done) / PAGE, (at + done) % PAGE);
            let now = (length - done).min(PAGE - from);
            done += now;
            (now > 0).then(|| (page, from, done - now..done))
        })
    }

    pub fn read(&mut self, at: usize, to: &mut [u8]) {
        for (page, from, part) in Self::parts(at, to.len()) {
            let (map, start) = self.map(self.places[page]);
            map.read(start + from, &mut to[part]);
        }
    }

    pub fn write(&mut self, at: usize, from: &[u8]) {
        for (page, place, part) in Self::parts(at, from.len()) {
            if !self.is_pending[page] {
                self.copy(page, part.len() == PAGE);
            }
            let bytes = &from[part];
            let (map, start) = self.map(self.places[page]);
            map.write(start + place, bytes);
            map.write_back(start + place, bytes.len());
        }
    }

    /// Puts a page into a free one; without its bytes if all of them are written next.
    fn copy(&mut self, page: usize, is_overwritten: bool) {
        if self.free.is_empty() {
            self.sync();
        }
        let old = self.places[page];
        let Some(new) = self.free.pop() else { unreachable!("a SYNC frees pages") };
        if !is_overwritten {
            let from = self.place(old);
            let (map, start) = self.map(new);
            map.copy(start, from, PAGE);
            map.write_back(start, PAGE);
        }
        self.places[page] = new;
        self.pending.push((page as u32, old));
        self.is_pending[page] = true;
    }

    pub fn sync(&mut self) {
        let list = (self.pages() * 8).next_multiple_of(LINE);
        fence();
        // One page is exchanged by its entry alone.
        if let several @ 2.. = self.pending.len() {
            for (at, &(page, _)) in self.pending.iter().enumerate() {
                self.table.store(list + LINE + at * 16, page.into());
                self.table.store(list + LINE + 8 + at * 16, self.places[page as usize].into());
            }
            self.table.write_back(list + LINE, several * 16);
            fence();
            self.table.store(list, several as u64);
            self.table.write_back(list, 8);
            fence();
        }
        let pending = std::mem::take(&mut self.pending);
        for &(page, _) in &pending {
            self.table.store(page as usize * 8, self.places[page as usize].into());
            self.table.write_back(page as usize * 8, 8);
        }
        fence();
        for (page, old) in pending {
            self.is_pending[page as usize] = false;
            self.free.push(old);
        }
    }

    pub fn written_back(&self) -> u64 {
        self.home.written_back() + self.spare.written_back() + self.table.written_back()
    }

    /// Copies every page to its own place in the file.
    pub fn bring_home(&mut self) {
        let mut all = vec![0; self.home.len()];
        self.read(0, &mut all);
        self.home.write(0, &all);
    }
}
