"""Journals of records: what is appended, synced and used again, and in which order. Words: docs/format.md.

The code: crates/famio/src/journal/records, file/records, recovery/formats/records.rs. Change this first. Here a block is a granule,
a record holds at most two, in a page behind its head, and segments have 4 or 5 pages.
"""
import itertools

from medium import BLOCKS, CAPACITY, GRANULES, Layout, Protocol

LAYOUT = Layout()
line = LAYOUT.line
LENGTHS = (4, 5, 4)                                                 # pages of each segment, when it is there
HEADER = line("header")                                             # (state, segments, written in this boot)
PAGE = [[line(f"page{s}.{p}") for p in range(n)] for s, n in enumerate(LENGTHS)]
HOME = [[line(f"file{b}[{g}]") for g in range(GRANULES)] for b in range(BLOCKS)]
PHYS = line("physical size")
MARK = line("mark")
FILE = frozenset(itertools.chain(*HOME)) | {PHYS, MARK}
JOURNAL = frozenset(itertools.chain(*PAGE)) | {HEADER}
KERNEL = JOURNAL | FILE                                             # nothing is persistent before its fdatasync
ALL = BLOCKS * GRANULES                                             # granules of the file
PER_RECORD = 2

# Contents of a page: tuples of numbers, so that their hash is the same everywhere.
ZERO, TORN = (0,), (9,)
SEGMENT, RECORD, DATA = 1, 2, 3
PART, COMMIT, NOTE = 1, 2, 3


def check(page):
    return hash(page)


def head_of_segment(place, generation, committed, continues, previous, behind):
    return SEGMENT, place, generation, committed, continues, previous, behind


FIELDS = "kind generation epoch place committed tail size cut pages previous behind list new old".split()


class Head:
    """The head page of a record."""

    def __init__(self, page):
        self.__dict__.update(zip(FIELDS, page[1:]))


def first_image():
    image = [(0,)] * len(LAYOUT.names)
    image[HEADER] = (0, 0, 0)
    for unit in itertools.chain(*PAGE):
        image[unit] = (ZERO,)
    for unit in HOME[0]:
        image[unit] = ((3, 3),)
    for unit in HOME[1]:
        image[unit] = ((9, 9),)
    image[PHYS] = (GRANULES * 2,)
    return tuple(image)


def after_power_cut(image):
    """The machine has booted again."""
    state, count, _ = image[HEADER]
    return image[:HEADER] + ((state, count, 0),) + image[HEADER + 1:]


