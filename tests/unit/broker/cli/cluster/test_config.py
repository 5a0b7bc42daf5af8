"""`anabranch config` against nodes' real HTTP interfaces."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE

from support.http import HttpNode, with_http
from support.memory_cluster import WAIT_S, MemoryCluster

LOOKUP = "lookupTimeoutMillis"


async def config(node: HttpNode, *arguments: str) -> tuple[int, str, str]:
    """The command in a process of its own: its code, and what it said on either stream."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "anabranch.broker.cli", "config", *arguments),
        *("--url", str(node.http.base_url)),
        stdout=PIPE,
        stderr=PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), WAIT_S)
    return process.returncode or 0, output.decode(), errors.decode()


def test_what_is_set_at_one_node_is_listed_at_another_and_unset_there() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        first, second = nodes
        assert await config(first, "set", LOOKUP, "1234") == (0, f"{LOOKUP} is set\n", "")
        code, output, _ = await config(second, "list")
        assert code == 0
        assert output.splitlines()[1].split()[:3] == [LOOKUP, "1234", "-"]
        _, output, _ = await config(second, "list", "--json")
        assert json.loads(output)[LOOKUP]["broker"] == first.id
        assert (await config(second, "unset", LOOKUP))[0] == 0
        assert json.loads((await config(first, "list", "--json"))[1]) == {}

    with_http(test, 2)


def test_what_cannot_be_used_ends_in_the_nodes_words() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        for name, value, said in (
            (LOOKUP, "-1", "Invalid dynamic-config value"),
            (LOOKUP, "", "Invalid dynamic-config value"),
            (LOOKUP, "1/2", "'1/2'"),
            (LOOKUP, "1\n2", "no character to print"),
            ("leaseMillis", "9000", "changes when a node starts"),
        ):
            code, output, errors = await config(nodes[0], "set", name, value)
            assert (code, output) == (1, ""), (value, errors)
            assert said in errors
            assert "Traceback" not in errors
        assert list(nodes[0].node.view.overrides()) == []

    with_http(test)
