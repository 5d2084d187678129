#!/usr/bin/env python3
"""A tiered file: a log in memory that persists by itself, before a file on a disk. Words: docs/format.md, "Tiered journals".

    tiered.py                 every short history; exit status 1 at a counterexample
    tiered.py --mutants       leave out one step at a time

Two blocks of one granule; two segments of two records of one block each; two slots. Operations: wi write block i (w1 makes the file
longer)  t cut to 1  z grow to 2 without a write  s SYNC  b write-back begins: pwrites  p the same of all but the last epoch  e it ends:
fdatasync, tail  f its fdatasync fails  x forced: also what the open epoch has overwritten or cut off, from the log  o open (recovery; the first SYNC makes a new journal). The file had (9, 9). Blocks that are written lie in memory until they are in the file.
The code: crates/famio/src/journal/tiered, file/records, recovery/formats/tiered.rs. Change this first.
"""
import sys

from engine import Model, main

D = (0, 1)                                      # pages of the disk file
SIZE = 2                                        # its inode's size
HEADER = 3                                      # (state, journal id); a new id is a new journal's file
SLOT = (4, 5)                                   # (id, epoch, size, last record)
TAIL = 6                                        # (id, epoch)
SEGMENT = (7, 8)                                # (id, generation)
RECORD = ((9, 10), (11, 12))                    # (id, number, epoch, first of it, generation, size, cut, block)
DATA = ((13, 14), (15, 16))
FILE, NONE = (0, 1, 2), (0,)
ACTIVE, CLEAN = "active", "clean"


