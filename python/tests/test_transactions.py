"""Transactions on what famio.open() gives."""

import errno
import os
import signal
import subprocess
import sys
import threading

import pytest

import famio


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)) * 100)
    return path


def test_all_is_committed_at_the_end_of_the_block(path):
    with famio.open(path, "r+b") as file:
        assert file.read(3) == bytes([0, 1, 2])  # and more is in the buffer
        with file.transaction() as tx:
            tx.write(b"abc", 1)
            tx.write(bytearray(b"xyz"), 9000)
            assert (tx.read(5, 0), tx.size, tx.ended) == (b"\0abc\4", 10000, False)
            file.seek(0)
            assert file.read(5) == bytes(range(5))  # not visible outside
        assert tx.ended
        file.seek(0)
        assert file.read(5) == b"\0abc\4"
    assert path.read_bytes()[8999:9004] == bytes([99]) + b"xyz" + bytes([3])


def test_an_exception_and_abort_leave_the_file_as_it_was(path):
    before = path.read_bytes()
    with famio.open(path, "r+b", buffering=0) as file:
        with pytest.raises(KeyError), file.transaction() as tx:
            tx.write(b"abc", 1)
            raise KeyError
        tx = file.transaction()
        tx.truncate(5)
        assert tx.size == 5
        tx.abort()
        tx.abort()
        for call in (tx.commit, lambda: tx.read(1, 0), lambda: tx.write(b"", 0), lambda: tx.size):
            with pytest.raises(ValueError, match="ended"):
                call()
        with file.transaction() as tx:
            tx.write(b"abc", 1)
            tx.abort()  # and the block ends without a commit
    assert path.read_bytes() == before


def test_a_check_fails_if_somebody_else_was_first(path):
    with famio.open(path, "r+b", buffering=0) as file:
        mine, theirs = file.transaction(check=True), file.transaction()
        count = mine.read(1, 7)[0]
        theirs.write(b"!", 7)
        theirs.commit()
        mine.write(bytes([count + 1]), 7)
        with pytest.raises(BlockingIOError):
            mine.commit()
        assert file.read(8) == bytes(range(7)) + b"!"


def test_threads_count_without_a_lock(path):
    path.write_bytes(bytes(8))
    with famio.open(path, "r+b", buffering=0) as file:

        def count():
            done = 0
            while done < 50:
                try:
                    with file.transaction(check=True, sync=False) as tx:
                        tx.write((int.from_bytes(tx.read(8, 0)) + 1).to_bytes(8), 0)
                    done += 1
                except BlockingIOError:
                    pass

        threads = [threading.Thread(target=count) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert int.from_bytes(path.read_bytes()) == 200


def test_a_kill_leaves_all_or_nothing(path):
    script = """
import famio, os, signal, sys
file = famio.open(sys.argv[1], "r+b")
with file.transaction() as tx:
    tx.write(b"all", 0)
    tx.write(b"of it", 9000)
tx = file.transaction()
tx.write(b"nothing", 0)
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    with famio.open(path, "rb") as file:
        data = file.read()
    assert (data[:3], data[3], data[9000:9005]) == (b"all", 3, b"of it")


def test_what_was_in_a_buffer_goes_along_with_the_commit(path):
    script = """
import famio, os, signal, sys
file = famio.open(sys.argv[1], "r+b")
tx = file.transaction()
file.seek(50)
file.write(b"buffered")
tx.write(b"all", 0)
tx.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    with famio.open(path, "rb") as file:
        data = file.read()
    assert (data[:3], data[50:58]) == (b"all", b"buffered")


def test_errors(path):
    with famio.open(path, "rb", buffering=0) as file, pytest.raises(OSError):
        file.transaction()
    with famio.open(path, "r+b") as file:
        with pytest.raises(ValueError, match="timeout"):
            file.transaction(timeout=-1)
        tx = file.transaction(timeout=0)
        with pytest.raises(OSError) as caught:
            tx.write(b"late", 0)
        assert caught.value.errno == errno.ETIMEDOUT
        tx.abort()
        tx = file.transaction()
        tx.write(b"kept", 0)
    # The file was closed, and the transaction goes on.
    tx.commit()
    assert path.read_bytes()[:4] == b"kept"
    assert sorted(os.listdir(path.parent)) == ["file"]


@pytest.mark.parametrize("buffering", [0, -1])
def test_all_files_are_changed_or_none(tmp_path, buffering):
    paths = [tmp_path / "giro", tmp_path / "savings"]
    for path in paths:
        path.write_bytes(bytes(8))
    with famio.open(paths[0], "r+b", buffering) as giro, famio.open(paths[1], "r+b", buffering) as savings:
        with giro.transaction(check=True) as tx:
            part = tx.join(savings)
            tx.write(b"giro", 0)
            part.write(b"savings", 0)
            part.truncate(7)
            assert (tx.read(4, 0), part.read(9, 0), part.size) == (b"giro", b"savings", 7)
        giro.seek(0), savings.seek(0)
        assert (giro.read(8), savings.read(8)) == (b"giro" + bytes(4), b"savings")
        tx = giro.transaction(check=True)
        part = tx.join(savings)
        part.read(1, 0)
        tx.write(b"G", 0)
        with savings.transaction() as other:
            other.write(b"S", 0)
        with pytest.raises(BlockingIOError):
            tx.commit()
        with pytest.raises(ValueError, match="ended"):
            part.read(1, 0)
    assert (paths[0].read_bytes(), paths[1].read_bytes()) == (b"giro" + bytes(4), b"Savings")
    assert sorted(os.listdir(tmp_path)) == ["giro", "savings"]
