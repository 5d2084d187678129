#!/usr/bin/env python3
"""Runs the protocols (in_place.py, records.py) through every short operation sequence and every crash state.

    model.py [--quick]            check the protocols as they are
    model.py --holes [NAME ...]   take back one rule at a time: the counterexample
    model.py --mutants [NAME ...] remove one flush, fence or fdatasync at a time: counterexample, or none
    model.py --replay "t1 t6 s w2 s" --config 1 --without grow.writes-zeros
"""
import argparse
import itertools
import multiprocessing
import sys
import time

import in_place
import records
from medium import CAPACITY, GRANULES, SEEN, Medium


class Config:
    def __init__(self, name, module, operations, policies=(None,), words=2, solo=True, depth=(3, 4), after=(1, 2),
                 prefix=""):
        self.name, self.module, self.policies, self.operations = name, module, policies, operations.split()
        self.words, self.solo = words, solo
        self.prefix = prefix.split()                # done first, without crashes
        self.depth, self.after = depth, after       # operations: in all, after a crash; (quick, full)
        self.protocol = in_place.InPlace if module is in_place else records.Records

    def medium(self, image):
        return Medium(image, self.module.KERNEL)

    def first(self):
        """The file was just written by a plain program, without fsync."""
        medium = self.medium(self.module.first_image())
        medium.versions[self.module.PHYS] = (0,), medium.now(self.module.PHYS)
        return medium


# w0 w1 w2: write granule (w2 is beyond the first block: it appends)   p1: right half of granule 1
# v0 v2: the second thread writes   L0: around the cache   t1 t6: set the size   s z: SYNC, by the first or second thread
# k0 k1: checkpoint a block (in place)   U R A: SYNC, then switch policy   c: close and reopen   x: the process dies, reopen
# Records: W: write granule 0 and SYNC   k: checkpoint all of a pass   j: checkpoint one block   e: end the pass
# E: checkpoint all, end the pass   h: free segments   f g: the SYNC, or the end of a pass, with an fdatasync that fails
BASIC = "w0 w1 w2 p1 t1 t6 s k0 k1 c x"
CONFIGS = [
    Config("undo", in_place, BASIC, ["undo"], depth=(3, 5), after=(1, 1)),
    Config("redo", in_place, BASIC, ["redo"], depth=(3, 5), after=(1, 1)),
    Config("alternate", in_place, BASIC, ["alternate"], depth=(3, 5), after=(1, 1)),
    Config("switching", in_place, "w0 w2 s U R A k0 x", ["redo", "undo", "alternate"], depth=(4, 6)),
    Config("large writes, undo", in_place, "w0 w2 L0 L1 s k0 x", ["undo"], solo=False, depth=(3, 5)),
    Config("large writes, redo", in_place, "w0 w2 L0 L1 s k0 x", ["redo"], solo=False, depth=(3, 5)),
    Config("two threads, undo", in_place, "w0 w2 v0 v2 s z k0", ["undo"], depth=(3, 5)),
    Config("two threads, redo", in_place, "w0 w2 v0 v2 s z k0", ["redo"], depth=(3, 5)),
    Config("two threads, alternate", in_place, "w0 w2 v0 v2 s z k0", ["alternate"], depth=(3, 5)),
    Config("two threads, one word", in_place, "w0 w2 v0 v2 s z k0", ["redo"], words=1, depth=(3, 5)),
    Config("records", records, "w0 w1 w3 p1 t1 t6 s k e c x", depth=(3, 4), after=(1, 1)),
    Config("records, reuse", records, "W w3 t1 s E h", depth=(2, 3), after=(0, 0), prefix="W W E W"),
    Config("records, passes", records, "w0 w3 t1 s j e", depth=(3, 4), after=(0, 0)),
    Config("records, failures", records, "w0 w3 t1 s k e f g", depth=(3, 4), after=(0, 1)),
]


class Counterexample(Exception):
    pass


