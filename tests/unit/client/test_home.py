"""Where something was made: what is left open is told of, and its end comes from any event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from anabranch.access.home import Home
from anabranch.client import ProducerSettings, WrongLoopError
from anabranch.client._errors import HOME_ERRORS
from support.mock_kafka import MockKafka
from support.still_watch import lone_producer
from support.waiting import WAIT_S

_URL = "pulsar://127.0.0.1:1"
_CLOSE_S_MAX = 5.0
_SYNC = f"from anabranch.client.sync import connect\nclient = connect('{_URL}')\n"
_ASYNC = f"""import asyncio
from anabranch import client as sdk
async def main():
    client = sdk.Client('{_URL}')
    try:
        await client.create_producer('topic://public/default/t')
    except sdk.NodesUnreachableError:
        pass
asyncio.run(main())
"""
_LEAVES = f"""import os, sys
from anabranch.admin import Admin
from anabranch.client.sync import connect
with connect('{_URL}'), Admin():
    if os.fork() == 0:
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.parametrize(
    ("program", "line"),
    [(_SYNC, 2), (f"{_SYNC}del client\nimport gc, time\ngc.collect()\n", 2), (_ASYNC, 4)],
)
def test_a_client_that_is_never_closed_is_told_of_with_where_it_was_made(
    program: str, line: int, tmp_path: Path
) -> None:
    path = tmp_path / "program.py"
    told = _run(path, program).stderr
    where = f"{path}:{line}"
    assert f"{where}: ResourceWarning: the client of {_URL}, made at {where}, was never" in told
    assert told.count("was never closed") == 1


def test_a_child_that_leaves_by_an_error_ends_with_that_one(tmp_path: Path) -> None:
    program = _run(tmp_path / "program.py", _LEAVES)
    assert (program.stdout, program.stderr) == ("7\n", "")


def _run(path: Path, program: str) -> subprocess.CompletedProcess[str]:
    path.write_text(program)
    command = [sys.executable, "-W", "always::ResourceWarning", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)


class _Owner:
    pass


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_frees_nothing_that_it_has_of_its_parent() -> None:
    """librdkafka would wait for threads that are not there, or end the child."""
    owner = _Owner()
    home = Home(owner, "it", HOME_ERRORS)
    seen = weakref.ref(owner)
    child = os.fork()
    del owner
    gc.collect()
    if child == 0:
        os._exit(0 if seen() is not None and home.is_forked else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert seen() is None


@contextmanager
def _state_of(runner: asyncio.Runner, state: str) -> Iterator[None]:
    """Its loop is closed, or runs on a thread, or neither."""
    loop = runner.get_loop()
    thread = threading.Thread(target=loop.run_forever)
    if state == "closed":
        runner.close()
    if state == "running":
        thread.start()
    yield
    if state == "running":
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")  # of a closed loop
@pytest.mark.parametrize("state", ["closed", "idle", "running"])
def test_what_was_sent_is_on_kafka_when_another_loop_has_closed_it_if_its_own_runs(
    state: str,
) -> None:
    with MockKafka("t0") as kafka, asyncio.Runner() as runner:
        producer = runner.run(lone_producer(kafka.servers, ProducerSettings(linger_ms=1_000)))
        runner.run(producer.post(b"one", key="k"))

        async def elsewhere() -> None:
            with pytest.raises(WrongLoopError, match=r"still_watch.py:\d+, belongs to another"):
                producer.send_nowait(b"two", key="k")
            async with asyncio.timeout(_CLOSE_S_MAX):
                await producer.close()

        with _state_of(runner, state):
            asyncio.run(elsewhere())
        gc.collect()
        assert _stored(kafka) == (0 if state == "closed" else 1)


def _stored(kafka: MockKafka) -> int:
    reader = Consumer({"bootstrap.servers": kafka.servers, "group.id": "g", "log_level": 0})
    try:
        ends = (reader.get_watermark_offsets(TopicPartition("t0", n), WAIT_S) for n in range(4))
        return sum(end for _, end in ends)
    finally:
        reader.close()
