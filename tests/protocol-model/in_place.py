"""Journals in place: what is stored, flushed and fenced, and in which order. Words: docs/format.md.

The code: crates/famio/src/journal/inplace, file/inplace, file/session/{write,sync,close,attach}.rs, index/calls/gate.rs,
recovery/formats/in_place.rs. Change this first.
"""
import itertools

from medium import BLOCKS, CAPACITY, GRANULES, Layout, Protocol

ENTRIES, SLOTS = 2, 2
LAYOUT = Layout()
line = LAYOUT.line
# The journal. The header has a mirror, and is stored one copy after the other: it changes as a whole.
HEADER = line("header")                                             # (state, journal id)
SLOT = [line(f"slot{i}") for i in range(SLOTS)]                     # twice (epoch, size, check)
ENTRY = [line(f"entry{e}") for e in range(ENTRIES)]                 # see the word numbers below
LOG = [[line(f"log{e}[{g}]") for g in range(GRANULES)] for e in range(ENTRIES)]
# The file: its bytes, and what only fdatasync makes durable.
HOME = [[line(f"file{b}[{g}]") for g in range(GRANULES)] for b in range(BLOCKS)]
PHYS = line("physical size")
MARK = line("mark")                                                 # (journal id,)
FILE = frozenset(itertools.chain(*HOME)) | {PHYS, MARK}

# An entry is a line of 8 words: check, block, and per version epoch word, granules, mirror. The epoch word is one word of
# 8 bytes: (kind, epoch) here, with a fold on the medium, which says nothing about crashes.
CHECK, BLOCK, A, B = 0, 1, 2, 5
VERSION = (A, B)
BACKGROUND = 2                                                      # the third thread
SEVERAL = "several"


def first_image():
    """No journal; the file is one block long and filled with 3s."""
    image = [(0,)] * len(LAYOUT.names)
    image[HEADER] = (0, 0)
    for unit in SLOT:
        image[unit] = (0,) * 6
    for unit in ENTRY:
        image[unit] = (0,) * 8
    for unit in HOME[0]:
        image[unit] = ((3, 3),)
    for unit in itertools.chain(HOME[1], *LOG):
        image[unit] = ((9, 9),)             # never written: 9 is garbage that must not be seen
    image[PHYS] = (GRANULES * 2,)
    return tuple(image)


KERNEL = {PHYS, MARK}


def after_power_cut(image):
    return image


