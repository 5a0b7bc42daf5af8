"""A process that is killed while it folds leaves a view that is exactly at some offset."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from anabranch.channel.codec import encode_entity
from anabranch.core.fold.replica import MemoryReplica
from anabranch.projections.view import View
from support.history import History, mixed
from support.waiting import WAIT_S

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[2])}

FOLD = """
    import sys
    from pathlib import Path
    from anabranch.projections.view import View
    from support.history import mixed

    log = mixed(rounds=20)
    view = View.open(Path(sys.argv[1]))
    size = int(sys.argv[2])
    while True:
        start = view.next_offset
        if not view.read_batch(log.entries[start : start + size]):
            break
        print(view.next_offset, flush=True)
    print("end", flush=True)
    sys.stdin.read()
"""

LOAD = """
    import sys
    from pathlib import Path
    from anabranch.projections.view import View
    from support.history import mixed

    log = mixed(rounds=1)
    taken = log.snapshot()
    view = View.open(Path(sys.argv[1]))

    def batches():
        for number, (key, value) in enumerate(taken.values.items()):
            yield [(key.encode(), value)]
            print(number, flush=True)
            if number == len(taken.values) // 2:
                sys.stdin.read()

    view.load_snapshot(batches(), lambda: taken.horizon)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,  # a line that was read ahead would be hidden from select
        env={**os.environ, **ENVIRONMENT},
    )


def next_line(child: subprocess.Popen[bytes]) -> str:
    assert child.stdout is not None
    ready, _, _ = select.select([child.stdout], [], [], WAIT_S)
    assert ready, "the child says nothing"
    return child.stdout.readline().decode().strip()


def kill(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=WAIT_S)


def replay(log: History, next_offset: int) -> MemoryReplica:
    replica = MemoryReplica()
    for entry in log.entries[:next_offset]:
        replica.read(entry.record(), entry.offset, entry.timestamp_ms)
    return replica


def check(view: View, replica: MemoryReplica) -> None:
    assert view.digest == replica.digest
    entities = {key.encode(): encode_entity(value) for key, value in replica.entities.items()}
    assert {key: value for key, value in view.freeze().changes() if value is not None} == entities
    for broker, _ in replica.sessions():
        assert list(view.units_of(broker)) == list(replica.units_of(broker))
        assert view.unit_count(broker) == replica.unit_count(broker)
    assert list(view.unsettled()) == list(replica.unsettled())


def test_a_view_killed_while_it_folds_is_a_replay_of_some_prefix(tmp_path: Path) -> None:
    size, log = 7, mixed(rounds=20)
    choose = random.Random(size)
    child = start(FOLD, str(tmp_path), str(size))
    last = ""
    for _ in range(choose.randrange(1, len(log.entries) // size)):
        last = next_line(child)
        if last == "end":
            break
    kill(child)
    with View.open(tmp_path) as view:
        told = len(log.entries) if last == "end" else int(last)
        assert told <= view.next_offset <= len(log.entries)
        check(view, replay(log, view.next_offset))
        view.read_batch(log.entries)
        check(view, log.state)


def test_a_view_killed_while_it_loads_a_snapshot_is_what_it_was(tmp_path: Path) -> None:
    log = mixed(rounds=1)
    taken = log.snapshot()
    with View.open(tmp_path) as view:
        view.read_batch(log.entries[:30])
    child = start(LOAD, str(tmp_path))
    for number in range(len(taken.values) // 2):
        assert next_line(child) == str(number)
    kill(child)
    with View.open(tmp_path) as view:
        assert view.next_offset == 30
        check(view, replay(log, 30))
        view.load_snapshot([taken.rows], lambda: taken.horizon)
        assert view.digest == log.state.digest
        assert list(view.unsettled()) == list(log.state.unsettled())
