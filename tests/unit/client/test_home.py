"""Where something was made: what is left open is told of, and another event loop is refused."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from anabranch.access.home import Home
from anabranch.client import ProducerSettings, WrongLoopError
from anabranch.client._errors import HOME_ERRORS
from support.mock_kafka import MockKafka
from support.still_watch import lone_producer
from support.waiting import WAIT_S

_URL = "pulsar://127.0.0.1:1"
_SYNC = f"from anabranch.client.sync import Client\nclient = Client('{_URL}')\n"
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
from anabranch.client.sync import Client
with Client('{_URL}'), Admin():
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


async def test_an_object_of_another_event_loop_is_refused_and_still_its_own_loop_s() -> None:
    with MockKafka("t0") as kafka:
        producer = await lone_producer(kafka.servers, ProducerSettings(linger_ms=1_000))

        async def elsewhere() -> None:
            for call in (producer.send(b"two", key="k"), producer.close()):
                with pytest.raises(WrongLoopError, match=r"still_watch.py:\d+, belongs to another"):
                    await call

        await asyncio.to_thread(asyncio.run, elsewhere())
        await producer.send(b"one", key="k")
        await producer.close()