class Search:
    def __init__(self, config, off=frozenset(), depth=3, after=1):
        self.config, self.off, self.depth, self.after = config, frozenset(off), depth, after
        self.names = config.module.LAYOUT.names
        self.states, self.checked, self.killed, self.outcome = {}, set(), set(), {}
        self.images = self.sequences = 0

    def run(self):
        famio = self.config.protocol(self.config.first(), self.config, self.off)
        contents = (3,) * GRANULES * 2
        if not self.config.prefix:
            self.perform(famio, "open", contents, contents, [], self.depth, self.after)
            return self
        for op in ["open"] + self.config.prefix:
            contents = self.expected(op, contents)
            self.apply(famio, op)
        self.explore(famio, contents, contents, ["open"] + self.config.prefix, self.depth, self.after)
        return self

    # --- operations
    def perform(self, famio, op, committed, current, path, left, after):
        """Run one operation with a crash at every store, then go on with every next one."""
        medium, path = famio.m, path + [op]
        accept = {committed, ()} if op == "open" else {committed}
        state = {"current": current, "accept": accept}

        def begins():
            state["accept"] = accept | {state["current"]}

        def returns():
            state["accept"] = {state["current"]}
            self.crash_everywhere(medium, None, state["accept"], path + ["(SYNC returned)"], left, after)

        def crashes(unit):
            where = path + [f"store to {self.names[unit]}"]
            self.crash_everywhere(medium, unit, state["accept"], where, left, after)
            self.kill(medium, state["accept"], where, left, after)

        state["current"] = self.expected(op, current)
        famio.sync_begins, famio.sync_returns, medium.on_store = begins, returns, crashes
        try:
            done = self.apply(famio, op)
        except LookupError as error:
            raise Counterexample(f"{' '.join(path)}: {error}") from error
        medium.on_store = None
        self.sequences += 1
        if done == "failed":                # SYNC gave an error: either is right, and nothing is written any more
            self.crash_everywhere(medium, None, state["accept"], path + ["(failed)"], left, after)
            self.kill(medium, state["accept"], path + ["(failed)"], left, after)
            return
        if done == "refused":               # ENOSPC
            state["current"] = current
            if op == "W":
                return
        if op == "x":
            state["current"] = committed
        if op[0] in "szURAcxW" or op == "open":
            committed = state["current"]
        if famio.contents() != state["current"]:
            raise Counterexample(f"{' '.join(path)}: reads {famio.contents()}, not {state['current']}")
        self.crash_everywhere(medium, None, {committed}, path + ["(returned)"], left, after)
        self.explore(famio, committed, state["current"], path, left, after)

    def explore(self, famio, committed, current, path, left, after):
        if left <= 0:
            return
        key = famio.m.key(), famio.key(), committed, current
        if any(l >= left and a >= after for l, a in self.states.get(key, ())):
            return
        self.states.setdefault(key, []).append((left, after))
        for op in self.config.operations:
            if op in "URA" and famio.policy == {"U": "undo", "R": "redo", "A": "alternate"}[op]:
                continue
            self.perform(famio.copy(famio.m.copy()), op, committed, current, path, left - 1, after)

    @staticmethod
    def value(current, half):
        """A new value, but the same one again for the same contents: a repeated life repeats its writes."""
        return (current[half] if half < len(current) else 0) % 3 + 1

    def span(self, op, current):
        start = int(op[1]) * 2 + (op[0] == "p")
        return start, int(op[1]) * 2 + 2, self.value(current, start)

    def expected(self, op, current):
        if op[0] in "wpvLW":
            start, end, value = self.span(op + "0", current)
            grown = current + (0,) * (start - len(current))
            return grown[:start] + (value,) * (end - start) + grown[end:]
        if op[0] == "t":
            return (current + (0,) * CAPACITY)[:int(op[1])]
        return current

    def apply(self, famio, op):
        thread = 1 if op[0] in "vz" else 0
        if op == "open":
            famio.open()
        elif op[0] in "wpvLW":
            done = famio.put(*self.span(op + "0", famio.contents()), thread=thread, large=op[0] == "L")
            return famio.sync(thread) if op == "W" and not done else done
        elif op[0] == "t":
            return famio.resize(int(op[1]))
        elif op[0] == "k" and len(op) > 1:
            famio.checkpoint(int(op[1]))
        elif op in ("k", "j", "e", "h", "f", "g", "E"):
            return famio.background(op)
        elif op in "szURA":
            famio.sync(thread)
            famio.policy = {"U": "undo", "R": "redo", "A": "alternate"}.get(op, getattr(famio, "policy", None))
        elif op == "c":
            famio.close()
            famio.open()
        elif op == "x":                     # the process dies; what it stored stays in the caches
            famio.open()
        return None

    # --- crashes
    def crash_everywhere(self, medium, unit, accept, path, left, after):
        accept_key = frozenset(accept)
        again = min(left, after)
        for image in medium.images(unit):
            self.images += 1
            if (image, accept_key, again) in self.checked:
                continue
            self.checked.add((image, accept_key, again))
            contents, after_it = self.recovered(self.config.module.after_power_cut(image))
            if contents not in accept:
                lost = [self.names[u] for u, v in enumerate(medium.versions) if image[u] != v[-1]]
                raise Counterexample(f"{' '.join(path)}; not (fully) persistent: {', '.join(lost) or 'nothing'}; "
                                     f"recovers {contents}, not {' or '.join(map(str, sorted(accept)))}")
            if again > 0:                   # life goes on: with what recovery left
                medium_after = after_it.copy()
                famio = self.config.protocol(medium_after, self.config, self.off)
                famio.create()
                self.explore(famio, contents, contents, path + ["CRASH"], again, 0)

    def recovered(self, image):
        """What an image recovers to; recovery is crashed too, at every store, as often as you like, and killed."""
        if image in self.outcome:
            return self.outcome[image]
        medium = self.config.medium(image)
        famio = self.config.protocol(medium, self.config, self.off)
        nested, killed = [], []

        def crashes(unit):
            nested.extend(medium.images(unit))
            killed.append(medium.copy())

        medium.on_store = crashes
        try:
            famio.recover()
        except LookupError as error:
            self.outcome[image] = str(error), None
            return self.outcome[image]
        medium.on_store = None
        contents = famio.plain()
        self.outcome[image] = contents, medium
        for dead in killed:
            try:
                again = self.config.protocol(dead, self.config, self.off)
                again.recover()
                found = again.plain()
            except LookupError as error:
                found = str(error)
            if found != contents:
                self.outcome[image] = f"{found} after a kill inside recovery", None
        for other in set(itertools.chain(nested, medium.images())):
            found = self.recovered(self.config.module.after_power_cut(other))[0]
            if found != contents:           # reported as an outcome, so that the caller names the path
                self.outcome[image] = f"{found} after a second crash inside recovery", None
        return self.outcome[image]

    def kill(self, medium, accept, path, left, after):
        """The process dies here, without power loss; recovery works on the caches, and then the power fails too."""
        key = medium.key(), frozenset(accept), min(left, after)
        if key in self.killed:
            return
        self.killed.add(key)
        medium, path = medium.copy(), path + ["KILL recover"]
        famio = self.config.protocol(medium, self.config, self.off)
        medium.on_store = lambda unit: self.crash_everywhere(medium, unit, accept, path, 0, 0)
        try:
            famio.recover()
        except LookupError as error:
            raise Counterexample(f"{' '.join(path)}: {error}") from error
        medium.on_store = None
        contents = famio.plain()            # from now on others may have seen this
        if "open" in path[0] and contents == (3,) * GRANULES * 2:
            accept = set(accept) | {contents}
        if contents not in accept:
            raise Counterexample(f"{' '.join(path)}: recovers {contents}, not {' or '.join(map(str, sorted(accept)))}")
        # A plain file's own bytes are the program's to sync until a journal is made.
        famio.create()
        self.crash_everywhere(medium, None, {contents}, path + ["(recovered)"], 0, 0)
        self.explore(famio, contents, contents, path, min(left, after), 0)


