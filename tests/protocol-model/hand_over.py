#!/usr/bin/env python3
"""A session that several processes own one after the other, with before-images, through every short history and every kill.

    hand_over.py [--quick]     check the protocol as it is; exit status 1 at a counterexample
    hand_over.py --holes       take back one rule at a time: its shortest counterexample

Processes write bytes (`w`; `n`: the bytes already there), SYNC (`s`) and release a lock (`u`), one call at a time. Each call is a list of steps; at each step
one process is killed: the caller or another one. Then the others go on, recover, and are killed once more during recovery. What
the surviving processes see must match the oracle. The journal is a list of committed states: `model.py` has its own protocol.
"""
import argparse
import itertools
import sys

BYTES = 2
RULES = {
    "image.first": "the image is saved before the change",
    "image.tenure": "an image stands for later changes of the same bytes in the same tenure alone",
    "commit.counted-by-journal": "whether a killed owner's commit was done is told by the journal's count, not the arena's",
    "take-up.begun": "images count as complete only when the whole epoch was taken up",
    "death.sends-first": "what living processes have open travels before the file is recovered",
    "death.whole": "what travels then is not replaced by what a second recovery finds",
    "take.owned-first": "the session has an owner before its gate opens",
    "all-killed.forgets": "if all are killed, no process's images count",
}


class Killed(Exception):
    pass


class World:
    def __init__(self, without, kill_at, victim, second_at):
        self.without, self.kill_at, self.victim, self.second_at = without, kill_at, victim, second_at
        self.step, self.running, self.dead = 0, None, set()
        self.journal = [(".",) * BYTES]  # what was committed, one state an epoch that changed something
        self.session = None
        self.state = "none"  # none, session, unowned
        self.travels, self.whole = None, False
        self.claim = None
        self.tenure = {}
        self.writes = []  # the oracle: (process, tenure, place, value) since the last SYNC
        self.over = set()  # tenures that are over
        self.second = None

    def has(self, rule):
        return rule not in self.without

    def at(self):
        """A step is done: a process may be killed here."""
        self.step += 1
        victims = []
        if self.step == self.kill_at:
            victims.append(self.victim)
        if self.second_at is not None and self.step == self.kill_at + self.second_at:
            victims.append(self.running)  # the one that recovers
        for victim in victims:
            if victim in self.dead:
                continue
            self.kill(victim)
            if victim == self.running:
                raise Killed

    def kill(self, who):
        self.dead.add(who)
        if self.claim == who:
            self.claim = None

    def is_dead(self, writer):
        return writer[0] in self.dead and writer not in self.over and self.tenure[writer[0]] == writer[1]

    # What a process does that wants to change the file.

    def own(self, me):
        assert self.claim is None, "two owners"
        self.claim = me
        if self.state == "session":
            self.recover_killed(me)
        if self.state == "unowned":
            if self.has("take.owned-first"):
                self.state = "session"
            self.at()
            if any(self.is_dead(image[0]) for image in self.session["images"]):
                self.state = "session"
                self.end_session()
        if self.state == "none":
            self.begin()

    def begin(self):
        if self.travels is not None:
            kept = [change for change in self.travels if not self.is_dead(change[0])]
            if len(kept) != len(self.travels):
                self.travels = kept
            self.at()
        self.whole = False
        self.state = "session"
        begun = self.travels is not None and self.has("take-up.begun")
        now = list(self.journal[-1])
        self.session = dict(now=now, images=[], all=not begun, dirty=False, recorded=len(self.journal) - 1)
        self.session["committed"] = self.session["recorded"]
        self.at()
        for writer, place, value in self.travels or []:
            self.change(writer, place, value)
        self.session["all"] = True
        self.at()

    def leave(self, me):
        self.state = "unowned"
        self.at()
        self.claim = None
        self.at()

    def change(self, writer, place, value):
        session = self.session
        session["dirty"] = True
        self.at()
        image = (writer, place, session["now"][place])
        there = [i for i in session["images"] if i[1] == place]
        whose = (lambda i: i[0]) if self.has("image.tenure") else (lambda i: i[0][0])
        is_covered = there and whose(there[-1]) == whose(image)
        if self.has("image.first") and not is_covered:
            session["images"].append(image)
            self.at()
        session["now"][place] = "?"  # half of it
        self.at()
        session["now"][place] = value
        if not self.has("image.first"):
            self.at()
            session["images"].extend([] if is_covered else [image])
        self.at()

    def changes(self):
        """The process whose changes the open epoch has, derived from the images."""
        now, changes = list(self.session["now"]), []
        for writer, place, old in reversed(self.session["images"]):
            changes.append((writer, place, now[place]))
            now[place] = old
        return changes[::-1]

    def end_session(self):
        """With the claim held: the open changes are handed over, and the file is recovered."""
        self.travels, self.whole = self.changes(), True
        self.at()
        self.state = "none"
        self.session = None
        self.at()

    def recover_killed(self, me):
        session = self.session
        count = "recorded" if self.has("commit.counted-by-journal") else "committed"
        commits = len(self.journal) - 1
        keep = not (self.whole and self.has("death.whole"))
        if session is None:
            self.state = "none"  # an earlier recovery has come so far
            return
        if session["dirty"] and session[count] == commits and session["all"] and keep:
            if not self.has("death.sends-first"):
                self.session = None
                self.at()
                self.session = session
            self.travels, self.whole = [c for c in self.changes() if not self.is_dead(c[0])], True
        elif commits > session["recorded"] and keep:
            self.travels = None  # it is committed
        self.at()
        self.state = "none"
        self.session = None
        self.at()

    # Calls.

    def write(self, me, place, value):
        self.own(me)
        writer = (me, self.tenure[me])

        def end_others():
            for other, where, *_ in self.session["images"]:
                if where == place and other[0] != me and not self.is_dead(other):
                    self.over.add(other)
                    if self.tenure[other[0]] == other[1]:
                        self.tenure[other[0]] += 1

        end_others()
        self.at()
        self.writes.append((writer, place, value))
        self.change(writer, place, value)
        self.leave(me)

    def sync(self, me):
        self.own(me)
        session = self.session
        if session["dirty"]:
            changed = tuple(session["now"]) != self.journal[-1]
            if changed:
                self.journal.append(tuple(session["now"]))
            self.at()
            session["committed"] += 1
            session["images"], session["all"] = [], True
            self.at()
            if changed:  # an epoch that changes nothing is not in the journal
                session["recorded"] += 1
            self.at()
            session["dirty"] = False
            self.travels = None
            self.writes = []
        self.leave(me)

    def unlock(self, me):
        self.over.add((me, self.tenure[me]))
        self.tenure[me] += 1
        self.at()

    def look(self, me):
        """What the file has, for a process that comes now."""
        if self.state == "session" or self.session is not None and any(self.is_dead(i[0]) for i in self.session["images"]):
            self.own(me)
            self.leave(me)
        if self.session is not None:
            return tuple(self.session["now"])
        now = list(self.journal[-1])
        for writer, place, value in self.travels or []:
            if not self.is_dead(writer):
                now[place] = value
        return tuple(now)

    def expected(self, base):
        now = list(base)
        for writer, place, value in self.writes:
            if not self.is_dead(writer):
                now[place] = value
        return tuple(now)


