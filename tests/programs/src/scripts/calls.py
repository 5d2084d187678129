"""calls.py FILE SEED STEPS: random calls on a file, each compared with a model; a SYNC now and then.

Prints "begun CONTENT" before a SYNC and "done CONTENT" after it, where CONTENT is length and hash of the model.
"""
import hashlib
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile

name, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dice = random.Random(seed)
LONGEST = 300_000

model = bytearray()
if os.path.exists(name):
    with open(name, "rb") as old:
        model += old.read()
# It stays open, so that only a SYNC commits.
main = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)

# Ordinary files to copy from and to.
source = tempfile.TemporaryFile(dir="/tmp")
source.write(dice.randbytes(LONGEST))
source.flush()
src = source.fileno()
named = tempfile.NamedTemporaryFile(dir="/tmp")


def say(text):
    os.write(1, text.encode() + b"\n")


def content():
    return f"{len(model)} {hashlib.sha1(model).hexdigest()}"


def put(at, data):
    if len(model) < at:
        model.extend(bytes(at - len(model)))
    model[at : at + len(data)] = data


def some(longest=20_000):
    return dice.randbytes(dice.randrange(1, dice.choice([100, 5000, longest])))


def place():
    return dice.randrange(0, min(len(model) + 5000, LONGEST))


def whole(fd, at, data):
    assert os.pwrite(fd, data, at) == len(data)
    put(at, data)


def pwrite():
    whole(main, place(), some())


def writev():
    at, parts = place(), [some(3000) for _ in range(dice.randrange(1, 6))]
    os.lseek(main, at, os.SEEK_SET)
    total = sum(map(len, parts))
    assert os.writev(main, parts) == total and os.lseek(main, 0, os.SEEK_CUR) == at + total
    put(at, b"".join(parts))


def pwritev():
    at, parts = place(), [some(3000) for _ in range(dice.randrange(1, 6))]
    assert os.pwritev(main, parts, at) == sum(map(len, parts))
    put(at, b"".join(parts))


def buffered():
    with open(name, "r+b") as f:
        for _ in range(dice.randrange(1, 20)):
            at, data = place(), some(3000)
            f.seek(at)
            f.write(data)
            put(at, data)
            if dice.randrange(3) == 0:
                f.seek(at)
                assert f.read(len(data)) == data
    assert os.stat(name).st_size == len(model)


def unbuffered():
    with open(name, "r+b", buffering=0) as f:
        at, data = place(), some()
        f.seek(at)
        assert f.write(data) == len(data) and f.tell() == at + len(data)
        put(at, data)
        f.seek(0)
        assert f.readall() == model


def append():
    data = some(2000)
    with open(name, "ab", buffering=dice.choice([0, 16, -1])) as f:
        f.write(data)
        f.flush()
        assert f.tell() == len(model) + len(data)
    put(len(model), data)


def text():
    lines = "".join(f"línea {dice.random()}\n" for _ in range(dice.randrange(50)))
    with open(name, "a", encoding="utf-8") as f:
        f.write(lines)
    put(len(model), lines.encode())


def sendfile():
    at, start, count = place(), dice.randrange(LONGEST // 2), dice.randrange(1, 50_000)
    os.lseek(main, at, os.SEEK_SET)
    sent = os.sendfile(main, src, start, count)
    assert 0 < sent <= count and os.lseek(main, 0, os.SEEK_CUR) == at + sent
    put(at, os.pread(src, sent, start))


def sendfile_from():
    if not model:
        return
    at = dice.randrange(len(model))
    with open(named.name, "w+b", buffering=0) as out:
        sent = os.sendfile(out.fileno(), main, at, 50_000)
        assert sent == min(50_000, len(model) - at)
        assert os.pread(out.fileno(), sent, 0) == model[at : at + sent]


def copy_file_range():
    at, start, count = place(), dice.randrange(LONGEST // 2), dice.randrange(1, 50_000)
    done = os.copy_file_range(src, main, count, start, at)
    assert 0 < done <= count
    put(at, os.pread(src, done, start))


def copy_within():
    if len(model) < 1000:
        return
    count = dice.randrange(1, len(model) // 2)
    done = os.copy_file_range(main, main, count, 0, len(model) // 2)
    assert 0 < done <= count
    put(len(model) // 2, bytes(model[:done]))


def copyfile():
    with open(named.name, "wb") as f:
        data = some(60_000)
        f.write(data)
    shutil.copyfile(named.name, name)
    model[:] = data


def copyfile_from():
    shutil.copyfile(name, named.name)
    with open(named.name, "rb") as f:
        assert f.read() == model


def truncate():
    size = place()
    dice.choice([lambda: os.truncate(name, size), lambda: os.ftruncate(main, size)])()
    put(size, b"")
    del model[size:]


def preadv():
    at, parts = place(), [bytearray(dice.randrange(1, 5000)) for _ in range(dice.randrange(1, 6))]
    n = os.preadv(main, parts, at)
    assert b"".join(parts)[:n] == model[at : at + n] and n == max(0, min(sum(map(len, parts)), len(model) - at))


def lines():
    with open(name, "rb") as f:
        assert list(f) == io.BytesIO(model).readlines()


def duplicate():
    fd = os.dup(main)
    whole(fd, place(), some())
    os.close(fd)


def direct():
    fd = os.open(name, os.O_RDWR | os.O_DIRECT)
    whole(fd, place() // 4096 * 4096, bytes(4096))
    os.close(fd)


def child():
    done = subprocess.run(["wc", "-c"], input=bytes(model), stdout=subprocess.PIPE, check=True)
    assert int(done.stdout) == len(model)


def sync():
    say("begun " + content())
    dice.choice([os.fsync, os.fdatasync])(main)
    say("done " + content())


usual = [pwrite, writev, pwritev, buffered, unbuffered, append, text, sendfile, sendfile_from, copy_file_range, copy_within]
usual += [copyfile, copyfile_from, truncate, preadv, lines, duplicate, direct]
sync()
for step in range(steps):
    act = child if dice.randrange(100) == 0 else dice.choice(usual)
    act()
    assert os.fstat(main).st_size == len(model), f"step {step}, {act.__name__}: size"
    if dice.randrange(8) == 0:
        assert os.pread(main, len(model) + 1, 0) == model, f"step {step}, {act.__name__}: bytes"
    if dice.randrange(5) == 0:
        sync()
assert os.pread(main, len(model) + 1, 0) == model
os.close(main)
with open(name, "rb") as f:
    assert f.read() == model
say("end")
