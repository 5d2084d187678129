#!/usr/bin/env python3
"""Growing files: what lies beyond the committed size is uncommitted by itself (docs/format.md, "Growing files").

    growing.py                 every short history; exit status 1 at a counterexample
    growing.py --mutants       leave out one step at a time

Operations: o open (recovers)  a append  u rewrite the last half if it is uncommitted  t cut by one  s SYNC (one flush, hash)
S SYNC (two flushes, no hash)  W SYNC with one flush and no hash (ordered only)  f SYNC whose flush fails for the data  j overwrite half 0 (becomes a file with a journal)
c close  C close with one flush (ordered only)  x an outsider overwrites the last half of the closed file  y an outsider appends to it
With redo: v overwrite half 0, V the last committed half, in memory until the SYNC  X an outsider overwrites half 0 and calls fdatasync
Configurations: `ordered`: attribute and size reach the disk in the order in which they changed (ext4 with its journal, xfs, btrfs);
`unordered`: each at any time (ext4 without, others). An attribute is never torn. `-stale`: blocks show old bytes until they are written.
`ordered-redo`: committed bytes are overwritten without a journal, and the mark has them. `-two`: only fdatasync brings data to the disk
before a later mark (btrfs), no write-out does.
"""
import sys

from engine import Model, main

N = 4                                           # halves: a page or a part of one; each reaches the disk by itself


