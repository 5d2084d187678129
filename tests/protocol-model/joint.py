#!/usr/bin/env python3
"""Joint commits: one transaction of two files, or one SYNC of two files of a group (docs/format.md, "Joint commits").

    joint.py                 every short history; exit status 1 at a counterexample
    joint.py --mutants       leave out one step at a time

A file, its mark, and its journal are one line each: that a journal commits an epoch as a whole is what the other models are about. The record has
two lines, each with the number of its writing, which stands for its hash. Operations, i is 0 or 1: oi open (recovers), wi write, si SYNC of one
file, t a transaction of both, g a SYNC of what is open in either, ci close, u the process removes its record (as it does when its last file is closed). After a crash each file is opened when
the search likes, or never.
"""
import sys

from engine import Model, main

FILE, JOURNAL, MARK = range(3)
NAMES = "file journal mark".split()
R0, R1 = 6, 7                                   # the record's lines


class Joint(Model):
    kernel = frozenset(range(8))
    learn = (3, 1)                              # two writes before a SYNC of the group

    @classmethod
    def kernel_of(cls, config):
        return cls.kernel

    @classmethod
    def first(cls, config):
        return (9, None, None) * 2 + (None, None), frozenset([(9, 9)])

    def names(self):
        return [f"{n} of {i}" for i in (0, 1) for n in NAMES] + ["record.0", "record.1"]

    def reset(self):
        # What is committed, what is written above it, and the epoch.
        self.opened, self.now, self.open_epoch, self.C = (False, False), (0, 0), (None, None), (0, 0)

    def survives(self, before):
        self.serial = before.serial             # ids of journals, numbers of writings: never used twice

    serial = 1

    def set(self, name, i, value):
        pair = list(getattr(self, name))
        pair[i] = value
        setattr(self, name, tuple(pair))

    def word(self, i, u):
        return self.m.now(3 * i + u)

    def put(self, i, u, value):
        self.m.store(3 * i + u, value)

    def flush(self, i, u, step="always"):
        if self.rule(step):
            self.m.fsync([3 * i + u])

    # --- operations
    def operations(self):
        ops = []
        for i in (0, 1):
            if not self.opened[i]:
                ops.append(("o%d" % i, 0))
            else:
                ops += [("w%d" % i, 1), ("s%d" % i, 1), ("c%d" % i, 1)]
        if all(self.opened):
            ops.append(("t", 1))
            if any(epoch is not None for epoch in self.open_epoch):
                ops.append(("g", 1))
        if not any(self.opened) and self.m.now(R0) is not None and self.word(0, MARK) is None and self.word(1, MARK) is None:
            ops.append(("u", 1))
        return ops

    def do(self, op):
        {"o": self.open, "w": self.write, "s": self.sync, "c": self.close}.get(op[0], lambda _: None)(int(op[1:] or 0)) if op[0] in "owsc" else \
            {"t": self.transaction, "g": self.group, "u": self.remove_record}[op]()

    def fresh(self, i):
        return (self.open_epoch[i] or self.now[i]) % 4 + 1

    def session(self, i):
        """The journal, before the first write."""
        if self.word(i, JOURNAL) is None:
            self.serial += 1
            self.put(i, JOURNAL, (self.serial, 0, None))
            self.flush(i, JOURNAL)
            self.put(i, MARK, self.serial)
            self.flush(i, MARK)
            self.set("C", i, 0)

    def write(self, i):
        self.session(i)
        self.set("open_epoch", i, self.fresh(i))

    def commit(self, i, value):
        journal, C, _ = self.word(i, JOURNAL)
        self.put(i, JOURNAL, (journal, C + 1, value))
        self.flush(i, JOURNAL)
        self.set("C", i, C + 1)
        self.set("now", i, value)
        self.set("open_epoch", i, None)

    def sync(self, i):
        if self.open_epoch[i] is None:
            return
        value = self.open_epoch[i]
        self.accept |= {tuple(value if j == i else was[j] for j in (0, 1)) for was in self.accept}
        self.commit(i, value)
        self.accept = frozenset(was for was in self.accept if was[i] == value)
        self.point()

    def transaction(self):
        for i in (0, 1):
            self.session(i)
            if self.open_epoch[i] is not None and self.rule("transaction.open-epoch-first"):
                self.sync(i)
        self.by_record(tuple(self.fresh(i) for i in (0, 1)), "transaction")

    def group(self):
        if None in self.open_epoch:
            for i in (0, 1):
                self.sync(i)
        else:
            self.by_record(self.open_epoch, "group")

    def by_record(self, new, step):
        self.accept |= {new}
        if self.rule(step + ".record-first"):
            self.record(new, step)
        for i in (0, 1):
            self.commit(i, new[i])
        if not self.rule(step + ".record-first"):
            self.record(new, step)
        self.accept = frozenset([new])
        self.point()

    def record(self, new, step):
        self.serial += 1
        for i, line in enumerate((R0, R1)):
            journal, C, _ = self.word(i, JOURNAL)
            self.m.store(line, (self.serial, journal, C, new[i]))
        if self.rule(step + ".record-durable"):
            self.m.fsync([R0, R1])

    def remove_record(self):
        for line in (R0, R1):
            self.m.store(line, None)            # not synced

    def close(self, i):
        self.sync(i)
        self.end(i, self.now[i], "close")
        self.set("opened", i, False)

    def end(self, i, value, step):
        if self.word(i, JOURNAL) is None:
            return
        self.put(i, FILE, value)
        self.flush(i, FILE, step + ".file-before-clean")
        self.put(i, JOURNAL, "clean")
        self.flush(i, JOURNAL, step + ".clean-before-mark")
        self.put(i, MARK, None)
        self.m.dirty |= {3 * i + MARK}
        self.flush(i, MARK, step + ".mark-before-journal")
        self.put(i, JOURNAL, None)

    def open(self, i):
        journal, mark = self.word(i, JOURNAL), self.word(i, MARK)
        self.need(mark is None or journal is not None, "a mark without its journal")
        value = self.word(i, FILE)
        if mark is not None and journal != "clean":
            self.need(journal[0] == mark, "the journal is not the mark's")
            number, C, committed = journal
            self.m.dirty |= {3 * i + JOURNAL}
            self.flush(i, JOURNAL)              # what was read has to stay
            value = value if committed is None else committed
            if self.rule("recover.reads-record"):
                value = self.part(i, number, C, value)
            self.end(i, value, "recover")
        elif journal is not None:
            self.m.dirty |= {3 * i + JOURNAL, 3 * i + MARK}
            self.flush(i, JOURNAL)
            self.put(i, MARK, None)
            self.flush(i, MARK)
            self.put(i, JOURNAL, None)
        good = frozenset(was for was in self.accept if was[i] == value)
        self.need(good, f"file {i} shows {value}, not what any of {sorted(self.accept)} has")
        if mark is not None:
            self.accept = good                  # shown by a recovery: it stays
        self.set("opened", i, True)
        self.set("now", i, value)
        self.set("open_epoch", i, None)
        self.point()

    def part(self, i, journal, C, value):
        lines = [self.m.now(line) for line in (R0, R1)]
        if any(line is None for line in lines) or lines[0][0] != lines[1][0] and self.rule("record.has-hash"):
            return value
        _, of, before, new = lines[i]
        if self.rule("record.names-journal") and of != journal or self.rule("record.names-epoch") and before != C:
            return value
        if self.rule("recover.secures-record"):
            self.m.dirty |= {R0, R1}
            self.m.fsync([R0, R1])
        return new


if __name__ == "__main__":
    sys.exit(main(Joint, ["two"], depth=4, after=2))