class InPlace(Protocol):
    """One process with the file open, two threads that write, one that checkpoints."""

    HOME, PHYS, FILE = HOME, PHYS, FILE

    def __init__(self, medium, config, off=frozenset()):
        super().__init__(medium, config, off)
        self.policy = config.policies[0]
        self.id = self.committed = self.size = self.committed_size = self.stale_end = 0
        self.dirty = False
        self.free = ()
        self.pending = (None,) * config.words       # the blocks that may have dirty lines: one word per thread, or a shared one
        self.unflushed = (0,) * BLOCKS              # per block, the granules stored but not flushed
        self.solo = self.writer = None              # the thread in exclusive mode; the thread that has written since the last SYNC

    def key(self):
        return (self.policy, self.committed, self.size, self.committed_size, self.stale_end, self.dirty, self.free,
                self.pending, self.unflushed, self.solo, self.writer, self.id)

    # --- named steps
    def flush(self, unit, name, thread):
        if self.rule(name):
            self.m.flush(unit, thread)

    def fence(self, name, thread):
        if self.rule(name):
            self.m.fence(thread)

    def fdatasync(self, name):
        if self.rule(name):
            self.m.fdatasync(FILE)

    # --- the gate
    def enter(self, thread):
        """Whether the thread is in exclusive mode: then it fences only at SYNC."""
        if self.solo == thread:
            return True
        self.revoke()
        self.writer = thread if self.writer in (None, thread) else SEVERAL
        return False

    def revoke(self):
        if self.solo is not None:
            self.fence("solo.revoke.fence", self.solo)      # membarrier: a fence on the owner's processor
            self.solo = None

    def grant(self, thread):
        alone = self.writer == thread or (self.writer is None and self.solo == thread)
        self.solo = thread if alone and self.config.solo else None
        self.writer = None

    # --- cells: here read from the entries, which say the same
    def used(self):
        for e in range(ENTRIES):
            words = self.m.now(ENTRY[e])
            if words[CHECK]:
                yield e, words

    def find(self, block):
        return next(((e, w) for e, w in self.used() if w[BLOCK] == block), (None, None))

    def state(self, block):
        """(entry, kind, place and granules of the version that holds, the same of the open version), or None."""
        e, words = self.find(block)
        if e is None:
            return None
        committed = opened = None
        for at in VERSION:
            if words[at] and words[at][1] == self.committed + 1:
                opened = at, words[at + 1]
            elif words[at] and (committed is None or words[at][1] > words[committed[0]][1]):
                committed = at, words[at + 1]
        return e, self.kinds[e], committed, opened

    kinds = (None,) * ENTRIES

    @staticmethod
    def in_log(state):
        if state is None or state[1] != "map":
            return 0
        version = state[3] or state[2]
        return version[1] if version else 0

    @staticmethod
    def committed_in_log(state):
        return state[2][1] if state[1] == "map" and state[2] else 0

    def live(self, block, g, state):
        """A granule's live copy; zeros above the file's physical size."""
        if self.in_log(state) >> g & 1:
            return self.m.now(LOG[state[0]][g])[0]
        first = (block * GRANULES + g) * 2
        value = self.m.now(HOME[block][g])[0]
        return tuple(v if first + i < self.physical() else 0 for i, v in enumerate(value))

    def contents(self):
        halves = []
        for block in range(BLOCKS):
            state = self.state(block)
            halves += [half for g in range(GRANULES) for half in self.live(block, g, state)]
        return tuple(halves[:self.size])

    # --- writing
    def put(self, start, end, value, thread=0, large=False):
        solo = self.enter(thread)
        self.dirty = True
        if start > self.size:
            self.zero_gap(self.size, start, thread, solo)
        self.put_halves(start, [value] * (end - start), thread, solo, large)
        self.size = max(self.size, end)

    def resize(self, size, thread=0):
        """With the gate closed."""
        if self.solo != thread:
            self.revoke()
        if size != self.size:
            self.dirty = True
        if size > self.size:
            self.zero_gap(self.size, size, thread, False)
        self.size = size

    def zero_gap(self, start, end, thread, solo):
        """Zeros over old bytes: no reader ever needs to know what was written since a cut."""
        if self.rule("grow.writes-zeros"):
            end = min(end, self.stale_end)
            self.put_halves(start, [0] * (end - start), thread, solo, False)

    def put_halves(self, start, halves, thread, solo, large):
        for block in range(BLOCKS):
            first = block * GRANULES * 2
            here = {at - first: half for at, half in enumerate(halves, start) if first <= at < first + GRANULES * 2}
            if here:
                self.write_block(block, here, thread, solo, large)

    def write_block(self, block, new, thread, solo, large):
        """`new`: half of the block -> value."""
        word = thread % len(self.pending)
        again = self.pending[word] == block
        before = None if again else self.pending[word]
        self.pending = self.pending[:word] + (block,) + self.pending[word + 1:]
        if before is not None:
            self.flush_dirty(before, "turn", thread)
        owed = before is not None

        bits = sum(1 << g for g in range(GRANULES) if g * 2 in new or g * 2 + 1 in new)
        fresh = sum(1 << g for g in range(GRANULES) if (block * GRANULES + g) * 2 >= self.committed_size)
        self.stale_end = max(self.stale_end, block * GRANULES * 2 + (max(new) // 2 + 1) * 2)
        kind = "undo" if self.policy == "undo" else "map"
        state = self.state(block)
        if state and state[1] != kind and bits & ~fresh:
            if not self.rule("switch.checkpoints"):
                self.kinds = self.kinds[:state[0]] + (kind,) + self.kinds[state[0] + 1:]
                state = self.state(block)
            elif not state[3]:
                self.checkpoint_block(block, state, thread)
                state = None
        piece = block, new, bits, fresh, again or solo or not large, thread
        if not bits & ~fresh and not (self.in_log(state) & bits):
            self.extend_physical()                          # above C's size: recovery cuts it off, no copy is needed
            self.store_file(piece, bits)
        else:
            state = state or self.give_entry(block, kind)
            write = self.write_undo if state[1] == "undo" else self.write_map
            owed = write(piece, state, owed)
        if piece[4]:
            self.unflushed = tuple(u | bits if b == block else u for b, u in enumerate(self.unflushed))
        if (owed or not piece[4]) and not solo:
            self.fence("write.fence", thread)

    def store_data(self, unit, value, piece):
        self.m.store(unit, 0, value)
        if not piece[4]:
            self.flush(unit, "write.data.flush", piece[5])  # around the cache: on the medium after the next fence

    def store_file(self, piece, bits):
        """In place: only the bytes that are written."""
        block, new = piece[:2]
        for g in range(GRANULES):
            if bits >> g & 1:
                old = self.m.now(HOME[block][g])[0]
                self.store_data(HOME[block][g], tuple(new.get(g * 2 + i, old[i]) for i in (0, 1)), piece)

    def give_entry(self, block, kind):
        e, self.free = self.free[-1], self.free[:-1]
        clear = [(A, 0), (B, 0)] if self.rule("reuse.clears-versions") else []
        whose = [(BLOCK, block), (CHECK, block + 1)]        # check last: half an entry is no entry
        for word, value in clear + whose if self.rule("reuse.clears-before-check") else whose + clear:
            self.m.store(ENTRY[e], word, value)
        self.kinds = self.kinds[:e] + (kind,) + self.kinds[e + 1:]
        return e, kind, None, None

    def set_open(self, state, granules):
        """The open version's granules; begun where there is none yet. Not flushed."""
        e, kind, committed, opened = state
        if opened and opened[1] == granules:
            return
        if opened:
            self.set_granules(e, opened[0], granules)
            return
        at = A if committed is None else B if committed[0] == A else A
        epoch = (at, (kind, self.committed + 1))
        steps = [(at + 1, granules), (at + 2, granules)]
        steps = steps + [epoch] if self.rule("begin.bits-before-epoch") else [epoch] + steps
        if self.rule("begin.invalidates-first"):
            steps = [(at, 0)] + steps
        for word, value in steps:
            self.m.store(ENTRY[e], word, value)

    def set_granules(self, e, at, granules):
        self.m.store(ENTRY[e], at + 1, granules)
        self.m.store(ENTRY[e], at + 2, granules)

    def write_undo(self, piece, state, owed):
        block, _, bits, fresh, _, thread = piece
        e, _, committed, opened = state
        self.extend_physical()
        logged = opened[1] if opened else 0
        if not opened and committed and not self.rule("undo.starts-with-no-bits"):
            logged = committed[1]
        missing = bits & ~fresh & ~logged
        if missing and logged:
            missing = ~fresh & ~logged & (1 << GRANULES) - 1
        if missing:
            for g in range(GRANULES):
                if missing >> g & 1:
                    self.m.store(LOG[e][g], 0, self.m.now(HOME[block][g])[0])
                    self.flush(LOG[e][g], "undo.preimage.flush", thread)
            self.fence("undo.preimage.fence", thread)       # or the bit restores garbage
            self.set_open(state, logged | missing)
            self.flush(ENTRY[e], "undo.bit.flush", thread)
            self.fence("undo.bit.fence", thread)            # or nothing restores the file
        self.store_file(piece, bits)
        return owed and not missing

    def write_map(self, piece, state, owed):
        """Redo: to the log. Alternate: to the home without the committed copy. Fresh granules to the file."""
        block, new, bits, fresh, _, thread = piece
        e, kind, committed, opened = state
        committed_in_log = self.committed_in_log(state) & ~fresh
        alternate = self.policy == "alternate"
        from_log = committed_in_log if self.rule("alternate.flips-from-committed") else self.in_log(state)
        to_file = bits & (fresh | from_log) if alternate else bits & fresh
        to_log = bits & ~to_file
        whole = {}                                          # parts of granules are filled up from the live copy
        for g in range(GRANULES):
            if bits >> g & 1:
                live, first = self.live(block, g, state), (block * GRANULES + g) * 2
                filled = tuple(live[i] if first + i < self.size else 0 for i in (0, 1))
                whole.update({g * 2 + i: new.get(g * 2 + i, filled[i]) for i in (0, 1)})
        if to_log & committed_in_log and self.rule("redo.checkpoints"):
            self.copy_to_file(block, e, committed_in_log, "redo", thread)
            if self.rule("redo.clears-committed-bit"):
                left = committed[1] & ~committed_in_log
                self.set_granules(e, committed[0], left)
                self.flush(ENTRY[e], "redo.clear.flush", thread)
                self.fence("redo.clear.fence", thread)
                state = e, kind, (committed[0], left), opened
                committed_in_log = 0
        self.extend_physical()
        base = opened[1] if opened else committed_in_log
        for g in range(GRANULES):
            if to_log >> g & 1:
                self.store_data(LOG[e][g], (whole[g * 2], whole[g * 2 + 1]), piece)
        self.store_file((block, whole) + piece[2:], to_file)
        self.set_open(state, base & ~to_file | to_log)
        return owed

    def extend_physical(self):
        """Before anything is stored in the file's own blocks above its physical size."""
        if self.physical() < CAPACITY:
            self.ftruncate(CAPACITY)
            self.fdatasync("extend.fdatasync")

    def flush_dirty(self, block, name, thread):
        """What a pending word named: its dirty lines, where they live, and its entry."""
        state, bits = self.state(block), self.unflushed[block]
        self.unflushed = tuple(0 if b == block else u for b, u in enumerate(self.unflushed))
        for g in range(GRANULES):
            if bits >> g & 1:
                self.flush(LOG[state[0]][g] if self.in_log(state) >> g & 1 else HOME[block][g],
                           f"pending.{name}.data.flush", thread)
        if state:
            self.flush(ENTRY[state[0]], f"pending.{name}.entry.flush", thread)

    # --- moving committed granules to the file
    def copy_to_file(self, block, e, granules, name, thread):
        self.extend_physical()
        for g in range(GRANULES):
            if granules >> g & 1:
                self.m.store(HOME[block][g], 0, self.m.now(LOG[e][g])[0])
                self.flush(HOME[block][g], name + ".copy.flush", thread)
        self.fence(name + ".copy.fence", thread)

    def checkpoint(self, block):
        """Called by the background thread, which passes the gate like any other thread."""
        self.enter(BACKGROUND)
        state = self.state(block)
        if state and not state[3]:
            self.checkpoint_block(block, state, BACKGROUND)

    def checkpoint_block(self, block, state, thread):
        e = state[0]
        below = sum(1 << g for g in range(GRANULES) if (block * GRANULES + g) * 2 < self.committed_size)
        moving = self.committed_in_log(state) & below
        if moving:
            self.copy_to_file(block, e, moving, "checkpoint", thread)
        self.m.store(ENTRY[e], CHECK, 0)                    # free: one word
        self.flush(ENTRY[e], "free.flush", thread)
        self.fence("free.fence", thread)
        self.free += (e,)

    # --- commit
    def sync(self, thread=0):
        if not self.dirty:
            return
        if self.solo != thread:
            self.revoke()
        self.sync_begins()
        for word, block in enumerate(self.pending):
            if block is not None:
                self.flush_dirty(block, "sync", thread)
        self.pending = (None,) * len(self.pending)
        self.fence("sync.before-slot.fence", thread)
        self.store_slot(self.committed + 1, "sync.slot.flush", thread)
        self.fence("sync.after-slot.fence", thread)
        self.committed += 1
        self.committed_size, self.dirty = self.size, False
        self.grant(thread)
        self.sync_returns()

    def store_slot(self, epoch, name, thread=0):
        slot = SLOT[epoch % SLOTS if self.rule("slot.two") else 0]
        words = [(epoch), self.size, (epoch, self.size)]    # the model's check is what it guards
        words = list(enumerate(words + words))
        if not self.rule("slot.check-last"):
            words.reverse()
        for word, value in words:
            self.m.store(slot, word, value)
        self.flush(slot, name, thread)

    def last_slot(self):
        """(epoch, size) of the highest sound copy."""
        found = []
        for i, unit in enumerate(SLOT):
            words = self.m.now(unit)
            for copy in (words[:3], words[3:]):
                if copy[2] == copy[:2] and (copy[0] % SLOTS == i or "slot.two" in self.off):
                    found.append(copy[:2])
        if not found:
            raise LookupError("no valid commit slot")
        return max(found)

    # --- open, close
    def open(self):
        """Recovers if necessary; the first write then creates a journal."""
        self.recover()
        self.create()

    def create(self):
        self.fdatasync("create.fdatasync")                  # the program that wrote the file may not have done it
        # A new file, and its folder: durable with its header, which says creating, and with its zeros.
        self.id = 3 - self.m.now(HEADER)[1] if self.m.now(HEADER)[1] in (1, 2) else 1
        self.m.replace(HEADER, ("creating", self.id))
        for unit in SLOT:
            self.m.replace(unit, (0,) * 6)
        for unit in ENTRY:
            self.m.replace(unit, (0,) * 8)
        for unit in itertools.chain(*LOG):
            self.m.replace(unit, ((9, 9),))
        self.free, self.kinds = tuple(reversed(range(ENTRIES))), (None,) * ENTRIES
        self.committed, self.size = 1, self.physical()
        self.committed_size = self.stale_end = self.size
        self.pending, self.unflushed = (None,) * self.config.words, (0,) * BLOCKS
        self.solo, self.writer, self.dirty = None, None, False
        self.store_slot(1, "create.slot.flush")             # the size: the physical one may grow before the first SYNC
        self.fence("create.slot.fence", 0)
        if self.rule("create.mark-before-active"):
            self.set_mark(self.id, "create.mark.fsync")
        self.set_header("active", "create.header")
        if "create.mark-before-active" in self.off:
            self.set_mark(self.id, "create.mark.fsync")

    def set_header(self, state, name):
        self.m.store(HEADER, 0, state)
        self.flush(HEADER, name + ".flush", 0)
        self.fence(name + ".fence", 0)

    def set_mark(self, value, name):
        self.m.store(MARK, 0, value)
        self.fdatasync(name)

    def close(self):
        self.sync()
        for block in range(BLOCKS):
            state = self.state(block)
            if state:
                self.checkpoint_block(block, state, 0)
        if self.physical() != self.size:
            self.ftruncate(self.size)
        self.fdatasync("close.fdatasync")
        self.end("close")

    def end(self, name):
        """Nothing replays the journal from here on; then nothing says that there is one; then there is none."""
        steps = [lambda: self.set_header("clean", name + ".clean"), lambda: self.set_mark(0, name + ".mark.fsync")]
        for step in steps if self.rule(name + ".clean-before-mark") else reversed(steps):
            step()
        self.m.store(HEADER, 0, 0)                          # removed, but not durably: it may come back

    # --- recovery: at most the process may have died, so that what it reads is perhaps in a cache only
    def recover(self):
        state, journal = self.m.now(HEADER)
        mark = self.m.now(MARK)[0]
        if state == 0 and mark:
            raise LookupError("conflict: a mark without a journal")
        if state == 0:
            return
        if mark and mark != journal:
            raise LookupError("conflict: the mark of another journal")
        if state in ("creating", "clean"):
            self.end("leftover")                            # stored again: what says clean may be in a cache only
            return
        if not mark:
            raise LookupError("conflict: a journal without a mark")
        committed, size = self.last_slot()
        moves = self.check_entries(committed, size)
        for unit in SLOT:
            self.flush(unit, "recover.read.flush", 0)
        self.fence("recover.read.fence", 0)
        if self.physical() < size:
            self.ftruncate(size)
        for block, g, value in moves:
            self.m.pwrite(HOME[block][g], 0, value)
        self.ftruncate(size)                                # also where it is: a flush that failed may have forgotten it
        self.fdatasync("recover.fdatasync")
        self.end("recover")

    def check_entries(self, committed, size):
        """Everything is checked before anything is changed: (block, granule, value) for the file."""
        moves, owned = [], set()
        for e, words in self.used():
            block = words[BLOCK]
            if words[CHECK] != block + 1:
                raise LookupError(f"damage: entry {e} has a wrong check")
            if block in owned:
                raise LookupError(f"damage: two entries are of block {block}")
            owned.add(block)
            versions = [(words[at],) + words[at + 1:at + 3] for at in VERSION if words[at]]
            for (kind, epoch), granules, mirror in versions:
                if epoch > committed + 1:
                    raise LookupError(f"damage: entry {e} has epoch {epoch}")
                if (kind == "undo") == (epoch > committed):
                    self.check_mirror(e, block, granules ^ mirror, size)
            undo = [v for v in versions if v[0][0] == "undo" and v[0][1] > committed]
            held = [v for v in versions if v[0][0] == "map" and v[0][1] <= committed]
            hold = undo[0] if undo else max(held, key=lambda v: v[0][1], default=None)
            for g in range(GRANULES):
                if hold and hold[1] >> g & 1 and (block * GRANULES + g) * 2 < size:
                    moves.append((block, g, self.m.now(LOG[e][g])[0]))
        return moves

    def check_mirror(self, e, block, differing, size):
        """A crash between granules and mirror leaves bits that mean nothing: file and log have the same bytes then, as far
        as they count: what lies above C's size goes when recovery cuts the file, before the new size is durable."""
        for g in range(GRANULES):
            if differing >> g & 1:
                end = min(self.physical(), size) if self.rule("recover.compares-below-size") else self.physical()
                there = max(0, end - (block * GRANULES + g) * 2)
                same = self.m.now(HOME[block][g])[0][:there] == self.m.now(LOG[e][g])[0][:there]
                if not same or not self.rule("recover.compares-bytes"):
                    raise LookupError(f"damage: granules of entry {e} do not fit their mirror")


# With one of these off: how the protocol could as easily be read, or written.
HOLES = {
    "slot.check-last": "the words of a slot are stored in another order",
    "slot.two": "one commit slot",
    "begin.invalidates-first": "a version is overwritten under its old epoch",
    "begin.bits-before-epoch": "the epoch is valid before the old bits are gone",
    "redo.checkpoints": "redo overwrites the log block that has the committed copy",
    "redo.clears-committed-bit": "redo copies a granule to the file and overwrites the log copy, the committed bit still set",
    "undo.starts-with-no-bits": "undo 'copies the newer bitmap'",
    "undo.preimage.fence": "undo: pre-image and bit share one fence",
    "alternate.flips-from-committed": "alternate: a second write of an epoch flips again",
    "switch.checkpoints": "a policy switch changes the entry in place",
    "reuse.clears-versions": "a reused entry keeps the old block's versions",
    "reuse.clears-before-check": "a reused entry clears the old versions last",
    "grow.writes-zeros": "growing relies on sizes alone",
    "extend.fdatasync": "the physical size grows without fdatasync",
    "recover.read.flush": "recovery after a mere kill relies on what is still only in a cache",
    "recover.compares-bytes": "granules that do not fit their mirror are always damage",
    "recover.compares-below-size": "and bytes above C's size, which recovery cuts off, are compared too",
    "create.mark-before-active": "the journal is active before the file says that it has one",
    "close.clean-before-mark": "the mark goes before the journal is clean",
    "recover.clean-before-mark": "the same after a recovery",
    "leftover.clean-before-mark": "the same where a journal was found clean",
    "solo.revoke.fence": "a second thread comes to a file that one had alone, without a fence of the first",
}