def attempt(job):
    """Search deeper and deeper, so that a counterexample is a shortest one. Returns a line of report."""
    name, number, depth, after, off = job
    config, start = CONFIGS[number], time.time()
    SEEN.clear()
    search = None
    try:
        for limit in range(1, depth + 1) if off else [depth]:
            search = Search(config, off, limit, after)
            search.run()
    except Counterexample as error:
        return name, config.name, f"{error}", time.time() - start, set(SEEN), 0
    except RecursionError:
        return name, config.name, "recovery does not end", time.time() - start, set(SEEN), 0
    counts = f"{search.sequences} operations, {search.images} crash states, {len(search.outcome)} distinct"
    note = "" if off else counts
    return name, config.name, note, time.time() - start, set(SEEN), len(search.outcome)


def report(jobs, pool):
    """Run the jobs, print one line each; the number of jobs that found a counterexample, and the distinct images."""
    found, distinct, survivors = 0, 0, {}
    for name, config, text, seconds, _, images in pool.imap(attempt, jobs, chunksize=1):
        bad = bool(text) and "crash states" not in text
        found += bad
        distinct += images
        survivors[name] = survivors.get(name, True) and not bad
        verdict = text or "no counterexample"
        print(f"{name:28} {config:24} {seconds:6.1f} s  {verdict}", flush=True)
    return found, distinct, [name for name, survives in survivors.items() if survives]


