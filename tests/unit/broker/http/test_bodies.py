"""Bodies that are as large and as wrong as a node lets them be: none is answered at length.

Run with `-s`, it prints how long each route's worst takes on the loop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from time import thread_time
from typing import Final

import httpx

from anabranch.broker.http.app import create_api
from anabranch.broker.http.routing import Place
from support.binary import one_node
from support.circles import nothing_left_in_a_circle
from support.http import PLACES

ANSWER_BYTES_MAX: Final = 4_096
SIZE: Final = (1 << 20) - 100
JSON: Final = {"Content-Type": "application/json"}
WRONG: Final = {400, 404, 412}


def hostile(names: list[str]) -> Iterator[bytes]:
    """Bodies up to the limit of every request."""
    ones, text = [1] * (SIZE // 3), "x" * (SIZE - 100)
    for said in (
        *(ones, text, {text: 1}, {f"{each:x}": 1 for each in range(SIZE // 12)}),
        [{"a": []}] * (SIZE // 12),
        *({name: value} for name in names for value in (ones, text)),
    ):
        yield json.dumps(said).encode()[:SIZE]
    yield b"[" * SIZE
    yield b"1" * SIZE
    yield b"\xff" * SIZE


async def test_no_body_is_answered_at_length_or_kept() -> None:
    async with one_node() as node:
        api = create_api(node.operations, node.settings, node.metrics)
        transport = httpx.ASGITransport(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://b1:8080") as http:
            with nothing_left_in_a_circle():
                for route in api.routes:
                    bodies = [each for each in route.parameters if each.place is Place.BODY]
                    names = [name for each in bodies for name in _fields(each.kind)]
                    place = re.sub(r"{(\w+)}", lambda name: PLACES[name[1]], route.path)
                    worst = (0.0, 0, b"")
                    for body in hostile(names) if bodies else ():
                        began = thread_time()
                        answer = await http.request(route.verb, place, content=body, headers=JSON)
                        took = thread_time() - began
                        worst = max(worst, (took, answer.status_code, body[:40]))
                        told = (route.asked, body[:60], answer.status_code, answer.text[:300])
                        assert answer.status_code in WRONG, told
                        assert len(answer.content) <= ANSWER_BYTES_MAX, told
                    if bodies:
                        print(f"{worst[0] * 1e3:6.1f} ms {route.asked} {worst[1:]}")  # noqa: T201 - for `-s`


def _fields(kind: object) -> tuple[str, ...]:
    found = re.search(r"(\w+Wanted)", str(kind))
    return getattr(kind, "__struct_encode_fields__", ("bundles", "x")) if found else ("x",)
