"""Processor seconds of each test, those of the processes that it starts included.

    PYTHONPATH=tests .venv/bin/pytest -p support.costs ...
    PYTHONPATH=tests .venv/bin/python -m support.costs

The first writes a row for each test into `build/costs`; the second prints them as tables. A process
is looked at each half second, so the last moments of one that ends count as `ended`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import pytest

FOLDER = Path("build/costs")
_LOOK_S = 0.5
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_JAVA = {"kafka.Kafka": "kafka", "org.apache.spark": "spark"}


class ProcessTree:
    """This process and all below it: what each kind of them has used so far, in seconds."""

    def __init__(self) -> None:
        self._used: dict[tuple[int, int], tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._unseen = 0.0
        self.started: Counter[str] = Counter()

    def look(self) -> dict[str, float]:
        """Seconds by kind; those whose kind nobody saw are `ended`."""
        with self._lock:
            total = 0.0  # of those that run, and of those whose parent has waited for them
            for pid, start, own, children, kind in _tree(os.getpid()):
                if (pid, start) not in self._used:
                    self.started[kind] += 1
                self._used[pid, start] = (kind, own)
                total += own + children
            seconds: dict[str, float] = defaultdict(float)
            for kind, used in self._used.values():
                seconds[kind] += used
            self._unseen = max(self._unseen, total - sum(seconds.values()))
            seconds["ended"] += self._unseen
            seconds["wall"] = time.monotonic()
            return seconds


def _tree(root: int) -> Iterator[tuple[int, int, float, float, str]]:
    children_of: dict[int, list[int]] = defaultdict(list)
    rows: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            rows[int(entry.name)] = fields
            children_of[int(fields[1])].append(int(entry.name))
    level = [root]
    while level:
        pid = level.pop()
        level += children_of[pid]
        if row := rows.get(pid):
            own = (int(row[11]) + int(row[12])) / _TICKS_PER_S
            children = (int(row[13]) + int(row[14])) / _TICKS_PER_S
            yield pid, int(row[19]), own, children, _kind(pid, root)


def _kind(pid: int, root: int) -> str:
    if pid == root:
        return "tests"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "ended"
    for word, kind in _JAVA.items():
        if word in command:
            return kind
    if "pyspark" in command:
        return "spark python"
    if "anabranch" in command:
        return "nodes and commands"
    return "java" if command.split()[:1] and "java" in command.split()[0] else "others"


class Costs:
    """Writes a row for each test when it has ended, its fixtures included."""

    def __init__(self, worker: str) -> None:
        self._tree = ProcessTree()
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._file = (FOLDER / f"{worker}-{os.getpid()}.jsonl").open("w")
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._tree.look()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before, began = self._tree.look(), dict(self._tree.started)
        result = yield
        row = {
            "test": item.nodeid,
            "seconds": {k: round(v - before.get(k, 0.0), 2) for k, v in self._tree.look().items()},
            "started": {k: v - began.get(k, 0) for k, v in self._tree.started.items()},
        }
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        return result

    def pytest_unconfigure(self) -> None:
        self._ended.set()
        self._file.close()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(getattr(config, "workerinput", {}).get("workerid", "main")))


def _table(title: str, rows: Mapping[str, Counter[str]], most: int) -> None:
    kinds = sorted({kind for row in rows.values() for kind in row} - {"wall"})
    head = " ".join(f"{kind:>18}" for kind in kinds)
    sys.stdout.write(f"\n{title}\n{'sum':>8} {'wall':>8} {head}\n")
    for name, row in sorted(rows.items(), key=lambda pair: -_sum(pair[1]))[:most]:
        seconds = " ".join(f"{row[kind]:18.1f}" for kind in kinds)
        sys.stdout.write(f"{_sum(row):8.1f} {row['wall']:8.1f} {seconds}  {name}\n")


def _sum(row: Mapping[str, float]) -> float:
    return sum(seconds for kind, seconds in row.items() if kind != "wall")


def main() -> None:
    """Prints what was written: by kind of test, by file, by test; and what was started."""
    by: dict[str, dict[str, Counter[str]]] = {
        name: defaultdict(Counter) for name in ("kind", "file", "test")
    }
    started: dict[str, Counter[str]] = defaultdict(Counter)
    for path in FOLDER.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            file = row["test"].partition("::")[0]
            kind = file.split("/")[1]
            for key, name in (("kind", kind), ("file", file), ("test", row["test"])):
                by[key][name].update(row["seconds"])
            started[kind].update({k: n for k, n in row["started"].items() if n})
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for name, rows in by.items():
        _table(f"processor seconds by {name}", rows, most)
    sys.stdout.write("\nprocesses started\n")
    for kind, counts in started.items():
        sys.stdout.write(f"{kind}: {dict(counts)}\n")


if __name__ == "__main__":
    main()
