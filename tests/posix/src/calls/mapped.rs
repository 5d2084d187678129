//! Steps on maps: loads and stores, and changes of maps.

use super::side::{Map, Seen, Side, bytes, result};
use super::step::{PAGE, Step};

impl Side {
    pub(super) fn on_a_map(&mut self, step: &Step, tag: u64) -> Seen {
        let plain = |result: i64| (result, Vec::new(), Vec::new());
        let prot = |writable: bool| if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: the addresses belong to maps of this side, and are accessed only below the end of the file.
        unsafe {
            match *step {
                Step::Map { slot, map, page, pages, shared, writable } => {
                    self.unmap(map);
                    let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
                    let (len, at) = (pages * PAGE, page as usize * PAGE);
                    let start = libc::mmap(std::ptr::null_mut(), len, prot(writable), flags, self.fds[slot], at as i64);
                    if start == libc::MAP_FAILED {
                        return plain(result(-1));
                    }
                    self.maps[map] = Some(Map { start: start as usize, len, at, writable });
                    let seen = self.load(map, 0, len);
                    if !shared {
                        self.unmap(map); // what it shows later is undefined
                    }
                    seen
                }
                Step::Unmap(map) => plain(self.unmap(map)),
                Step::UnmapPart { map, pages } => {
                    let Some(old) = self.maps[map].filter(|old| old.len > pages * PAGE) else { return plain(0) };
                    let len = pages * PAGE;
                    let done = result(libc::munmap(old.start as *mut _, len));
                    self.maps[map] = Some(Map { start: old.start + len, len: old.len - len, at: old.at + len, ..old });
                    plain(done)
                }
                Step::Load { map, at, len } => self.load(map, at, len),
                Step::Store { map, at, len } => {
                    let Some((start, len)) = self.there(map, at, len, true) else { return plain(0) };
                    std::ptr::copy_nonoverlapping(bytes(len, tag).as_ptr(), start as *mut u8, len);
                    plain(len as i64)
                }
                Step::Msync { map, flags } => plain(match self.maps[map] {
                    None => 0,
                    Some(_) if self.twin && flags == libc::MS_SYNC => 0,
                    Some(map) => result(libc::msync(map.start as *mut _, map.len, flags)),
                }),
                Step::Protect { map, writable } => plain(match &mut self.maps[map] {
                    None => 0,
                    Some(map) => {
                        let done = result(libc::mprotect(map.start as *mut _, map.len, prot(writable)));
                        if done == 0 {
                            map.writable = writable;
                        }
                        done
                    }
                }),
                Step::Remap { map, pages } => {
                    let Some(old) = self.maps[map] else { return plain(0) };
                    let len = pages * PAGE;
                    let start = libc::mremap(old.start as *mut _, old.len, len, libc::MREMAP_MAYMOVE);
                    if start == libc::MAP_FAILED {
                        return plain(result(-1));
                    }
                    self.maps[map] = Some(Map { start: start as usize, len, ..old });
                    plain(0)
                }
                Step::Advise { map, what } => plain(match self.maps[map] {
                    None => 0,
                    Some(map) => result(libc::madvise(map.start as *mut _, map.len, what)),
                }),
                _ => unreachable!("no call on a map"),
            }
        }
    }

    /// Removes a map.
    pub fn unmap(&mut self, map: usize) -> i64 {
        // SAFETY: ours, and forgotten.
        self.maps[map].take().map_or(0, |map| result(unsafe { libc::munmap(map.start as *mut _, map.len) }))
    }

    /// The part of a map within the file: after its end, an access causes a signal or gives undefined bytes.
    fn there(&self, map: usize, at: usize, len: usize, store: bool) -> Option<(usize, usize)> {
        let map = self.maps[map].filter(|map| map.writable || !store)?;
        // SAFETY: plain words, filled in by the call.
        let size = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::stat(self.path()[0].as_ptr(), &mut stat);
            stat.st_size as usize
        };
        let len = len.min(map.len.saturating_sub(at)).min(size.saturating_sub(map.at + at));
        (len > 0).then_some((map.start + at, len))
    }

    fn load(&self, map: usize, at: usize, len: usize) -> Seen {
        let Some((start, len)) = self.there(map, at, len, false) else { return (0, Vec::new(), Vec::new()) };
        // SAFETY: the map and the file have these bytes.
        let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, len) }.to_vec();
        (len as i64, bytes, Vec::new())
    }
}
