"""What a node measures of itself: files of the kernel as they are found, and what is made of them.

The trees of files here have the form that Linux gives them, in a container and out of one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from anabranch.broker.balance.resources import (
    ControlGroups,
    GroupUse,
    ResourceMeter,
    thread_seconds,
)
from anabranch.core.balance.broker_load import Resources

MB = 1 << 20
PROC = {
    "meminfo": "MemTotal:  8192 kB\nMemFree:  100 kB\nMemAvailable:  2048 kB\nHugePages_Total: 0\n",
    "self/status": "Name:\tpython\nVmPeak:\t 9 kB\nVmRSS:\t 1024 kB\nThreads:\t4\n",
    "self/task/7/schedstat": "1000000000 0 5\n",
    "self/cgroup": "0::/\n",
    "net/dev": "Inter-|   Receive\n face |bytes\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n"
    "  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n",
}
ETH0 = {
    "class/net/eth0/type": "1\n",
    "class/net/eth0/iflink": "31\n",
    "class/net/eth0/ifindex": "2\n",
    "class/net/eth0/speed": "10\n",
    "class/net/lo/type": "772\n",
}


class Machine:
    """A machine's files, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys, self.at = folder / "proc", folder / "sys", 100.0
        self.write(PROC, ETH0)

    def write(self, proc: Mapping[str, str], sys: Mapping[str, str] = {}) -> None:
        for root, files in ((self.proc, proc), (self.sys, sys)):
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)

    def groups(self) -> ControlGroups:
        return ControlGroups(self.proc, self.sys)

    def meter(self, nic_gbps: float | None = None) -> ResourceMeter:
        return ResourceMeter(7, nic_gbps, lambda: self.at, self.proc, self.sys)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_control_groups_nothing_is_limited(machine: Machine) -> None:
    assert machine.groups().processor() is None
    assert machine.groups().memory() is None


def test_limits_are_read(machine: Machine) -> None:
    machine.write(
        {},
        {
            "fs/cgroup/cpu.max": "150000 100000\n",
            "fs/cgroup/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
            "fs/cgroup/memory.max": f"{64 * MB}\n",
            "fs/cgroup/memory.current": f"{20 * MB}\n",
            "fs/cgroup/memory.stat": f"anon 5\ninactive_file {4 * MB}\n",
        },
    )
    assert machine.groups().processor() == GroupUse(1.5, 2.5)
    assert machine.groups().memory() == GroupUse(64 * MB, 16 * MB)


def test_the_least_limit_on_the_way_to_the_root_counts_with_its_use(machine: Machine) -> None:
    group = "fs/cgroup/pod/node"
    machine.write(
        {"self/cgroup": "0::/pod/node\n"},
        {
            f"{group}/cpu.max": "max 100000\n",
            f"{group}/cpu.stat": "usage_usec 1000000\n",
            "fs/cgroup/pod/cpu.max": "400000 100000\n",
            "fs/cgroup/pod/cpu.stat": "usage_usec 9000000\n",
            f"{group}/memory.max": "max\n",
            f"{group}/memory.current": "1000\n",
        },
    )
    assert machine.groups().processor() == GroupUse(4.0, 9.0)
    assert machine.groups().memory() is None


@pytest.mark.parametrize("text", ["", "max", "-1 100000", "100000 0", "x y", "0 0"])
def test_what_states_no_limit_is_none(machine: Machine, text: str) -> None:
    machine.write({}, {"fs/cgroup/cpu.max": text, "fs/cgroup/cpu.stat": "usage_usec 1\n"})
    assert machine.groups().processor() is None


@pytest.mark.parametrize("text", ["", "5", "a b c", "-1 5"])
def test_a_thread_s_time_that_is_not_told_is_none(text: str) -> None:
    assert thread_seconds(text) == 0.0


def in_a_second(machine: Machine, meter: ResourceMeter, seconds: float = 1.0) -> Resources:
    machine.at += seconds
    return meter.read()


def test_the_machine_s_memory_and_the_process_s_are_told_in_megabytes(machine: Machine) -> None:
    found = machine.meter().read()
    assert (found.memory.usage, found.memory.limit) == (6.0, 8.0)
    assert (found.direct_memory.usage, found.direct_memory.limit) == (1.0, 8.0)