class Growing(Model):
    META = 0                                    # ordered: (mark, size) in one line; unordered: MARK 0, SIZE 1
    H = range(2, 2 + N)
    J = 2 + N
    kernel = frozenset(range(0, 3 + N))
    learn = (3, 1)

    @classmethod
    def kernel_of(cls, config):
        return cls.kernel

    @classmethod
    def first(cls, config):
        blank = 7 if "stale" in config else 0
        found = 0 if "new" in config else 2 if "redo" in config else 1
        image = [(None, found), found] + [9 if i < found else blank for i in range(N)] + [None]
        if not config.startswith("ordered"):
            image[0] = (None, None)
        return tuple(image), frozenset([(9,) * found])

    def names(self):
        return ["mark", "size"] + ["half %d" % i for i in range(N)] + ["journal"]

    def reset(self):
        self.state, self.S, self.L, self.overlay, self.marked = "closed", 0, 0, (), False
        self.found = False                      # the bytes below S are as we found them, perhaps not durable

    def survives(self, before):
        pass

    def rule(self, name):
        """Mutants leave out the rules of redo in its configurations, and the others in the others."""
        return ("redo" in self.config) != ("redo" in name) or super().rule(name)

    # --- the kernel
    @property
    def ordered(self):
        return self.config.startswith("ordered")

    def mark(self):
        return self.m.now(0)[0]

    def size(self):
        return self.m.now(0)[1] if self.ordered else self.m.now(1)

    def redo(self):
        """What the mark has overwritten below its size: in the file, too, once the mark is durable, but perhaps not on the disk."""
        return self.mark()[5] if self.mark() is not None and self.mark()[0] == "g" else ()

    def set_mark(self, mark):
        self.m.store(0, (mark, self.size()) if self.ordered else (mark, None))

    def set_growing(self, base, new=None, hashed=None, found=False, redo=()):
        self.set_mark(("g", base, base if new is None else new, hashed, found, redo))

    def set_size(self, size):
        old = self.size()
        sizes = [w[1] for w in self.m.v[0]] if self.ordered else self.m.v[1]
        if size > old and max(sizes) <= old and "stale" not in self.config:
            for i in range(old, N):             # blocks that were given back read as zeros
                self.m.v[self.H[i]] = tuple(0 for _ in self.m.v[self.H[i]][-1:])
        if size < old:
            for i in range(size, old):
                self.m.store(self.H[i], 0)      # the kernel clears the tail, perhaps before the size is durable
        if self.ordered:
            self.m.store(0, (self.mark(), size))
        else:
            self.m.store(1, size)

    def write(self, at, value):
        if at >= self.size():
            self.set_size(at + 1)
        self.m.store(self.H[at], value)

    def fsync(self, name, data_only=False):
        if not self.rule(name):
            return
        if data_only:                           # fdatasync: data and size; the attribute only as far as the order says so
            marks = self.m.v[0]
            self.m.fsync(list(self.H) + ([] if self.ordered else [1]))
            if self.ordered:
                last = max([i for i in range(1, len(marks)) if marks[i][1] != marks[i - 1][1]], default=0)
                self.m.v[0] = marks[last:]
        else:
            self.m.fsync(range(0, 2 + N))

    def bytes(self, start, end):
        return tuple(self.m.now(self.H[i]) for i in range(start, end))

    def patched(self, now):
        now = list(now)
        for at, value in self.overlay:
            now[at] = value
        return tuple(now)

    def current(self):
        return self.patched(self.bytes(0, self.L))

    def fresh(self, at):
        return (self.current()[at] if at < self.L else self.m.now(self.H[at])) % 3 + 1

    # --- operations
    def operations(self):
        if self.state == "closed":
            ops = [("o", 0)]
            if self.mark() is None and self.m.now(self.J) is None and self.size():
                ops += [("x", 1), ("y", 1)] if self.size() < N else [("x", 1)]
                ops += [("X", 1)] if "redo" in self.config else []
            return ops
        if self.state == "dead":
            return [("c", 1)]
        if self.state == "open" and "redo" in self.config:  # a cut below S is not offered: it makes a journal, as j does
            ops = [("s", 1), ("c", 1)] + ([("S", 1)] if "two" in self.config else [("W", 1), ("C", 1)])
            ops += ([("j", 1), ("v", 1)] + ([("V", 1)] if self.S > 1 else [])) if self.S and self.L >= self.S else []
            ops += [("a", 1)] if self.S <= self.L < N else []
            ops += [("t", 1)] if self.L and (self.L > self.S or not self.overlay and not self.redo()) else []
            return ops + ([("f", 1)] if not self.found and (self.L > self.S or self.overlay and self.redo()) else [])
        ops = [("s", 1), ("c", 1)] + ([("C", 1), ("W", 1)] if self.ordered and self.state == "open" else [])
        if self.L < N and self.L >= self.S:
            ops += [("a", 1)]
        if self.L > self.S:
            ops += [("u", 1)]
        if self.state == "open":
            ops += [("S", 1)] + ([] if self.found else [("f", 1)]) + ([("t", 1)] if self.L else [])
        if self.S and self.L >= self.S:
            ops += [("j", 1)]
        return ops

    def do(self, op):
        {"o": self.open, "a": self.append, "u": self.rewrite, "t": self.cut, "s": self.sync, "W": self.sync_at_once, "S": self.sync_two, "f": self.fail,
         "j": self.overwrite, "c": self.close, "C": self.close_at_once, "x": self.outsider, "y": self.outsider_appends,
         "v": lambda: self.overwrite_by_redo(0), "V": lambda: self.overwrite_by_redo(self.S - 1), "X": self.outsider_syncs}[op]()

    def begin(self):
        """The first change since the open: the mark. A file that was just made, too."""
        if self.marked or self.state != "open":
            return
        if self.rule("begin.mark"):
            self.set_growing(self.S, found=self.found)
        if not self.ordered:
            self.fsync("begin.fsync (unordered)")
        self.marked = True

    def append(self):
        self.begin()
        if not self.rule("redo.stays-in-later-mark") and self.redo():   # the mark is set again when its time has come
            self.set_growing(self.S)
        self.write(self.L, self.fresh(self.L))
        self.L += 1

    def rewrite(self):
        self.write(self.L - 1, self.fresh(self.L - 1))

    def cut(self):
        self.begin()
        if self.L - 1 >= self.S:
            self.set_size(self.L - 1)
        elif not self.rule("cut.waits-for-commit"):
            self.set_size(self.L - 1)
        self.L -= 1

    def put(self, at):
        self.overlay = tuple(sorted({**dict(self.overlay), at: self.fresh(at)}.items()))

    def overwrite_by_redo(self, at):
        """Below the committed size, without a journal: in memory until the SYNC."""
        self.begin()
        self.put(at)

    def apply(self):
        """What the mark has is written to the file, without a flush: the mark is durable, and keeps it until this has reached the disk."""
        overlay, self.overlay = self.overlay, ()
        for at, value in overlay if self.rule("redo.applied") else ():
            self.write(at, value)

    def commit_begins(self):
        now, kept = self.current(), min(self.S, self.L)
        below = {now[:kept]}
        if self.found:                          # unsynced bytes found at open remain the responsibility of their writer
            below = {self.patched(was[:kept]) for was in self.accept if len(was) >= kept}
        self.accept |= {was + now[kept:] for was in below}

    def commit_done(self):
        self.accept = frozenset([self.current()])
        self.S, self.found = self.L, False
        self.point()

    def sync(self):
        if self.state == "journal":
            return self.sync_journal()
        if self.overlay or self.rule("redo.no-hash") and self.redo() and self.L > self.S:
            return self.sync_two()
        self.commit_begins()
        if self.L == self.S:
            if self.found:
                self.fsync("sync.as-found")
            return self.commit_done()
        self.begin()
        if self.L < self.S:
            self.set_growing(self.L)
            self.fsync("cut.fsync")
            self.commit_done()
            if self.size() > self.L:
                self.set_size(self.L)
            return
        if self.L > self.S:
            if self.rule("sync.hash"):
                self.set_growing(self.S, self.L, self.bytes(self.S, self.L), self.found)
            else:
                self.set_growing(self.L)
            if self.rule("sync.fsync-not-fdatasync"):
                self.fsync("sync.fsync")
            else:
                self.fsync("sync.fsync", data_only=True)
        self.commit_done()

    def sync_two(self):
        if self.L <= self.S and not self.overlay:
            return self.sync()
        self.begin()
        self.commit_begins()
        kind = "redo." if self.overlay or self.redo() else ""
        if self.L > self.S or self.rule("redo.two.applied-before-mark") and self.redo():
            self.fsync(kind + "two.first", data_only=True)
        self.commit_mark(kind + "two.second")

    def sync_at_once(self):
        """New data reaches the disk, then the mark records it, then one flush. Where a later change of metadata is durable, all that had
        reached the disk before is, too: what a crash leaves between the two is what it leaves before the first or after the second."""
        if self.L <= self.S and not self.overlay:
            return self.sync()
        self.begin()
        self.commit_begins()
        kind = "redo." if self.overlay or self.redo() else ""
        if self.rule(kind + "at-once.written-before-mark"):
            self.m.fsync(self.H[self.S:])
        self.write_out_applied("redo.at-once.applied-before-mark")
        self.commit_mark(kind + "at-once.fsync")

    def write_out_applied(self, name):
        if self.rule(name):
            self.m.fsync([self.H[at] for at, _ in self.redo()])

    def commit_mark(self, name):
        """The mark has what is overwritten, and no hash. The file gets it when the mark is durable, and not before."""
        self.set_growing(self.L, redo=self.overlay)
        if self.overlay and not self.rule("redo.applied-after-fsync"):
            self.apply()
        self.fsync(name)
        self.commit_done()
        self.apply()

    def fail(self):
        if self.L <= self.S and not self.overlay:
            return
        self.begin()
        self.commit_begins()
        if not self.overlay and not self.redo():        # with redo the first flush fails: the mark is not replaced
            self.set_growing(self.S, self.L, self.bytes(self.S, self.L), self.found)
        self.m.fsync(self.H, fails=True)        # the data are forgotten; the attribute is written some time
        self.state = "dead"
        self.point()

    def overwrite(self):
        """Below the committed size. The journal is one line: {size, overlay}, durable by its fsync."""
        if self.state != "journal":
            tail = ()
            if "redo" in self.config:           # without a mark others may change the file; elsewhere the mark is only replaced
                tail = self.bytes(self.S, self.L)
                self.remove_mark("journal")
            self.m.store(self.J, ("creating", self.S, ()))
            if self.rule("journal.before-mark"):
                self.m.fsync([self.J])
            self.set_mark(("j",))
            self.fsync("journal.mark-durable")
            self.m.fsync([self.J])
            self.state, self.found = "journal", False
            for i, value in enumerate(tail):
                self.write(self.S + i, value)
        self.put(0)

    def sync_journal(self):
        self.commit_begins()
        self.fsync("journal.appended-before-record", data_only=True)
        self.m.store(self.J, ("live", self.L, self.overlay))
        if self.rule("journal.fsync"):
            self.m.fsync([self.J])
        self.commit_done()

    def close(self):
        if self.state == "dead":
            self.reset()
            return
        self.sync()
        if self.state == "journal":
            self.end_journal(self.L, self.overlay)
        else:
            self.remove_mark("close")
        self.reset()

    def close_at_once(self):
        """As `sync_at_once`; the mark goes. No flush where nothing is new: a mark that comes back says what the file has. Not with a hash or redo:
        after a kill in between others may overwrite the file, and a power cut may bring the mark back."""
        has_hash = self.mark() is not None and self.mark()[3] is not None
        if not self.marked or self.L < self.S or has_hash and self.rule("close.at-once.no-hash"):
            return self.close()
        if self.rule("redo.close.not-at-once") and self.redo() or self.rule("redo.close.memory-not-at-once") and self.overlay:
            return self.close()
        self.commit_begins()
        self.apply()
        if self.rule("close.written-before-unmarked"):
            self.m.fsync(self.H)
        is_durable = self.L == self.S and not self.found
        self.set_mark(None)
        if not is_durable:
            self.fsync("close.at-once.fsync")
        self.commit_done()
        self.reset()

    def remove_mark(self, step):
        """First the plain mark, durably: one with a hash or redo must not come back once others may overwrite the file."""
        if self.mark() is None:
            return
        kind = "redo." if self.redo() else ""
        if self.mark()[3] is not None or self.mark()[4] or self.redo() or step == "recover":
            if step == "close" and "two" not in self.config:
                self.write_out_applied("redo.close.written-before-plain")
            elif step != "recover" and self.redo():
                self.fsync("redo." + step + ".first", data_only=True)
            if self.rule(kind + step + ".plain-mark"):
                self.set_growing(self.S)
            self.fsync(kind + step + ".fsync")
        if self.size() != self.S and self.rule("recover.cuts"):
            self.set_size(self.S)
        if not self.ordered:
            self.fsync("removal.cut.fsync (unordered)")     # only if the file was cut since the last fsync
        self.set_mark(None)
        if not self.ordered:
            self.fsync(step + ".removal.fsync (unordered)")

    def end_journal(self, size, overlay):
        if self.size() != size:
            self.set_size(size)
        for at, value in overlay:
            self.m.store(self.H[at], value)
        self.fsync("journal.end.file")
        self.m.store(self.J, ("clean",))
        if self.rule("journal.end.clean"):
            self.m.fsync([self.J])
        self.set_mark(None)
        self.m.dirty |= {0}                     # also where it is gone already: perhaps in the cache only
        self.fsync("journal.end.mark")
        self.m.store(self.J, None)              # a clean one that comes back is a leftover

    def open(self):
        mark, size = self.mark(), self.size()
        if mark is None:
            self.drop_leftover()
            self.S = size
        elif mark[0] == "j":
            journal = self.m.now(self.J)
            if journal is not None and journal[0] != "clean":
                if journal[0] == "creating":    # as found: perhaps not durable when this began
                    journal = journal[0], min(journal[1], size), journal[2]
                self.need(size >= journal[1], "the file is shorter than the journal says")
                self.m.dirty |= {self.J}
                if self.rule("recover.persists-journal"):
                    self.m.fsync([self.J])
                self.end_journal(journal[1], journal[2])
            else:                               # ended: it may say so in the page cache only
                if self.rule("recover.clean-before-mark"):
                    self.m.dirty |= {self.J}
                    self.m.fsync([self.J])
                self.set_mark(None)
                self.fsync("recover.mark")
                self.m.store(self.J, None)
            self.S = self.size()
        else:
            _, base, new, hashed, found, redo = mark
            good = hashed is None or (size >= new and self.bytes(base, new) == hashed)
            self.S = new if good else base
            if found and self.rule("found.may-be-shorter"):
                self.S = min(size, self.S)
            self.need(size >= self.S, f"the file has {size}, {self.S} are committed")
            self.drop_leftover()
            if hashed is not None and good and self.rule("recover.rewrites"):
                self.m.dirty |= frozenset(self.H[i] for i in range(base, new))
            if redo:                            # perhaps in the cache only, after a kill: its bytes must not reach the disk before it
                self.fsync("redo.recover.mark-first")
            for at, value in redo:
                if self.rule("redo.recover.applies") and (self.m.now(self.H[at]) != value or self.rule("redo.recover.rewrites")):
                    self.m.store(self.H[at], value)
            self.fsync("redo.recover.first" if redo else "recover.first")
            self.remove_mark("recover")
        self.L = self.S
        now = self.bytes(0, self.S)
        self.need(now in self.accept, f"shows {now}, not {' or '.join(map(str, sorted(self.accept)))}")
        if mark is not None:
            self.accept = frozenset([now])      # shown by a recovery: it stays
        self.state, self.overlay, self.marked, self.found = "open", (), False, mark is None
        self.point()

    def drop_leftover(self):
        journal = self.m.now(self.J)
        self.need(journal is None or journal[0] != "live", "a journal without a mark: conflict")
        if journal is not None:
            if self.rule("leftover.mark-off-durably"):
                self.m.dirty |= {0}
                self.m.fsync([self.J])
                self.m.fsync(range(0, 2 + N))
            self.m.store(self.J, None)
            self.m.fsync([self.J])

    # --- a program without Famio, on a closed file
    def outsider(self):
        last = self.size() - 1
        self.accept |= {was[:last] + (5,) for was in self.accept | {self.bytes(0, last + 1)} if len(was) == last + 1}
        self.m.store(self.H[last], 5)

    def outsider_syncs(self):
        """Durable are the bytes, but not the attribute that Famio has removed. What it has not written itself may be what it was."""
        after = {(5,) + was[1:] for was in self.accept | {self.bytes(0, self.size())} if was}
        self.accept |= after
        self.m.store(self.H[0], 5)
        self.fsync("always", data_only=True)
        self.accept = frozenset(after)

    def outsider_appends(self):
        now = self.bytes(0, self.size())
        self.accept |= {was + (v,) for was in self.accept | {now} if len(was) == len(now) for v in range(10)}
        self.write(self.size(), 6)


if __name__ == "__main__":
    configs = ["ordered", "ordered-new", "ordered-stale", "unordered", "unordered-stale", "ordered-redo", "ordered-redo-two"]
    sys.exit(main(Growing, configs, depth=4, after=2))