def run(history, processes, without, kill_at, victim, second_at):
    """The counterexample, or None; and how many steps there were."""
    world = World(without, kill_at, victim, second_at)
    world.tenure = {process: 1 for process in range(processes + 2)}
    value = 0
    for kind, who, place in history:
        if who in world.dead:
            continue
        before, writes = world.journal[-1], list(world.writes)
        world.running = who
        value += 1
        try:
            if kind == "w":
                world.write(who, place, chr(ord("a") + value))
            elif kind == "n":  # what is there already
                world.write(who, 0, world.expected(world.journal[-1])[0])
            elif kind == "s":
                world.sync(who)
            else:
                world.unlock(who)
        except Killed:
            # A SYNC under way is done or not, as a whole.
            if kind == "s" and world.journal[-1] != before:
                world.writes = []
    alive = [process for process in range(processes) if process not in world.dead]
    seen = None
    for reader in alive + [processes, processes + 1]:
        if reader in world.dead:
            continue
        if reader >= processes and not alive:
            break
        world.running = reader
        try:
            seen = world.look(reader)
        except Killed:
            continue
        expected = world.expected(world.journal[-1])
        if seen != expected:
            return f"process {reader} sees {''.join(seen)}, not {''.join(expected)}", world.step
        break
    if not alive:
        # No process was left: the last SYNC.
        seen = world.journal[-1]
        if not world.has("all-killed.forgets") and world.session is not None and world.session["images"]:
            seen = tuple(world.session["now"])
        if seen != world.journal[-1]:
            return f"after all were killed there is {''.join(seen)}", world.step
    return None, world.step


def search(length, processes, without=frozenset()):
    calls = [("w", who, place) for who in range(processes) for place in range(BYTES)]
    calls += [(kind, who, None) for kind in "nsu" for who in range(processes)]
    runs = 0
    for count in range(1, length + 1):
        for history in itertools.product(calls, repeat=count):
            if history[0][1] != 0:
                continue  # the names of the processes do not matter
            _, steps = run(history, processes, without, -1, None, None)
            for kill_at in range(1, steps + 1):
                for victim in range(processes):
                    for second_at in (None, 1, 2, 3, 4, 6, 8):
                        runs += 1
                        found, _ = run(history, processes, without, kill_at, victim, second_at)
                        if found:
                            return f"{text(history)}; {victim} killed at step {kill_at}, again {second_at}: {found}", runs
    return None, runs


def text(history):
    return " ".join(f"{kind}{'' if place is None else place}({who})" for kind, who, place in history)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter histories")
    parser.add_argument("--holes", action="store_true")
    args = parser.parse_args()
    if args.holes:
        for rule, what in RULES.items():
            found, _ = search(4, 2, frozenset([rule]))
            print(f"{rule} ({what}): {found or 'no counterexample'}", flush=True)
        return 0
    found, runs = search(3 if args.quick else 4, 2)
    print(f"hand-over: {runs} runs, {'1 counterexample: ' + found if found else '0 counterexamples'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
