"""`anabranch config` against nodes' real HTTP interfaces."""

from __future__ import annotations

import json

from support.commands import Done, ran
from support.http import HttpNode, on_nodes

LOOKUP = "lookupTimeoutMillis"
EXCLUDED = "loadBalancerSheddingExcludedNamespaces"


async def config(node: HttpNode, *commands: tuple[str, ...]) -> list[Done]:
    return await ran(str(node.http.base_url), *(("config", *words) for words in commands))


@on_nodes(2)
async def test_what_is_set_at_one_node_is_unset_at_another(nodes: list[HttpNode]) -> None:
    first, second = nodes
    assert await config(first, ("set", LOOKUP, "1234")) == [(0, f"{LOOKUP} is set\n", "")]
    words, document, unset = await config(second, ("list",), ("list", "--json"), ("unset", LOOKUP))
    assert words.output.splitlines()[1].split()[:3] == [LOOKUP, "1234", "-"]
    assert (json.loads(document.output)[LOOKUP]["broker"], unset.exit_code) == (first.id, 0)
    (left,) = await config(first, ("list", "--json"))
    assert json.loads(left.output) == {}


@on_nodes()
async def test_what_cannot_be_used_ends_in_words(node: HttpNode) -> None:
    cases = (
        (LOOKUP, "", "Invalid dynamic-config value"),
        (LOOKUP, "1/2", "'1/2'"),
        (LOOKUP, "..", "'..' is no name, and no value"),
        (LOOKUP, "5?a=b#c", "'5?a=b#c'"),
        (LOOKUP, "\udcff", "is no text: write it in UTF-8"),  # as Python has a byte that is none
        ("zzzz", "5", "'zzzz' is no setting; `anabranch settings` lists those"),
    )
    done = await config(node, *(("set", name, value) for name, value, _ in cases))
    for (name, value, said), found in zip(cases, done, strict=True):
        assert (found.exit_code in (1, 2), found.output) == (True, ""), (name, value)
        assert said in found.errors, (name, value)
    assert list(node.node.view.overrides()) == []


@on_nodes()
async def test_a_value_with_a_unit_or_of_odd_signs_is_set_where_it_is_good(node: HttpNode) -> None:
    for name, value, plain in (
        (LOOKUP, "5s", "5000"),
        ("maxTopicListInFlightHeapMemSizeMB", "64MB", "64"),
        (EXCLUDED, "public/default,a/b", "public/default,a/b"),
        (EXCLUDED, "", ""),
    ):
        (done,) = await config(node, ("set", name, value))
        assert (done.exit_code, done.errors) == (0, "")
        assert dict(node.node.view.overrides())[name].value == plain