class Tiered(Model):
    kernel, learn = frozenset([0, 1, 2, 3]), (5, 0)

    @classmethod
    def kernel_of(cls, config):
        return cls.kernel

    @classmethod
    def first(cls, config):
        return (9, 9, 2, (CLEAN, 0)) + (NONE,) * 9 + (0,) * 4, frozenset([(9, 9)])

    def names(self):
        return ("disk0 disk1 disk.size header slot0 slot1 tail segment0 segment1 record00 record01 record10 record11 "
                "data00 data01 data10 data11").split()

    def reset(self):
        self.opened, self.attached, self.failed, self.id = False, False, False, 0
        self.C, self.tail, self.size, self.low, self.cut, self.now = 1, 1, 2, 9, 9, ()
        self.held, self.dirty, self.resized = frozenset(), frozenset(), False
        self.at, self.generation, self.number = None, 0, 0
        self.last = (0, 0)                      # the last epoch of each segment
        self.batch, self.finished = None, None
        self.since, self.listed, self.overwritten = (0, 0), frozenset(), False
        self.committed_low, self.committed_size = 9, 2

    def survives(self, before):
        pass

    def put(self, u, value, step="always"):
        self.m.store(u, value)
        if self.rule(step):
            self.m.flush(u)

    def disk(self, u, value):
        """A system call that changes the file. Of its versions a crash takes any: each is kept once, or recoveries that are killed would
        never end."""
        if self.m.now(u) != value:
            self.m.v[u] = tuple(version for version in self.m.v[u] if version != value)
        self.m.store(u, value)

    def resize(self, size):
        """What is beyond the end is gone, also where the size alone is durable: what grows reads as zeros."""
        for b in range(min(size, self.m.now(SIZE)), 2):
            self.disk(D[b], 0)
        self.disk(SIZE, size)

    def fence(self, step):
        if self.rule(step):
            self.m.fence()

    def operations(self):
        if not self.opened:
            return [("o", 0)]
        if self.failed:
            return []
        ops = [("w0", 1), ("w1", 1), ("s", 1)]
        ops += [("t", 1)] if self.size == 2 else [("z", 1)]
        return ops + ([("e", 1), ("f", 1)] if self.batch is not None else [("b", 1), ("p", 1), ("x", 1)])

    def do(self, op):
        {"o": self.open, "w": self.write, "s": self.sync, "b": self.begin, "p": self.partly, "x": self.force, "e": self.end, "f": self.fail, "t": self.shrink,
         "z": self.grow}[op[0]](int(op[1]) if len(op) > 1 else 0)

    # --- the program: all of it in memory until SYNC
    def write(self, block):
        if block > self.size:
            return
        value = (self.now[block] if block < self.size else 0) % 3 + 1
        self.size = max(self.size, block + 1)
        self.now = self.now[:block] + (value,) + self.now[block + 1:]
        self.held |= {block}
        self.dirty |= {block}
        self.since = tuple(self.C + 1 if b == block else epoch for b, epoch in enumerate(self.since))

    def shrink(self, _):
        self.size, self.now, self.resized = 1, self.now[:1], True
        self.low, self.cut = 1, 1
        self.held -= {1}
        self.dirty -= {1}

    def grow(self, _):
        self.size, self.now, self.resized = 2, self.now + (0,), True

    # --- SYNC
    def free(self, s):
        current = self.at is not None and self.at[0] == s
        tail = self.tail if self.rule("reuse.after-tail") else self.C
        return not current and self.last[s] <= tail

    def room(self):
        here = 0 if self.at is None else 2 - self.at[1]
        return here + sum(2 for s in (0, 1) if self.free(s))

    def sync(self, _):
        blocks = sorted(self.dirty)
        if not blocks and not self.resized:
            return
        if self.room() < max(1, len(blocks)) and (self.tail == self.C or not self.rule("rewind.after-tail")):
            self.at = None                      # the current segment is like any other
        if self.room() < max(1, len(blocks)):
            return
        if not self.attached:
            self.create()
        self.accept |= {self.now}
        N, first, cut = self.C + 1, True, self.cut
        for block in blocks or [None]:
            if self.at is None or self.at[1] == 2:
                s = 0 if self.free(0) else 1
                self.generation += 1
                self.put(SEGMENT[s], (self.id, self.generation), "sync.segment.flush")
                self.at = (s, 0)
            s, r = self.at
            self.number += 1
            generation = self.generation
            self.put(RECORD[s][r], (self.id, self.number, N, first, generation, self.size, min(cut, self.size), block),
                     "sync.record.flush")
            if block is not None:
                self.put(DATA[s][r], self.now[block], "sync.data.flush")
            self.at, first, cut = (s, r + 1), False, 9
            self.last = tuple(N if i == s else e for i, e in enumerate(self.last))
        self.fence("sync.fence")
        self.put(SLOT[N % 2], (self.id, N, self.size, self.number), "sync.slot.flush")
        self.fence("sync.slot.fence")
        self.listed |= self.dirty
        self.C, self.dirty, self.resized, self.cut = N, frozenset(), False, 9
        self.overwritten = False
        self.committed_low, self.committed_size = self.low, self.size
        self.accept = frozenset([self.now])
        self.point()
        if self.finished is not None:
            self.release(self.finished)
            self.finished = None

    def release(self, epoch):
        if epoch > self.tail:
            self.put(TAIL, (self.id, epoch), "release.flush")
            self.fence("release.fence")
            self.tail = epoch

    # --- write-back: committed blocks only
    def begin(self, _):
        self.write_back(self.C)

    def partly(self, _):
        if self.C - 1 > self.tail:
            self.write_back(self.C - 1)

    def write_back(self, target):
        """Of what has been committed since the last pass: what needs an epoch up to the target."""
        if not self.attached:
            return
        if self.cut != 9 and self.rule("back.waits-for-cut"):
            return                              # the open epoch has cut the file
        if self.low != 9 and self.rule("back.cut"):
            self.resize(min(self.low, self.m.now(SIZE)))
            self.low, self.committed_low = 9, 9
        if not self.rule("back.overwritten-stays"):
            self.overwritten = False
        for block in sorted(self.listed):
            if block not in self.held:
                continue                        # it was cut off
            if block in self.dirty:
                self.overwritten = True         # once: it is listed again by the commit
            elif self.since[block] > target:
                continue                        # it stays in the write cache
            else:
                self.resize(max(block + 1, self.m.now(SIZE)))
                self.disk(D[block], self.now[block])
                self.held -= {block}
            self.listed -= {block}
        self.batch = target

    def force(self, _):
        """From the log: what is held in memory, and what lies above an open cut. Nobody reads that from the file."""
        if not self.attached or self.tail == self.C:
            return
        if self.cut == 9 and self.low != 9 or self.committed_low != 9 and self.rule("force.cut"):
            self.resize(min(1, self.m.now(SIZE)))
            self.low, self.committed_low = self.cut, 9
        unseen = self.held | ({1} if self.cut != 9 else frozenset())
        found = [(self.m.now(RECORD[s][r]), self.m.now(DATA[s][r])) for s in (0, 1) for r in (0, 1)]
        found = [pair for pair in found if pair[0] != NONE and pair[0][0] == self.id and self.tail < pair[0][2] <= self.C]
        found.sort(key=lambda pair: pair[0][1])
        for i, (record, data) in enumerate(found):
            block, is_cut = record[7], any(later[6] <= (record[7] or 0) for later, _ in found[i + 1:])
            if block is None or block not in unseen or is_cut and self.rule("force.heeds-cuts"):
                continue
            self.resize(max(block + 1, self.m.now(SIZE)))
            self.disk(D[block], data)
        if self.rule("force.fdatasync"):
            self.m.fsync(FILE)
        self.release(self.C)
        self.overwritten, self.finished = False, None

    def end(self, _):
        if self.rule("back.fdatasync"):
            self.m.fsync(FILE)
        target, self.batch = self.batch, None
        if self.overwritten and self.rule("back.overwritten-waits"):
            self.finished = target
        else:
            self.release(target)

    def fail(self, _):
        self.m.fsync(FILE, fails=True)
        if self.rule("back.failed-is-for-good"):
            self.failed = True                  # no more commits, nothing is released
        else:
            self.end(0)
        self.point()

    # --- recovery, and a new journal
    def open(self, _):
        state, self.id = self.m.now(HEADER)
        if state == ACTIVE:
            self.recover()
            self.m.fsync([HEADER])              # it may be visible only
            self.m.store(HEADER, (CLEAN, self.id))
            self.m.fsync([HEADER])
        size = self.m.now(SIZE)
        self.now = tuple(self.m.now(D[b]) for b in range(size))
        self.need(self.now in self.accept, f"shows {self.now}, not of {sorted(self.accept)}")
        self.accept = frozenset([self.now])
        self.point()
        self.size, self.opened = size, True

    def create(self):
        """Before the first epoch; the file is as it was found."""
        self.id, self.attached = self.id + 1, True      # another file: nothing of the old one is in it
        size = self.m.now(SIZE)
        self.put(SLOT[1], (self.id, 1, size, 0))
        self.put(TAIL, (self.id, 1))
        self.fence("create.fence")
        self.m.dirty |= frozenset(FILE)
        self.m.fsync(FILE)
        self.m.store(HEADER, (ACTIVE, self.id))
        self.m.fsync([HEADER])

    def recover(self):
        slots = [self.m.now(u) for u in SLOT if self.m.now(u)[0] == self.id and self.m.now(u) != NONE]
        tails = [self.m.now(TAIL)[1]] if self.m.now(TAIL)[0] == self.id else []
        self.need(slots and tails, "no slot, or no tail")
        _, C, size, number = max(slots, key=lambda slot: slot[1])
        found = []
        for s in (0, 1):
            segment = self.m.now(SEGMENT[s])
            if segment == NONE or segment[0] != self.id:
                continue
            for r in (0, 1):
                record = self.m.now(RECORD[s][r])
                if record == NONE or record[0] != self.id or record[4] != segment[1] and self.rule("read.generation"):
                    break
                if record[1] <= number and record[2] > tails[0]:
                    found.append((record, self.m.now(DATA[s][r])))
        found.sort(key=lambda pair: pair[0][1])
        numbers = [record[1] for record, _ in found]
        whole = numbers == list(range(number - len(found) + 1, number + 1))
        begins = found and found[0][0][2] == tails[0] + 1 and found[0][0][3]
        self.need(C == tails[0] and not found or C > tails[0] and whole and begins, f"epochs {tails[0]} to {C} are damaged: {found}")
        for slot in SLOT:                       # the slot may be in a cache only
            if self.m.now(slot)[:2] == (self.id, C):
                self.m.store(slot, self.m.now(slot))
                if self.rule("recover.slot.flush"):
                    self.m.flush(slot)
        self.fence("recover.fence")
        for record, data in found:
            cut, after, block = record[6], record[5], record[7]
            self.resize(min(cut, self.m.now(SIZE)))
            self.resize(max(after, self.m.now(SIZE)))
            if block is not None:
                self.disk(D[block], data)
        self.resize(size)
        self.m.dirty |= frozenset(FILE)         # what is visible may be forgotten: it is written again
        if self.rule("recover.fdatasync"):
            self.m.fsync(FILE)


if __name__ == "__main__":
    sys.exit(main(Tiered, ["tiered"], depth=5, after=1))
