"""One node as a process of its own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import httpx

from anabranch.broker.settings import Settings
from support.processes import COMMAND, STOP_S_MAX, awaited


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

        def answer() -> httpx.Response | None:
            with suppress(httpx.TransportError):
                found = httpx.get(f"{self.url}/readyz", timeout=5)
                return found if found.status_code == 200 else None
            return None

        awaited(answer, self.process, self.text)

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
