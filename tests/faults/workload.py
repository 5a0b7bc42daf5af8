"""What goes on while things fail: `python3 -m faults.workload NAME`, in a container of its own for
each of `parts.PARTS`, by the SDK of the node's image.

Everything that was asked and answered is a line of the process's history. On SIGTERM producers send
nothing more and wait for what is under way; consumers close; the reader ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch.admin import AsyncAdmin
from anabranch.client import Client
from faults.consumers import Consumers
from faults.history import History
from faults.observer import Observer
from faults.operations import Operation, Operator
from faults.parts import TOPIC, Role, role
from faults.producers import Chains
from faults.reader import drained, read_kafka, read_sink
from faults.sink import Sink

SINK: Final = "sink"


class Part:
    """One process, by what its environment says: where nodes and histories are."""

    def __init__(self, name: str, history: History) -> None:
        self._name = name
        self._history = history
        self._folder = Path(os.environ["HISTORY"])
        self._service_url = os.environ["SERVICE_URL"]
        self._http_url = os.environ["HTTP_URL"]
        self._seed = int(os.environ["SEED"])

    async def run(self) -> None:
        self._history.say("started")
        match role(self._name):
            case Role.PRODUCERS:
                await self._produce()
            case Role.STREAM | Role.QUEUE | Role.CHECKPOINT as kind:
                await self._consume(kind)
            case Role.OPERATOR:
                await self._operate()
            case Role.OBSERVER:
                await self._observe()
            case Role.READER:
                await drained(self._folder, self._history)
                read_sink(self._folder / SINK, self._history)
                async with Client(self._service_url) as client:
                    await read_kafka(client, TOPIC, self._history)
                self._history.say("read")
        self._history.say("stopped")

    async def _produce(self) -> None:
        number = int(self._name.rpartition("-")[2])
        chains = Chains(self._folder, self._history, number - 1, int(os.environ["PRODUCERS"]))
        _on_sigterm(chains.stop)
        async with Client(self._service_url) as client:
            await chains.run(client, TOPIC)

    async def _consume(self, kind: Role) -> None:
        consumers = Consumers(
            self._service_url, Sink(self._folder / SINK), self._history, self._name, self._seed
        )
        running = asyncio.ensure_future(consumers.run(kind))
        _on_sigterm(running.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def _operate(self) -> None:
        async with AsyncAdmin(self._http_url) as admin:
            kinds = [Operation[name] for name in os.environ.get("OPERATIONS", "").split()]
            operator = Operator(admin, self._history, self._seed, kinds or list(Operation))
            _on_sigterm(operator.stop)
            await operator.run()

    async def _observe(self) -> None:
        nodes = self._http_url.removeprefix("http://").split(",")
        observer = Observer([f"http://{node}" for node in nodes], self._history)
        _on_sigterm(observer.stop)
        await observer.run()


def _on_sigterm(stop: Callable[[], object]) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)


async def main(name: str) -> int:
    with History(Path(os.environ["HISTORY"]), name) as history:
        try:
            await Part(name, history).run()
        except Exception as error:
            history.say("fault", why=f"{name}: {type(error).__name__}: {error}")
            raise
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
