//! Cache lines: how a range of bytes divides into them.

/// Bytes of a cache line, for flushing. If the hardware's lines are larger, some are flushed twice; if they are
/// smaller (rare on Arm), the Arm code asks the CPU.
pub const LINE: usize = 64;

/// A range of destination bytes, divided: `head` before the first line boundary, `body` of whole lines, `tail`.
/// Only `body` may be written by non-temporal stores; `head` and `tail` share their line with other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub head: usize,
    pub body: usize,
    pub tail: usize,
}

#[inline]
pub(crate) fn split(addr: usize, len: usize) -> Parts {
    let head = (addr.wrapping_neg() & (LINE - 1)).min(len);
    let rest = len - head;
    Parts { head, body: rest & !(LINE - 1), tail: rest & (LINE - 1) }
}

/// Calls `f` with the address of each step-sized line that `addr..addr + len` touches. `step` is a power of two.
#[inline(always)]
pub(crate) fn each(addr: usize, len: usize, step: usize, mut f: impl FnMut(usize)) {
    if len == 0 {
        return;
    }
    let first = addr & !(step - 1);
    let last = (addr + (len - 1)) & !(step - 1);
    let lines = (last - first) / step + 1;
    let mut line = first;
    for _ in 0..lines / 4 {
        // Straight code: a loop for each line costs as much again.
        f(line);
        f(line + step);
        f(line + 2 * step);
        f(line + 3 * step);
        line = line.wrapping_add(4 * step);
    }
    for _ in 0..lines % 4 {
        f(line);
        line = line.wrapping_add(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_the_body_is_whole_lines() {
        for addr in 4096..4096 + 130 {
            for len in 0..300 {
                let Parts { head, body, tail } = split(addr, len);
                assert_eq!(head + body + tail, len);
                assert!(head < LINE && tail < LINE && body % LINE == 0);
                assert!(body == 0 || (addr + head) % LINE == 0);
                assert!(tail == 0 || (addr + head + body) % LINE == 0);
            }
        }
    }

    #[test]
    fn each_line_is_visited_once() {
        let lines = |addr, len| {
            let mut seen = Vec::new();
            each(addr, len, LINE, |line| seen.push(line));
            seen
        };
        assert!(lines(100, 0).is_empty());
        assert_eq!(lines(64, 64), [64]);
        assert_eq!(lines(63, 2), [0, 64]);
        assert_eq!(lines(130, 130), [128, 192, 256]);
        for count in 0..14 {
            let want: Vec<usize> = (1..=count).map(|i| i * 64).collect();
            assert_eq!(lines(64, count * 64), want);
        }
        assert_eq!(lines(usize::MAX - 63, 64), [usize::MAX - 63]);
    }
}
