"""Every way of asking a node for something has a row in the table, and every row is for one."""

from __future__ import annotations

import asyncio
import re
import shlex
from typing import Any, Final
from urllib.parse import urlsplit

import click
import pytest
from click.testing import CliRunner

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.http.app import create_api
from anabranch.cli.main import cli
from anabranch.core.security.table import REST, WIRE
from anabranch.wire.commands import name_of
from anabranch.wire.server.server import Peer, Routes
from support.answering import Answer, node
from support.commands import every
from support.proxied import proxied
from support.wire import connected, serving


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """What a node, and a proxy before it, have: REST routes, the proxy's own paths, commands."""
    return asyncio.run(_served())


async def _served() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    async with proxied(count=1) as (proxy, nodes):
        first = nodes[0].node
        api = create_api(first.operations, first.settings, first.metrics)
        found["rest"] = {route.asked for route in api.routes}
        found["proxy's rest"] = {f"GET {path}" for path in vars(proxy.proxy.app)["_own"]}
        async with proxy.client():
            (peer,) = proxy.proxy.wire.peers
            found["proxy's commands"] = {name_of(number) for number in vars(peer)["_routes"]}
        opened: list[Routes] = []

        def open_session(peer: Peer) -> Routes:
            opened.append(sessions(first.operations, first.settings)(peer))
            return opened[0]

        async with serving(open_session) as server, connected(server):
            found["commands"] = {name_of(number) for number in opened[0]}
    return found


def test_every_route_of_rest_has_a_row_and_each_row_is_for_one(served: dict[str, set[str]]) -> None:
    assert set(REST) == served["rest"]
    assert served["proxy's rest"] <= set(REST)


def test_each_binary_command_has_a_row_and_each_row_is_for_one(served: dict[str, set[str]]) -> None:
    assert set(WIRE) == served["commands"]
    assert served["proxy's commands"] <= set(WIRE)


# Each thing that the command line does, by its words.
LEAVES: Final[dict[str, Any]] = {
    name: command
    for name, command in every(cli)
    if not isinstance(command, click.Group) or (name and command.invoke_without_command)
}


def example(name: str) -> list[str]:
    """The words after `anabranch` of the example in a command's help."""
    _, _, line = LEAVES[name].epilog.partition("Example: anabranch ")
    words: list[str] = shlex.split(re.split(r"\n| [|<] ", line)[0])
    assert words[: len(name.split())] == name.split(), line
    return words


ASKING: Final = [
    name
    for name, command in LEAVES.items()
    if name not in ("lookup", "doctor", "demo")
    and any(each.name == "url" for each in command.params)
]


@pytest.mark.parametrize("name", ASKING)
def test_a_command_s_example_asks_for_something_that_has_a_row(name: str) -> None:
    asked: list[str] = []

    def refuse(verb: str, path: str) -> Answer:
        asked.append(f"{verb} {urlsplit(path).path}")
        return 403, {}, {"reason": "no"}

    with node(refuse) as url:
        found = CliRunner().invoke(cli, [*example(name), "--url", url], input="")
    assert asked, found.output
    forms = [re.sub(r"\\{\w+\\}", "[^/]+", re.escape(row)) for row in REST]
    assert any(re.fullmatch(form, asked[0]) for form in forms), asked
