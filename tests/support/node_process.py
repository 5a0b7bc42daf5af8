"""One node as a process of its own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx

from anabranch.broker.settings import Settings
from support.processes import COMMAND, START_S_MAX, STOP_S_MAX

_LOOK_S = 0.02


class NodeProcess:
    """A running `anabranch node` with these settings; its port is theirs."""

    def __init__(self, settings: Settings, command: Sequence[str] = COMMAND) -> None:
        self.id = settings.broker_id
        self.url = settings.web_url
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self.output = settings.data_dir / "node.out"
        given = settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
        named = {f"ANABRANCH_{name}": str(value) for name, value in given.items()}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "node", "--end-with-parent"],
                env={**os.environ, **named},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def await_ready(self) -> None:
        """Returns once the node serves."""
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.text()
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(_LOOK_S)
        raise AssertionError(f"the node was not ready in time: {self.text()}")

    def text(self) -> str:
        """What it has written."""
        return self.output.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: it tells nobody."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_S_MAX)
        if self.process.stdin is not None:
            self.process.stdin.close()


@contextmanager
def node_process(settings: Settings, command: Sequence[str] = COMMAND) -> Iterator[NodeProcess]:
    """A node that is ready, for as long as the block runs or until it is killed."""
    node = NodeProcess(settings, command)
    try:
        node.await_ready()
        yield node
    finally:
        node.kill()
