"""famio.open() and what it gives."""

import errno
import io
import os
import signal
import subprocess
import sys
import threading

import pytest

import famio


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path, tmp_path_factory):
    """A folder on a disk, and one on tmpfs."""
    if request.param == "disk":
        yield tmp_path
        return
    path = f"/dev/shm/famio-python-{os.getpid()}-{id(request)}"
    os.mkdir(path)
    from pathlib import Path
    import shutil

    yield Path(path)
    shutil.rmtree(path)


def killed(script, *args):
    """Runs a script that kills itself."""
    run = subprocess.run([sys.executable, "-c", script, *map(str, args)], capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr


SYNC_THEN_KILL = """
import famio, os, signal, sys
file = famio.open(sys.argv[1], "r+")
file.truncate(0)
file.write("second")
if len(sys.argv) > 2:
    file.sync()
    file.write(" third")
file.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_no_sync_covers_is_gone_after_a_kill(folder):
    path = folder / "file"
    path.write_text("first")
    killed(SYNC_THEN_KILL, path)
    with famio.open(path) as file:
        assert file.read() == "first"
    killed(SYNC_THEN_KILL, path, "sync")
    with famio.open(path) as file:
        assert file.read() == "second"
    assert path.read_text() == "second"
    assert os.listdir(folder) == ["file"]


def test_modes_are_those_of_the_built_in(folder):
    path = folder / "file"
    with pytest.raises(FileNotFoundError):
        famio.open(path)
    with famio.open(path, "x") as file:
        assert isinstance(file, famio.AtomicText)
        assert file.write("one\ntwo\n") == 8
    with pytest.raises(FileExistsError):
        famio.open(path, "x")
    with famio.open(path, "a") as file:
        file.write("three\n")
    with famio.open(path, "rb") as file:
        assert file.read() == b"one\ntwo\nthree\n"
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    with famio.open(path, "r+b") as file:
        assert isinstance(file, famio.AtomicBuffered)
        file.seek(-6, os.SEEK_END)
        file.write(b"THREE")
        file.seek(0)
        assert file.readlines() == [b"one\n", b"two\n", b"THREE\n"]
        file.sync()
    with famio.open(path, newline="") as file:
        assert list(file) == ["one\n", "two\n", "THREE\n"]
    with famio.open(path, "rb", buffering=0) as file:
        assert isinstance(file, famio.AtomicRaw)
        assert file.readall() == path.read_bytes()
        buffer = bytearray(3)
        file.seek(0)
        assert file.readinto(buffer) == 3 and buffer == b"one"
    with famio.open(path, "w") as file:
        assert file.tell() == 0
    assert path.read_bytes() == b""


@pytest.mark.parametrize("mode", ["", "rw", "q", "r+w", "bt", "rr"])
def test_bad_modes_are_refused(tmp_path, mode):
    with pytest.raises(ValueError):
        famio.open(tmp_path / "file", mode)
    assert not (tmp_path / "file").exists()


def test_what_makes_no_sense_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    for arguments in [{"mode": "rb", "encoding": "utf-8"}, {"buffering": 0}, {"durability": "forever"}, {"newline": "x"}]:
        with pytest.raises(ValueError):
            famio.open(path, **arguments)
    with pytest.raises(TypeError):
        famio.open(0)
    with famio.open(path) as file:
        with pytest.raises(io.UnsupportedOperation, match="sync"):
            file.fileno()
    with pytest.raises(ValueError):
        file.read()
    with pytest.raises(OSError) as error:
        famio.open(tmp_path)
    assert error.value.errno in (errno.EINVAL, errno.EISDIR)


def test_threads_that_share_a_raw_file_write_one_after_the_other(folder):
    """Two threads wrote at one position: what one of them had written was lost."""
    path = folder / "raw"
    with famio.open(path, "wb", 0) as raw:

        def work(letter):
            for _ in range(4000):
                raw.write(letter * 10)

        threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with famio.open(path, "rb") as file:
        data = file.read()
    assert (len(data), data.count(b"a"), data.count(b"b")) == (80_000, 40_000, 40_000)


def test_a_text_file_has_the_mode_that_was_asked_for(folder):
    with famio.open(folder / "text", "w+") as file:
        assert file.mode == "w+"
        with pytest.raises(OSError):
            file.truncate(-1)


def test_threads_append_whole_pieces(folder):
    path = folder / "file"

    def work(letter):
        with famio.open(path, "ab", buffering=0) as file:
            for _ in range(100):
                file.write(letter * 10)

    path.touch()
    with famio.open(path, "r+b"):
        threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    data = path.read_bytes()
    assert len(data) == 3000
    assert all(len(set(data[at : at + 10])) == 1 for at in range(0, 3000, 10))


def test_recovery_says_what_it_did(folder):
    path = folder / "file"
    path.write_text("first")
    killed(SYNC_THEN_KILL, path, "sync")
    (planned,) = famio.recover(path, dry_run=True)
    assert planned.outcome == "recovered" and planned.journal.exists()
    (done,) = famio.recover(folder)
    assert done.ok and done.outcome == "recovered" and done.epoch >= 1 and done.file == path.resolve()
    assert path.read_text() == "second"
    assert famio.recover(path) in ([], [r for r in famio.recover(path) if r.outcome == "nothing to do"])
    with pytest.raises(FileNotFoundError):
        famio.recover(folder / "none")


def test_a_conflict_is_left_alone_until_somebody_decides(folder):
    path = folder / "file"
    path.write_text("first")
    killed(SYNC_THEN_KILL, path, "sync")
    path.write_text("by somebody else")
    with pytest.raises(OSError) as error:
        famio.open(path)
    assert error.value.errno == errno.EIO
    (found,) = famio.recover(path)
    assert found.outcome == "conflict" and not found.ok and str(path) in found.why
    (decided,) = famio.recover(path, use="file")
    assert decided.ok
    assert path.read_text() == "by somebody else"


def test_the_command_runs_programs():
    if not os.path.exists(os.path.join(os.path.dirname(famio.__file__), "bin", "famio")):
        pytest.skip("the command is not in the package: make python")
    path = f"/dev/shm/famio-python-run-{os.getpid()}"
    try:
        script = "import os, sys; f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.write(f, b'x'); os.fsync(f); os.write(f, b'y'); os.kill(os.getpid(), 9)"
        command = [sys.executable, "-m", "famio", "run", "--no-config", "--atomic", path, "--", sys.executable, "-c", script, path]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == -signal.SIGKILL, run.stderr
        assert famio.recover(path)[0].outcome == "recovered"
        with open(path) as file:
            assert file.read() == "x"
    finally:
        os.unlink(path)


def test_the_recovery_of_a_file_that_only_grew_names_no_journal(tmp_path):
    path = tmp_path / "log"
    script = """
import famio, os, signal, sys
file = famio.open(sys.argv[1], "xb", buffering=0)
file.write(b"synced")
file.sync()
file.write(b"not synced")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script, path]).returncode == -signal.SIGKILL
    (done,) = famio.recover(path)
    assert done.ok and done.outcome == "recovered"
    assert done.journal is None and done.cut == len(b"not synced")
    assert path.read_bytes() == b"synced"


def test_paths_are_text_or_bytes_or_have_one(folder):
    (folder / "pool").mkdir()
    for path in (os.fsencode(folder) + b"/\xff", os.fsdecode(os.fsencode(folder) + b"/\xff"), folder / "text"):
        with famio.open(path, "w+b") as file:
            assert file.raw.name == path
            file.write(b"bytes")
        with famio.open(os.fsencode(path), "rb", pool=os.fsencode(folder / "pool")) as file:
            assert file.read() == b"bytes"
        assert famio.recover(os.fsencode(path)) == famio.recover(path)
        with open(path, "rb") as file:
            assert file.read() == b"bytes"
    with pytest.raises(TypeError):
        famio.recover(1)
