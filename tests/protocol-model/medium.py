"""The medium: lines with versions, of which a crash keeps one each; and what protocols have in common.

Sizes and offsets are in halves of a granule, so that a write or a size can split one.
"""
import itertools

BLOCKS, GRANULES = 2, 2
CAPACITY = BLOCKS * GRANULES * 2
SEEN = set()                                # the rules that were asked for


class Layout:
    """The lines of one format: a cache line of a mapped journal or file, or a page or an inode's word of the kernel's."""

    def __init__(self):
        self.names = []

    def line(self, name):
        self.names.append(name)
        return len(self.names) - 1


class Medium:
    """Per line the versions from the last guaranteed to the newest; a crash picks one for each line."""

    def __init__(self, image, kernel):
        self.versions = [(words,) for words in image]
        self.marked = {}                    # (thread, line) -> index of the version that the thread's next fence guarantees
        self.kernel = frozenset(kernel)     # lines that only fdatasync makes durable
        self.written = frozenset()          # other lines written by system calls since the last fdatasync
        self.forgotten = frozenset()        # lines whose write-back failed: the kernel considers them clean
        self.on_store = None

    def copy(self):
        twin = Medium((), self.kernel)
        twin.versions, twin.marked = list(self.versions), dict(self.marked)
        twin.written, twin.forgotten = self.written, self.forgotten
        return twin

    def now(self, unit):
        return self.versions[unit][-1]

    def store(self, unit, word, value):
        old = self.versions[unit][-1]
        self.forgotten -= {unit}
        if old[word] != value:
            self.versions[unit] += (old[:word] + (value,) + old[word + 1:],)
            if self.on_store:
                self.on_store(unit)

    def pwrite(self, unit, word, value):
        self.written |= {unit}
        self.store(unit, word, value)

    def set_inode(self, unit, value):
        """The size, or an attribute."""
        self.store(unit, 0, value)

    def replace(self, unit, words):
        """A line of a file that did not exist."""
        self.versions[unit] = (words,)
        self.marked = {key: index for key, index in self.marked.items() if key[1] != unit}

    def zero(self, unit, start):
        """What lies above the end of the file, in all versions."""
        def zeroed(words):
            return (tuple(0 if i >= start else v for i, v in enumerate(words[0])),) + words[1:]
        self.versions[unit] = tuple(zeroed(words) for words in self.versions[unit])

    def flush(self, unit, thread=0):
        self.marked[thread, unit] = len(self.versions[unit]) - 1

    def fence(self, thread=0):
        for (_, unit), index in [item for item in self.marked.items() if item[0][0] == thread]:
            self.keep(unit, index)
        self.marked = {key: index for key, index in self.marked.items() if key[0] != thread}

    def keep(self, unit, index):
        self.versions[unit] = self.versions[unit][index:]
        for key, marked in self.marked.items():
            if key[1] == unit:
                self.marked[key] = max(marked - index, 0)

    def fdatasync(self, units, fails=False):
        """All of a file's lines that system calls have written. Where it fails, the kernel forgets that pages are dirty;
        not so inodes, which are in the file system's own journal."""
        dirty = units & (self.kernel | self.written)
        if fails:
            self.forgotten |= {unit for unit in dirty & self.written if len(self.versions[unit]) > 1}
        self.written -= units
        if fails:
            return
        for unit in dirty - self.forgotten:
            self.keep(unit, len(self.versions[unit]) - 1)

    def images(self, newest=None):
        """All crash images; with `newest`, those that hold that line's newest version (the others came earlier)."""
        return itertools.product(*[v[-1:] if unit == newest else v for unit, v in enumerate(self.versions)])

    def key(self):
        return tuple(self.versions), tuple(sorted(self.marked.items())), self.written, self.forgotten


class Protocol:
    """Named steps, of which `off` leaves some out; and the file's own lines, which every format has."""

    HOME = PHYS = FILE = None               # lines: granules of each block; the inode's size; all of the file's

    def __init__(self, medium, config, off=frozenset()):
        self.m, self.config, self.off = medium, config, off
        self.sync_begins = self.sync_returns = lambda: None

    def copy(self, medium):
        twin = type(self)(medium, self.config, self.off)
        own = {name: value for name, value in self.__dict__.items() if name not in ("m", "sync_begins", "sync_returns")}
        twin.__dict__.update(own)
        return twin

    def rule(self, name):
        SEEN.add(name)
        return name not in self.off

    def physical(self):
        return self.m.now(self.PHYS)[0]

    def ftruncate(self, size):
        """The kernel shows zeros between an old end and a new one, whatever lay there: after a crash, too, unless it was
        cut just before. Then anything may be seen, which is more than a file system does."""
        old = self.physical()
        if size > old and max(words[0] for words in self.m.versions[self.PHYS]) <= old:
            for block, g in itertools.product(range(BLOCKS), range(GRANULES)):
                self.m.zero(self.HOME[block][g], old - (block * GRANULES + g) * 2)
        for block, g in itertools.product(range(BLOCKS), range(GRANULES)):
            first = (block * GRANULES + g) * 2
            value = self.m.now(self.HOME[block][g])[0]
            zeroed = tuple(0 if min(old, size) <= first + i < max(old, size) else v for i, v in enumerate(value))
            self.m.pwrite(self.HOME[block][g], 0, zeroed)
        self.m.set_inode(self.PHYS, size)

    def pwrite_half(self, at, value):
        """One half of a granule, by a system call: may make the file longer."""
        if at >= self.physical():
            self.ftruncate(at + 1)
        unit = self.HOME[at // (GRANULES * 2)][at // 2 % GRANULES]
        old = self.m.now(unit)[0]
        self.m.pwrite(unit, 0, old[:at % 2] + (value,) + old[at % 2 + 1:])

    def plain(self):
        """The file as a program without Famio sees it."""
        halves = [half for block in self.HOME for unit in block for half in self.m.now(unit)[0]]
        return tuple(halves[:self.physical()])
