"""Asks all nodes at once to make the same tenant, again and again: at most one may be told that it
did. Who is told otherwise has lost a race that only the log decides; who is told nothing of use,
since its node has failed or is cut off, may have won or not.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import httpx

from faults.history import History
from faults.promises import Line, Promise, Violation

EVERY_S: Final = 2.0
ANSWER_S: Final = 10.0
CLUSTER: Final = "standalone"


class Rivals:
    """`nodes`: their HTTP addresses, each of which is a rival."""

    def __init__(self, nodes: Sequence[str], history: History) -> None:
        self._nodes = nodes
        self._history = history

    async def run(self) -> None:
        """Until it is cancelled. Names are never used twice, by a killed process neither."""
        began = 1 + max(
            (line["round"] for line in self._history.past if "round" in line), default=0
        )
        async with httpx.AsyncClient(timeout=ANSWER_S) as client:
            for number in itertools.count(began):
                name = f"rivals-{number}"
                self._history.say("contested", tenant=name, round=number)
                await asyncio.gather(*(self._claim(client, node, name) for node in self._nodes))
                await asyncio.sleep(EVERY_S)

    async def _claim(self, client: httpx.AsyncClient, node: str, name: str) -> None:
        rival = httpx.URL(node).host
        try:
            answer = await client.put(
                f"{node}/admin/v2/tenants/{name}",
                json={"adminRoles": [rival], "allowedClusters": [CLUSTER]},
            )
        except httpx.HTTPError as error:
            self._history.say("claimed", tenant=name, node=rival, status=0, why=str(error))
        else:
            self._history.say("claimed", tenant=name, node=rival, status=answer.status_code)


def judged(lines: Sequence[Line]) -> Iterator[Violation]:
    """A tenant that more than one was told to have made."""
    granted: defaultdict[str, list[str]] = defaultdict(list)
    for line in lines:
        if line["what"] == "claimed" and line["status"] in (httpx.codes.OK, httpx.codes.NO_CONTENT):
            granted[line["tenant"]].append(line["node"])
            if len(granted[line["tenant"]]) > 1:
                what = f"tenant {line['tenant']} was made by {granted[line['tenant']]} at once"
                yield Violation(Promise.GRANTED_TWICE, what, line["at"])