def test_traffic_is_told_in_kilobits_a_second_of_the_line(machine: Machine) -> None:
    meter = machine.meter()
    machine.write({"net/dev": PROC["net/dev"].replace("1000", "251000").replace(" 500", " 125500")})
    found = in_a_second(machine, meter, 2.0)
    assert (found.bandwidth_in.usage, found.bandwidth_in.limit) == (1000.0, 10_000.0)
    assert (found.bandwidth_out.usage, found.bandwidth_out.limit) == (500.0, 10_000.0)
    assert found.bandwidth_in.percent == pytest.approx(10.0)


def test_the_setting_says_what_a_line_can_do(machine: Machine) -> None:
    assert in_a_second(machine, machine.meter(2.5)).bandwidth_in.limit == 2_500_000.0


@pytest.mark.parametrize("speed", ["-1\n", "Invalid argument", ""])
def test_a_line_of_unknown_speed_is_no_load(machine: Machine, speed: str) -> None:
    machine.write({}, {"class/net/eth0/speed": speed})
    assert in_a_second(machine, machine.meter()).bandwidth_in.percent == 0.0


@pytest.mark.parametrize(
    ("name", "counts"), [("veth1a2b3c", False), ("ens3", True), ("lo", False), ("docker0", False)]
)
def test_only_interfaces_that_lead_outside_count(machine: Machine, name: str, counts: bool) -> None:
    machine.write(
        {"net/dev": PROC["net/dev"].replace("eth0", name)},
        {
            "class/net/ens3/type": "1\n",
            "class/net/ens3/device/vendor": "0x1af4\n",
            "class/net/veth1a2b3c/type": "1\n",
            "class/net/veth1a2b3c/iflink": "9\n",
            "class/net/veth1a2b3c/ifindex": "8\n",
            "class/net/docker0/type": "1\n",
            "class/net/docker0/iflink": "5\n",
            "class/net/docker0/ifindex": "5\n",
        },
    )
    meter = machine.meter()
    machine.write({"net/dev": (machine.proc / "net/dev").read_text().replace("1000", "9000")})
    assert (in_a_second(machine, meter).bandwidth_in.usage > 0) is counts


def test_a_thread_that_ran_or_waited_all_the_time_is_a_node_at_its_limit(machine: Machine) -> None:
    meter = machine.meter()
    machine.write({"self/task/7/schedstat": "1500000000 500000000 9\n"})
    cpu = in_a_second(machine, meter).cpu
    assert (cpu.usage, cpu.limit, cpu.percent) == (100.0, 100.0, 100.0)
    machine.write({"self/task/7/schedstat": "1750000000 500000000 9\n"})
    assert in_a_second(machine, meter).cpu.percent == pytest.approx(25.0)


def test_a_container_at_its_limit_is_told_by_its_group(machine: Machine) -> None:
    group = {
        "fs/cgroup/cpu.max": "200000 100000\n",
        "fs/cgroup/cpu.stat": "usage_usec 1000000\n",
    }
    machine.write({}, group)
    meter = machine.meter()
    machine.write({}, {"fs/cgroup/cpu.stat": "usage_usec 2500000\n"})
    cpu = in_a_second(machine, meter).cpu
    assert cpu.usage == pytest.approx(150.0)
    assert cpu.limit == 200.0


def test_no_time_has_passed_and_nothing_is_there_to_read(tmp_path: Path) -> None:
    meter = ResourceMeter(7, None, lambda: 1.0, tmp_path / "proc", tmp_path / "sys")
    found = meter.read()
    assert [each.percent for each in (found.cpu, found.memory, found.bandwidth_in)] == [0, 0, 0]


def test_this_process_is_measured_on_this_machine() -> None:
    meter = ResourceMeter(threading.get_native_id())
    total = sum(number * number for number in range(200_000))
    found = meter.read()
    assert total
    assert found.cpu.percent > 0
    assert found.direct_memory.usage > 1
    assert found.memory.limit > found.direct_memory.usage