def replay(config, operations, off):
    """Run one sequence, and recover what is in the caches at its end."""
    search, medium = Search(config, off), config.first()
    famio, current = config.protocol(medium, config, search.off), (3,) * GRANULES * 2
    for op in ["open"] + operations:
        current, done = search.expected(op, current), search.apply(famio, op)
        print(f"{op:5} expected {current}, reads {famio.contents()}{' ' + done if done else ''}")
    first = config.module.first_image()
    for unit, versions in enumerate(medium.versions):
        if versions != (first[unit],):
            print(search.names[unit], *versions, sep="\n    ")
    image = tuple(versions[-1] for versions in medium.versions)
    print("recovers", search.recovered(config.module.after_power_cut(image))[0])
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter sequences")
    parser.add_argument("--holes", nargs="*", metavar="NAME")
    parser.add_argument("--mutants", nargs="*", metavar="NAME")
    parser.add_argument("--depth", type=int, help="operations in a sequence")
    parser.add_argument("--after", type=int, help="operations after a crash")
    parser.add_argument("--replay", metavar="OPS", help='one sequence without crash, e.g. "t1 t6 s w2 s"')
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME", help="steps that the replay leaves out")
    parser.add_argument("--config", type=int, help="one configuration, from 0")
    options = parser.parse_args()
    if options.replay:
        return replay(CONFIGS[options.config or 0], options.replay.split(), options.without)
    start, which = time.time(), 0 if options.quick else 1
    numbers = range(len(CONFIGS)) if options.config is None else [options.config]
    depth = {n: options.depth or CONFIGS[n].depth[which] for n in numbers}
    after = {n: CONFIGS[n].after[which] if options.after is None else options.after for n in numbers}
    with multiprocessing.Pool() as pool:
        if options.holes is None and options.mutants is None:
            jobs = [("protocol", n, depth[n], after[n], frozenset()) for n in numbers]
            found, distinct, _ = report(jobs, pool)
            print(f"{found} counterexamples, {distinct} distinct crash states, {time.time() - start:.0f} s")
            return 1 if found else 0
        pre = pool.map(attempt, [("", n, min(depth[n], 5), 0, frozenset()) for n in numbers])
        used = {n: result[4] for n, result in zip(numbers, pre)}
        if options.holes is not None:
            names = options.holes or list(in_place.HOLES) + list(records.HOLES)
        else:
            steps = (n for n in sorted(set().union(*used.values())) if n.endswith(("flush", "fence", "fsync", "fdatasync")))
            names = options.mutants or list(steps)
        jobs = [(name, n, depth[n], after[n], frozenset([name])) for name in names for n in numbers if name in used[n]]
        _, _, survivors = report(jobs, pool)
        print(f"no counterexample in any configuration: {', '.join(survivors) or 'none'}; {time.time() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
