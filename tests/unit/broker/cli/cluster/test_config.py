"""`anabranch config` against nodes' real HTTP interfaces."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE

from support.http import HttpNode, with_http
from support.memory_cluster import WAIT_S, MemoryCluster

LOOKUP = "lookupTimeoutMillis"


async def config(node: HttpNode, *arguments: str | bytes) -> tuple[int, str, str]:
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
            (LOOKUP, ".", "'.' is no name, and no value"),
            (LOOKUP, "..", "'..' is no name, and no value"),
            (LOOKUP, "../..", "'../..'"),
            (LOOKUP, "%", "'%'"),
            (LOOKUP, "%2E%2E", "'%2E%2E'"),
            (LOOKUP, "5?a=b#c", "'5?a=b#c'"),
            (LOOKUP, "5 fortnights", "write a number and one of ms, s, m, h, d"),
            (LOOKUP, b"\xff", "is no text: write it in UTF-8"),
            ("..", "5", "'..' is no setting"),
            ("zzzz", "5", "'zzzz' is no setting; `anabranch settings` lists those"),
            ("", "5", "'' is no setting"),
            ("look/up", "5", "'look/up' is no setting"),
            ("leaseMillis", "9000", "changes when a node starts"),
        ):
            code, output, errors = await config(nodes[0], "set", name, value)
            assert (code in (1, 2), output) == (True, ""), (value, errors)
            assert said in errors
            assert "Traceback" not in errors
        assert list(nodes[0].node.view.overrides()) == []

    with_http(test)


def test_a_value_with_a_unit_or_of_odd_signs_is_set_where_it_is_good() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        excluded = "loadBalancerSheddingExcludedNamespaces"
        for name, value, plain in (
            (LOOKUP, "5s", "5000"),
            ("maxTopicListInFlightHeapMemSizeMB", "64MB", "64"),
            (excluded, "public/default,a/b", "public/default,a/b"),
            (excluded, "", ""),
        ):
            code, _, errors = await config(nodes[0], "set", name, value)
            assert (code, errors) == (0, "")
            assert dict(nodes[0].node.view.overrides())[name].value == plain
        assert (await config(nodes[0], "unset", ".."))[0] == 2

    with_http(test)
