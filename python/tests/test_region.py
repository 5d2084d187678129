"""famio.Region and famio.memmap."""

import os
import signal
import subprocess
import sys

import pytest

import famio

numpy = pytest.importorskip("numpy")


def test_what_is_stored_between_two_flushes_is_one_unit(tmp_path):
    path = tmp_path / "file"
    script = """
import famio, os, signal, sys
region = famio.Region(sys.argv[1], length=8192)
region[0:5] = b"first"
region[5000:5005] = b"first"
region.flush()
region[0:5] = b"other"
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = subprocess.run([sys.executable, "-c", script, path])
    assert run.returncode == -signal.SIGKILL
    with famio.Region(path, mode="r") as region:
        assert len(region) == 8192
        assert region[0:5] == b"first" and region[5000:5005] == b"first" and region[1] == ord("i")
        with pytest.raises(TypeError):
            region[0] = 1
    assert os.listdir(tmp_path) == ["file"]


def test_arrays_use_its_memory(tmp_path):
    with famio.Region(tmp_path / "file", length=4096) as region:
        array = numpy.frombuffer(region.buffer, dtype="u4")
        array[:] = range(1024)
        with pytest.raises(BufferError):
            region.close()
        region.flush()
        assert bytes(region[4:8]) == b"\1\0\0\0"
        del array
    assert region.closed
    assert (numpy.fromfile(tmp_path / "file", dtype="u4") == range(1024)).all()
    with pytest.raises(ValueError):
        region.flush()


def test_a_region_has_the_buffer_protocol_in_every_version(tmp_path):
    """Before Python 3.12 it raised TypeError; only ``region.buffer`` had it."""
    with famio.Region(tmp_path / "file", length=4096) as region:
        assert region.buffer is region and len(region) == 4096 and region.name == tmp_path / "file"
        with memoryview(region) as view:
            view[:3] = b"abc"
            with pytest.raises(BufferError):
                region.close()
        array = numpy.frombuffer(region, dtype="u1")
        assert bytes(array[:3]) == b"abc" and not region.closed
        del array
    assert region.closed
    with pytest.raises(ValueError):
        memoryview(region)


def test_a_memmap_is_like_numpys(tmp_path):
    path = tmp_path / "matrix"
    array = famio.memmap(path, dtype="f4", mode="w+", shape=(30, 50))
    assert array.shape == (30, 50) and not array.any()
    array[3, :] = 7
    array[4:6].flush()
    assert (famio.memmap(path, dtype="f4", mode="r", shape=(30, 50))[3] == 7).all()
    copy = array.copy()
    copy[0, 0] = 1
    copy.flush()
    assert array[0, 0] == 0 and float((array * 2).sum()) == 700
    del array, copy
    assert (numpy.memmap(path, dtype="f4", mode="r", shape=(30, 50))[3] == 7).all()
    again = famio.memmap(path, dtype="f4", mode="r", offset=600, shape=(50,))
    assert (again == 7).all() and again.offset == 600
    with pytest.raises(ValueError):
        again[0] = 1
    assert famio.memmap(path, dtype="f4").shape == (1500,)


def test_a_memmap_without_a_shape_has_the_size_of_the_recovered_file(tmp_path):
    path = tmp_path / "file"
    script = """
import famio, os, signal, sys
file = famio.open(sys.argv[1], "w+b", buffering=0)
file.write(bytes(100))
file.sync()
file.write(bytes(8000))
os.kill(os.getpid(), signal.SIGKILL)
"""
    for mode in ("r", "r+"):
        run = subprocess.run([sys.executable, "-c", script, path])
        assert run.returncode == -signal.SIGKILL
        assert famio.memmap(path, mode=mode).shape == (100,)
        assert os.path.getsize(path) == 100


def test_what_makes_no_sense_is_refused(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        famio.Region(path)
    path.write_bytes(b"x" * 100)
    for arguments in [{"offset": 100}, {"length": 0}, {"mode": "w"}, {"mode": "r", "length": 200}]:
        with pytest.raises(ValueError):
            famio.Region(path, **arguments)
    assert path.read_bytes() == b"x" * 100
    with pytest.raises(ValueError):
        famio.memmap(path, mode="w+")
