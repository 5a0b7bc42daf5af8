"""Bodies that are as large and as wrong as a route lets them be: none is answered at length.

Run with `-s`, it prints how long each route's worst takes on the loop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from time import thread_time
from typing import Any, Final

import httpx

from anabranch.broker.http.app import create_api
from anabranch.broker.http.bodies import BODIES, ORDINARY, BodyLimit
from support.binary import one_node
from support.circles import nothing_left_in_a_circle

PLACES: Final = {
    "tenant": "public",
    "namespace": "default",
    "cluster": "standalone",
    "role": "ada",
    "bundle": "0x00000000_0xffffffff",
    "policy": "p",
    "domain": "d",
    "topic": "t",
    "subscription": "s",
    "descriptor": "0000-ffff-0",
}
ANSWER_BYTES_MAX: Final = 4_096
JSON: Final = {"Content-Type": "application/json"}
WRONG: Final = {400, 404, 409, 412, 413}


def described(api: Any) -> Iterator[tuple[str, list[str]]]:
    """Each route with a body, and the names of what may be in that."""
    found = api.openapi()
    for path, verbs in found["paths"].items():
        for verb, route in verbs.items():
            if "requestBody" not in route:
                continue
            schema = route["requestBody"]["content"]["application/json"]["schema"]
            name = re.search(r"schemas/(\w+)", str(schema))
            part = found["components"]["schemas"][name[1]] if name else {}
            words = re.findall(r"\w+", route["requestBody"].get("description", ""))
            yield f"{verb.upper()} {path}", [*part.get("properties", words[-3:]), "x"]


def hostile(names: list[str], limit: BodyLimit) -> Iterator[bytes]:
    """Bodies up to that limit, and one that is beyond."""
    size, count = limit.bytes_max - 100, limit.values_max - 3
    ones, text = [1] * min(count, size // 3), "x" * size
    half = [text[: size // (len(ones) + 1) - 4]] * len(ones)
    yield json.dumps([1] * 400_000).encode()
    for said in (
        *(ones, half, text, {text: 1}, {f"{each:x}": 1 for each in range(min(count, size // 9))}),
        [{"a": []}] * (count // 3),
        *({name: value} for name in names for value in (ones, half, text, {text: text[:9]})),
    ):
        yield json.dumps(said).encode()[: limit.bytes_max]
    yield b"[" * limit.bytes_max
    yield b"1" * limit.bytes_max
    yield b"\xff" * limit.bytes_max


async def test_no_body_is_answered_at_length_or_kept() -> None:
    async with one_node() as node:
        api = create_api(node.operations, node.settings, node.metrics)
        routes = dict(described(api))
        assert BODIES.keys() <= routes.keys()
        transport = httpx.ASGITransport(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://b1:8080") as http:
            with nothing_left_in_a_circle():
                for request, names in routes.items():
                    verb, path = request.split(" ")
                    place = re.sub(r"{(\w+)}", lambda name: PLACES[name[1]], path)
                    worst = (0.0, 0, b"")
                    for body in hostile(names, BODIES.get(request, ORDINARY)):
                        began = thread_time()
                        answer = await http.request(verb, place, content=body, headers=JSON)
                        took = thread_time() - began
                        worst = max(worst, (took, answer.status_code, body[:40]))
                        told = (request, body[:60], answer.status_code, answer.text[:300])
                        assert answer.status_code in WRONG, told
                        assert len(answer.content) <= ANSWER_BYTES_MAX, told
                    print(f"{worst[0] * 1e3:6.1f} ms {request} {worst[1]} {worst[2]!r}")  # noqa: T201 - for `-s`