class Records(Protocol):
    HOME, PHYS, FILE = HOME, PHYS, FILE

    def __init__(self, medium, config, off=frozenset()):
        super().__init__(medium, config, off)
        self.poisoned = False

    def reset(self):
        self.size = self.committed_size = self.cut = self.physical()
        self.low = CAPACITY * 9                     # the lowest size since the file itself was cut: none
        self.dirty = False
        self.held, self.open_ = (None,) * ALL, frozenset()      # what buffers hold; granules of the open epoch
        self.waiting, self.queue = (), ()           # checkpointing: granules for the next pass, and of this one
        self.target = self.finished = 0
        self.under_way = self.overwritten = self.was_cut = False
        # The log.
        self.segments = ()                          # (generation, highest epoch) of each
        self.current = self.anchor = None           # (segment, next page); the segment with the last durable commit or note
        self.generation = self.previous = self.committed = self.checkpointed = self.tail = 0
        self.begun = False
        self.log_size = self.log_committed_size = self.log_cut = self.size

    def key(self):
        own = dict(self.__dict__)
        for name in ("m", "config", "off", "sync_begins", "sync_returns"):
            own.pop(name)
        return tuple(sorted(own.items(), key=lambda item: item[0]))

    # --- what reaches the medium
    def sync_file(self, name, units, fails=False):
        if self.rule(name):
            self.m.fdatasync(units, fails)

    def put_page(self, segment, page, contents):
        unit = PAGE[segment][page]
        if self.m.now(unit)[0] != contents:
            self.m.written |= {unit}
            # Torn first, as far as a power cut is concerned: a reader in this boot sees whole pages.
            self.m.versions[unit] += ((TORN,),)
        self.m.pwrite(unit, 0, contents)

    def set_header(self, name, state=None, count=None):
        """One copy, fdatasync, the other, fdatasync: as a whole. All of the journal's file is synced with it."""
        old = self.m.now(HEADER)
        words = (old[0] if state is None else state, old[1] if count is None else count, 1)
        self.m.forgotten -= {HEADER}
        self.m.written |= {HEADER}
        if words != old:
            self.m.versions[HEADER] += (words,)
            if self.m.on_store:
                self.m.on_store(HEADER)
        self.sync_file(name, JOURNAL)

    def suspect(self):
        if self.m.now(HEADER)[0] == "active":
            self.set_header("suspect.header.fdatasync", state="suspect")

    def set_mark(self, value, name):
        self.m.set_inode(MARK, value)
        self.sync_file(name, FILE)

    # --- reading and writing: nothing of it reaches the medium
    def bounds(self):
        return min(self.physical(), self.low, self.size)

    def live(self, granule):
        if self.held[granule] is not None:
            return self.held[granule]
        value = self.m.now(HOME[granule // GRANULES][granule % GRANULES])[0]
        readable = min(self.physical(), self.low)
        return tuple(v if granule * 2 + i < readable else 0 for i, v in enumerate(value))

    def contents(self):
        return tuple(half for granule in range(ALL) for half in self.live(granule))[:self.size]

    def put(self, start, end, value, thread=0, large=False):
        touched = range(start // 2, (end + 1) // 2)
        new = {}
        for granule in touched:
            live = self.live(granule)
            if self.held[granule] is None:          # filled up from the file, as far as that is to be seen
                live = tuple(v if granule * 2 + i < self.bounds() else 0 for i, v in enumerate(live))
            new[granule] = tuple(value if start <= granule * 2 + i < end else live[i] for i in (0, 1))
        if not self.reserve_or_make_room(self.open_ | set(touched)):
            return "refused"
        self.dirty = True
        for granule, halves in new.items():
            self.hold(granule, halves)
            self.open_ |= {granule}
        self.size = max(self.size, end)
        return None

    def hold(self, granule, halves):
        self.held = self.held[:granule] + (halves,) + self.held[granule + 1:]

    def resize(self, size, thread=0):
        if size == self.size:
            return None
        if not self.reserve_or_make_room(self.open_):
            return "refused"
        self.dirty = True
        if size < self.size:
            self.cut, self.low = min(self.cut, size), min(self.low, size)
            for granule in range(size // 2, ALL):   # what lies above leaves the buffers; the rest of a granule is zeros
                if granule * 2 >= size:
                    self.hold(granule, None)
                    self.open_ -= {granule}
                elif self.held[granule] is not None and size % 2:
                    self.hold(granule, (self.held[granule][0], 0))
        self.size = size
        return None

    # --- room in the journal
    def is_free(self, index):
        generation, last_epoch = self.segments[index]
        needed = self.current is not None and self.current[0] == index
        if self.rule("reuse.keeps-anchor"):
            needed |= self.anchor == index
        tail = self.tail if self.rule("reuse.tail-durable") else self.checkpointed
        return generation == 0 or (not needed and last_epoch <= tail)

    def free_segment(self):
        return next((i for i in range(len(self.segments)) if self.is_free(i)), None)

    def records_in(self, index, page):
        return max(0, LENGTHS[index] - 1 - page) // 2       # the last page is for a note

    def room(self):
        here = self.records_in(*self.current) if self.current else 0
        return here + sum(self.records_in(i, 1) for i in range(len(self.segments)) if self.is_free(i))

    def reserve(self, granules):
        needed = max(1, -(-len(granules) // PER_RECORD))
        while self.room() < needed:
            if self.note_would_free():
                self.note()
            elif len(self.segments) < len(LENGTHS):
                self.prepare()
            else:
                return False
        return True

    def reserve_or_make_room(self, granules):
        if self.reserve(granules):
            return True
        for _ in range(2):
            self.checkpoint_round()
            self.end_pass()
        return self.reserve(granules)

    def prepare(self):
        """A segment more: zeros first, then the header counts it."""
        index = len(self.segments)
        for page in range(LENGTHS[index]):
            # Where the file ended there may be anything, until the zeros are durable.
            self.m.replace(PAGE[index][page], (TORN,))
            self.m.pwrite(PAGE[index][page], 0, ZERO)
        self.sync_file("prepare.fdatasync", JOURNAL)
        self.set_header("prepare.header.fdatasync", count=index + 1)
        self.segments += ((0, 0),)

    # --- appending
    def record(self, kind, granules, epoch, size, cut):
        segment, page = self.current
        generation, last_epoch = self.segments[segment]
        self.segments = self.segments[:segment] + ((generation, max(last_epoch, epoch)),) + self.segments[segment + 1:]
        pages = 2 if granules else 1
        now = [self.m.now(unit)[0] for unit in PAGE[segment]]
        data = (DATA,) + tuple(half for granule in granules for half in self.held[granule])
        behind = check(now[page + pages]) if page + pages < len(now) else 0
        old = check(now[page + 1]) if granules else 0
        head = (RECORD, kind, generation, epoch, (segment, page), self.committed, self.checkpointed, size, cut, pages,
                self.previous if self.rule("record.chained") else 0, behind, tuple(granules),
                check(data) if granules else 0, old)
        self.put_page(segment, page, head)
        if granules:
            self.put_page(segment, page + 1, data)
        self.previous = check(head)
        self.current = segment, page + pages

    def enter(self):
        index = self.free_segment()
        self.generation += 1
        self.segments = self.segments[:index] + ((self.generation, self.segments[index][1]),) + self.segments[index + 1:]
        behind = check(self.m.now(PAGE[index][1])[0])
        self.put_page(index, 0, head_of_segment(index, self.generation, self.committed, int(self.begun),
                                                self.previous if self.rule("record.chained") else 0, behind))
        self.current = index, 1

    def note(self):
        self.record(NOTE, (), self.committed, self.log_committed_size, self.log_committed_size)
        self.log_flush("note.fdatasync")

    def note_would_free(self):
        if self.current is None or self.current[1] >= LENGTHS[self.current[0]] or self.begun:
            return False
        others = [i for i in range(len(self.segments)) if i != self.current[0]]
        return any(not self.is_free(i) and self.segments[i][1] <= self.checkpointed for i in others)

    def log_flush(self, name, fails=False):
        self.sync_file(name, JOURNAL, fails)
        if not fails:
            self.tail, self.anchor = self.checkpointed, self.current[0]

    def sync(self, thread=0, fails=False):
        if not self.dirty:
            return None
        granules = sorted(self.open_)
        cut = min(self.cut, self.size)
        self.dirty = False
        if not granules and self.cut >= self.committed_size and self.size == self.committed_size:
            return None                             # nothing was changed after all
        self.sync_begins()
        epoch, cut_left, left = self.committed + 1, min(self.log_cut, cut), granules
        while True:
            if self.current is None or not self.records_in(*self.current):
                self.enter()
            these, left = left[:PER_RECORD], left[PER_RECORD:]
            self.record(PART if left else COMMIT, these, epoch, self.size, cut_left if self.rule("record.cut") else self.size)
            cut_left, self.begun = self.size, True
            if not left:
                break
        self.log_cut = self.size
        if self.committed and self.m.now(HEADER)[0] == "marked":
            self.m.pwrite(HEADER, 0, "active")      # from the second commit on, by its flush
        self.log_flush("sync.fdatasync", fails)
        if fails:                                   # rule 9: what was not written may be forgotten; no more commits
            self.suspect()
            return "failed"
        self.committed, self.log_committed_size, self.begun = epoch, self.size, False
        self.log_size = self.committed_size = self.size
        self.waiting += tuple(granules)
        self.open_, self.cut = frozenset(), self.size
        if self.finished:
            self.checkpointed, self.finished = max(self.checkpointed, self.finished), 0
        self.sync_returns()
        return None

    # --- checkpointing
    def background(self, op):
        if op == "k":
            self.checkpoint_round()
        elif op == "j":
            self.checkpoint_round(1)
        elif op in "eE":
            if op == "E":
                self.checkpoint_round()
            self.end_pass()
        elif op == "h":
            self.shrink()
        elif op == "f":
            return self.sync(fails=True)
        elif op == "g" and self.under_way and not self.queue:
            self.end_pass(fails=True)
            return "failed"
        return None

    def checkpoint_round(self, most=ALL):
        if self.cut < self.committed_size and self.rule("checkpoint.waits-for-cut"):
            return                                  # the open epoch has cut the file
        if self.low <= CAPACITY and self.rule("checkpoint.applies-cut"):
            if self.low < self.physical():
                self.ftruncate(self.low)
            self.low, self.was_cut = CAPACITY * 9, True
        if not self.under_way and (self.waiting or self.was_cut):
            self.queue, self.waiting = tuple(sorted(set(self.waiting), reverse=True)), ()
            self.target, self.under_way = self.committed, True
            self.overwritten = self.was_cut = False
        for granule in [self.queue[-1 - i] for i in range(min(most, len(self.queue)))]:
            self.checkpoint_granule(granule)
            self.queue = self.queue[:-1]

    def checkpoint_granule(self, granule):
        if self.held[granule] is None:
            return
        if granule in self.open_ and self.rule("checkpoint.only-committed"):
            self.overwritten = True
            return
        for i, half in enumerate(self.held[granule]):
            if granule * 2 + i < self.committed_size:
                self.pwrite_half(granule * 2 + i, half)
        if granule not in self.open_:
            self.hold(granule, None)

    def end_pass(self, fails=False):
        if not self.under_way or self.queue:
            return
        self.sync_file("checkpoint.fdatasync", FILE, fails)
        if fails:
            self.suspect()
            return
        self.under_way = False
        if self.overwritten and self.rule("checkpoint.overwritten-waits"):
            self.finished = self.target             # their committed copies are in the journal alone, until the next commit
        else:
            self.checkpointed = max(self.checkpointed, self.target)

    def shrink(self):
        """With the gate closed, nothing open, nothing to checkpoint."""
        waits = self.dirty or self.waiting or self.under_way or any(h is not None for h in self.held)
        if waits or self.current is None:
            return
        if self.note_would_free():
            self.note()
        free = self.free_segment()
        if free is not None and free < self.current[0] and self.checkpointed >= self.committed:
            self.enter()
            self.record(NOTE, (), self.committed, self.log_committed_size, self.log_committed_size)
            self.log_flush("note.fdatasync")
        count = len(self.segments)
        while count > 1 and self.is_free(count - 1):
            count -= 1
        if count < len(self.segments):
            if self.rule("shrink.header-first"):
                self.set_header("shrink.header.fdatasync", count=count)
            for page in itertools.chain(*PAGE[count:len(self.segments)]):
                self.m.pwrite(page, 0, TORN)        # gone; until the header counts it again, anything
            if "shrink.header-first" in self.off:
                self.set_header("shrink.header.fdatasync", count=count)
            self.segments = self.segments[:count]

    # --- open, close
    def open(self):
        self.recover()
        self.create()

    def create(self):
        self.sync_file("create.fdatasync", FILE)
        # A new file, and its folder: durable with its header, by which the mark decides.
        self.m.replace(HEADER, ("marked", 0, 1))
        for unit in itertools.chain(*PAGE):
            self.m.replace(unit, (ZERO,))
        self.reset()
        self.prepare()
        self.set_mark(1, "create.mark.fsync")

    def close(self):
        self.sync()
        if self.low <= CAPACITY and self.low < self.physical():
            self.ftruncate(self.low)
        self.low = CAPACITY * 9
        for granule in range(ALL):
            self.checkpoint_granule(granule)
        self.ftruncate(self.committed_size)
        self.sync_file("close.fdatasync", FILE)
        self.end("close")

    def end(self, name):
        if self.m.now(HEADER)[0] != "marked" or name != "close":
            self.set_header(name + ".clean.fdatasync", state="clean")
        self.set_mark(0, name + ".mark.fsync")
        self.m.pwrite(HEADER, 0, 0)                 # removed, but not durably

    # --- recovery
    def recover(self):
        state, count, same_boot = self.m.now(HEADER)
        mark = self.m.now(MARK)[0]
        if state == 0 and mark:
            raise LookupError("conflict: a mark without a journal")
        if state == 0:
            return
        if state == "clean" or state == "marked" and not mark:
            self.end("leftover")
            return
        if not mark:
            raise LookupError("conflict: a journal without a mark")
        scan = Scan(self, count, bool(same_boot) and state != "suspect")
        scan.run()
        if self.rule("recover.writes-last"):
            for segment, page in scan.last:         # in a cache only, perhaps, or forgotten
                self.m.forgotten -= {PAGE[segment][page]}
                self.rewrite(segment, page)
        if self.rule("recover.erases"):
            for segment, page in scan.erase:
                self.put_page(segment, page, ZERO)
        self.set_header("recover.header.fdatasync")
        if state == "marked":
            self.sync_file("recover.mark.fsync", FILE)
        for record, data in scan.replay:
            if record.cut < self.physical() and self.rule("recover.cuts"):
                self.ftruncate(record.cut)
            if record.size != self.physical():
                self.ftruncate(record.size)
            for i, granule in enumerate(record.list):
                for half in (0, 1):
                    if granule * 2 + half < record.size:
                        self.pwrite_half(granule * 2 + half, data[1 + i * 2 + half])
        if scan.size is not None and scan.size != self.physical():
            self.ftruncate(scan.size)
        self.sync_file("recover.fdatasync", FILE)
        self.end("recover")

    def rewrite(self, segment, page):
        """The same bytes: dirty again, as far as the kernel is concerned."""
        unit = PAGE[segment][page]
        self.m.written |= {unit}
        if self.m.on_store:
            self.m.on_store(unit)


class Scan:
    """What a journal holds: the committed epochs that the file may lack, or why it cannot be told."""

    def __init__(self, famio, count, strict):
        self.famio, self.strict = famio, strict
        self.pages = [[famio.m.now(unit)[0] for unit in PAGE[segment]] for segment in range(count)]
        self.last, self.erase, self.replay, self.size = [], [], [], None

    def damage(self, what):
        raise LookupError(f"damage: {what}")

    def run(self):
        self.entered, self.unknown = [], []
        for segment, pages in enumerate(self.pages):
            if pages[0][0] == SEGMENT and pages[0][1] == segment:
                self.entered.append(pages[0])
            elif pages[0] != ZERO:
                if self.strict:
                    self.damage(f"the head of segment {segment}")
                self.unknown.append(segment)
        self.entered.sort(key=lambda head: head[2])
        start = 0
        while start < len(self.entered):
            broken_in = self.follow(start)
            if broken_in is None:
                return self.conclude(start)
            start = broken_in + 1
        if start > 0 or any(self.proof(segment, 0, 1) for segment in self.unknown):
            self.damage("the last epochs are missing")
        self.erase = [(segment, 0) for segment in self.unknown]
        return None

    def proof(self, segment, page, epoch):
        """Whether a record from here on was written when `epoch` was durable."""
        return any(p[0] == RECORD and Head(p).place == (segment, page + i) and Head(p).committed >= epoch
                   for i, p in enumerate(self.pages[segment][page:]))

    def proves(self, index, page, epoch):
        later = [head[1] for head in self.entered[index + 1:]]
        # A segment that an epoch begins with follows a durable commit or note: one that is missing from the chain.
        begins = self.famio.rule("scan.missing-note")
        return (any(head[3] >= epoch or (begins and head[3] + 1 >= epoch and not head[4])
                    for head in self.entered[index + 1:])
                or self.proof(self.entered[index][1], page, epoch)
                or any(self.proof(segment, 1, epoch) for segment in later)
                or any(self.proof(segment, 0, epoch) for segment in self.unknown))

    def follow(self, start):
        """Follows the chain to its end. The index of the segment where it is broken although more was committed."""
        head = self.entered[start]
        previous, self.committed = head[5], head[3]
        self.tail, self.chain_size, self.records, self.end = None, None, [], (start, 1)
        index = start
        while True:
            _, segment, generation, _, _, _, behind = self.entered[index]
            page = 1
            while True:
                record, why = self.next(segment, page, generation, previous, behind)
                if record is None:
                    break
                if record.committed != self.committed or (self.tail is not None and record.tail < self.tail):
                    self.damage(f"the record at {segment}.{page} is out of its order")
                self.records.append(record)
                previous, behind = check(self.pages[segment][page]), record.behind
                page += record.pages
                if record.kind != PART:
                    self.tail, self.chain_size, self.end = record.tail, record.size, (index, page)
                    self.committed = record.epoch
            if index + 1 < len(self.entered):
                following = self.entered[index + 1]
                if following[2] == generation + 1 and following[5] == previous and following[3] == self.committed:
                    index += 1
                    continue
            if self.proves(index, page, self.committed + 1):
                return index
            if self.strict and why == "broken":
                self.damage(f"the record at {segment}.{page}")
            return None

    def next(self, segment, page, generation, previous, behind):
        pages = self.pages[segment]
        if page >= len(pages):
            return None, "end"
        found = pages[page]
        fits = found[0] == RECORD and Head(found).place == (segment, page)
        if fits and self.famio.rule("record.generation"):
            fits = Head(found).generation == generation
        if not fits or Head(found).previous != previous:
            return None, "absent" if check(found) == behind or found == ZERO else "broken"
        record = Head(found)
        if record.pages == 2:
            data = check(pages[page + 1])
            if data != record.new and self.famio.rule("record.checks-data"):
                return None, "prefix" if data == record.old else "broken"
        return record, None

    def conclude(self, start):
        head = self.entered[start]
        first_whole = head[3] + 1 + head[4]
        chain = True
        if self.tail is None or first_whole > self.tail + 1:
            if head[3] == 0 and (self.committed == 0 or not self.proves(0, 0, 1)):
                chain, self.end = False, (start, 0)
            else:
                self.damage(f"epochs before {first_whole} are missing")
        self.erase = [(segment, 0) for segment in self.unknown]
        segment = self.entered[self.end[0]][1]
        if self.end[1] < len(self.pages[segment]):
            self.erase.append((segment, self.end[1]))
        self.erase += [(head[1], 0) for head in self.entered[self.end[0] + 1:]]
        if not chain:
            return
        self.size = self.chain_size
        for record in self.records:
            if record.epoch == self.committed:
                segment, page = record.place
                self.last += [(segment, page + i) for i in range(record.pages)] + [(segment, 0)]
            if record.kind != NOTE and self.tail < record.epoch <= self.committed:
                pages = self.pages[record.place[0]]
                self.replay.append((record, pages[record.place[1] + 1] if record.pages == 2 else None))


HOLES = {
    "reuse.keeps-anchor": "the segment with the last durable commit or note is used again",
    "reuse.tail-durable": "a segment is used again before a durable record says that it may be",
    "record.chained": "records do not name the one before",
    "record.generation": "records of an earlier use of a segment count",
    "record.checks-data": "pages behind the first have no check",
    "record.cut": "a record has only the size after it",
    "recover.cuts": "replay does not cut",
    "checkpoint.waits-for-cut": "checkpointing goes on while the open epoch has cut the file",
    "checkpoint.applies-cut": "checkpointing does not cut the file first",
    "checkpoint.only-committed": "checkpointing writes what the open epoch wrote",
    "checkpoint.overwritten-waits": "a pass that left overwritten granules frees their journal",
    "shrink.header-first": "segments go before the header says so",
    "recover.writes-last": "recovery relies on what was read, not written again",
    "scan.missing-note": "the chain ends where a note was overwritten",
    "recover.erases": "what did not happen stays",
}
