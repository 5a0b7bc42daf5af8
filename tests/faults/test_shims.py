"""What is preloaded into processes disturbs their clocks and disks as it is told, and heals."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.control import ClockControl, DiskControl
from faults.tools import run, tools_of
from faults.volumes import Disks

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("engine")]

# What the process sees, and how far it is from what the kernel says.
_CLOCKS = """
import ctypes, json, threading, time

def kernel(clock):
    found = (ctypes.c_long * 2)()
    ctypes.CDLL(None).syscall(228, clock, found)
    return found[0] + found[1] / 1e9

threading.Event().wait(0.01)
threading.Condition().acquire() and time.sleep(0.01)
real, steady = time.time() - kernel(0), time.monotonic() - kernel(1)
print(json.dumps({"real": real, "steady": steady}))
"""
# How long waits of 0.3 s take by the kernel's clock, of each function that is told until when. What
# is all zeros is a condition, a mutex, a semaphore as it begins.
_WAITS = """
import ctypes, json, time
c = ctypes.CDLL(None)

def steady():
    found = (ctypes.c_long * 2)()
    c.syscall(228, 1, found)
    return found[0] + found[1] / 1e9

def waited(clock, wait):
    until = time.clock_gettime(clock) + 0.3
    at = (ctypes.c_long * 2)(int(until), int(until % 1 * 1e9))
    began = steady()
    wait(at)
    return steady() - began

steadily = ctypes.c_int(1)
condition, mutex, semaphore = (ctypes.create_string_buffer(64) for _ in range(3))
c.pthread_mutex_lock(mutex)
print(json.dumps({
    "cnd_timedwait": waited(0, lambda at: c.cnd_timedwait(condition, mutex, at)),
    "pthread_cond_timedwait": waited(0, lambda at: c.pthread_cond_timedwait(condition, mutex, at)),
    "pthread_cond_clockwait": waited(
        1, lambda at: c.pthread_cond_clockwait(condition, mutex, steadily, at)
    ),
    "sem_timedwait": waited(0, lambda at: c.sem_timedwait(semaphore, at)),
    "sem_clockwait": waited(1, lambda at: c.sem_clockwait(semaphore, steadily, at)),
}))
"""
# One line a second of its life: what becomes of a write to a file that is open already.
_WRITES = """
import sys, time
file = open("/data/found", "ab", buffering=0)
for line in sys.stdin:
    began = time.monotonic()
    try: said = str(file.write(b"x"))
    except OSError as error: said = error.strerror
    print(said, time.monotonic() - began, flush=True)
"""


@contextlib.contextmanager
def faulty(folder: Path, **more: Any) -> Iterator[Any]:
    environment = {
        "LD_PRELOAD": "/shims/clock.so:/shims/disk.so",
        "FAULTY_CLOCK": "/control/clock",
        "FAULTY_DISK": "/control/disk",
        "FAULTY_FOLDER": "/data",
    }
    with tools_of({str(folder): "/control", **more}, environment=environment) as tools:
        yield tools


def seen(tools: Any) -> dict[str, float]:
    found: dict[str, float] = json.loads(run(tools, f"python3 -c '{_CLOCKS}'"))
    return found


def test_a_step_moves_the_real_time_alone_and_back(tmp_path: Path) -> None:
    clock, _ = ClockControl(tmp_path / "clock"), DiskControl(tmp_path / "disk")
    with faulty(tmp_path) as tools:
        for seconds in (0.0, 3_600.0, -3_600.0, 0.0):
            clock.step(seconds)
            now = seen(tools)
            assert now["real"] == pytest.approx(seconds, abs=0.1)
            assert now["steady"] == pytest.approx(0, abs=0.1)


def test_a_wait_takes_its_time_by_whatever_clock_it_is_told_until_when(tmp_path: Path) -> None:
    """One that ends at once, again and again, keeps a processor busy: librdkafka's did."""
    clock, _ = ClockControl(tmp_path / "clock"), DiskControl(tmp_path / "disk")
    with faulty(tmp_path) as tools:
        for seconds in (0.0, 3_600.0, -3_600.0):
            clock.step(seconds)
            took = json.loads(run(tools, f"timeout 60 python3 -c '{_WAITS}'"))
            assert {name: each for name, each in took.items() if each < 0.29} == {}
        clock.step(0)
        clock.drift(0.5)  # by which the clocks are behind when it is over
        seen(tools)
        clock.drift(1)
        took = json.loads(run(tools, f"timeout 60 python3 -c '{_WAITS}'"))
        assert {name: each for name, each in took.items() if each < 0.29} == {}


def test_a_drift_moves_all_clocks_on_and_what_is_drifted_stays(tmp_path: Path) -> None:
    clock, _ = ClockControl(tmp_path / "clock"), DiskControl(tmp_path / "disk")
    with faulty(tmp_path) as tools:
        clock.drift(3)
        first, second = seen(tools), seen(tools)
        assert 0 < first["steady"] < second["steady"]
        assert first["real"] == pytest.approx(first["steady"], abs=0.1)
        clock.drift(1)
        third, fourth = seen(tools), seen(tools)
        assert second["steady"] < third["steady"]
        assert third["steady"] == pytest.approx(fourth["steady"], abs=0.1)
        clock.drift(0.5)
        assert seen(tools)["steady"] < fourth["steady"]


def test_an_open_file_of_a_disk_that_became_read_only_refuses(tmp_path: Path) -> None:
    disk, _ = DiskControl(tmp_path / "disk"), ClockControl(tmp_path / "clock")
    with faulty(tmp_path) as tools:
        run(tools, "mkdir /data && mkfifo /ask")
        _, said = tools.exec_run(
            ["sh", "-c", f"exec 3<>/ask; python3 -c '{_WRITES}' <&3"], stream=True
        )

        heard = bytearray()

        def write() -> str:
            run(tools, "echo > /ask")
            while b"\n" not in heard:  # a line may come in pieces
                heard.extend(next(said))
            line, _, rest = heard.partition(b"\n")
            heard[:] = rest
            return line.decode()

        assert write().startswith("1 ")
        disk.read_only()
        assert write().startswith("Read-only file system")
        with pytest.raises(RuntimeError, match="Read-only file system"):
            run(tools, "touch /data/other")
        run(tools, "touch /tmp/other")  # another disk
        disk.heal()
        assert write().startswith("1 ")
        disk.slow(0.2)
        assert float(write().split()[-1]) > 0.19
        disk.heal()
        assert write().startswith("1 ")


def test_a_full_disk_has_no_room_until_it_is_freed(tmp_path: Path) -> None:
    disks = Disks(f"anabranch-{tmp_path.parent.name}".replace("_", "-"), {"node-1": 8})
    with contextlib.ExitStack() as ends:
        ends.callback(disks.remove)
        disks.create()
        tools = ends.enter_context(tools_of({disks.volume("node-1"): "/data"}))
        run(tools, "dd if=/dev/zero of=/data/found bs=1M count=2")
        disks.fill("node-1")
        with pytest.raises(RuntimeError, match="No space left on device"):
            run(tools, "dd if=/dev/zero of=/data/more bs=1M count=2")
        disks.free("node-1")
        run(tools, "dd if=/dev/zero of=/data/more bs=1M count=2")
