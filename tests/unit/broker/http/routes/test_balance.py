"""What can be asked of the load balancer: over HTTP and by commands."""

from __future__ import annotations

import json

import pytest

from anabranch.core.balancer import Balancer
from anabranch.core.names import Namespace
from support.balance import give_all, tell
from support.commands import ran
from support.http import HttpNode, on_nodes

SHOW = "/admin/v2/balance"
HOME = Namespace("public/shop")
HITS = "loadBalancerSheddingConditionHitCountThreshold"
STRATEGY = "loadBalancerLoadSheddingStrategy"


def leader_first(nodes: list[HttpNode]) -> list[HttpNode]:
    return sorted(nodes, key=lambda each: not each.node.runtime.core.is_leader())


async def heated(nodes: list[HttpNode]) -> tuple[HttpNode, HttpNode, tuple[str, ...]]:
    """The leader, and a hot broker that has all bundles."""
    leader, hot, *_ = leader_first(nodes)
    bundles = await give_all(hot.node, HOME, 4)
    tell(leader.node, {each.id: 0.1 for each in nodes} | {hot.id: 0.9}, {hot.id: bundles})
    return leader, hot, bundles


def cycles_passed(leader: HttpNode, count: int) -> None:
    """The leader has looked so often, and there was not reason for long enough."""
    runtime, board = leader.node.runtime, leader.node.operations.balance.board
    view = Balancer(runtime.core, runtime.proposals.new_id).view(
        board.known(), board.top(), runtime.now()
    )
    notes, settings, now_ms = runtime.core.balance, board.settings, runtime.core.log_ms
    for _ in range(count):
        notes.shed(view, settings, now_ms)


@on_nodes(3)
async def test_the_leader_tells_how_loads_stand_and_what_it_does(nodes: list[HttpNode]) -> None:
    leader, hot, _bundles = await heated(nodes)
    cycles_passed(leader, 2)
    found = (await leader.http.get(SHOW)).json()
    assert found["leader"] == leader.id
    loads = {each["brokerId"]: each["load"] for each in found["brokers"]}
    assert loads == {each.id: 0.1 for each in nodes} | {hot.id: 0.9}
    assert {each["brokerId"]: each["reportedBundles"] for each in found["brokers"]}[hot.id] == 4
    assert found["average"] == pytest.approx(1.1 / 3)
    assert found["deviation"] == pytest.approx(0.377, abs=1e-3)
    assert (found["hits"], found["prevented"]) == (2, "")
    [cycle] = found["cycles"]
    assert (cycle["ended"], cycle["condition"], cycle["hits"]) == ("HITS", "Overloaded", 3)
    assert (cycle["setting"], found["settings"][HITS]) == (HITS, 3)
    assert (cycle["unloads"], cycle["counted"]) == ([], "HitCount")


@on_nodes(2)
async def test_a_load_that_is_missing_is_named(nodes: list[HttpNode]) -> None:
    leader, other = leader_first(nodes)
    tell(leader.node, {leader.id: 0.5}, {})
    found = (await leader.http.get(SHOW)).json()
    ignored = {each["brokerId"]: each["ignored"] for each in found["brokers"]}
    assert ignored == {leader.id: "", other.id: "it has not been reported yet"}
    assert found["deviation"] == 0
    [cycle] = found["cycles"]
    assert (cycle["ended"], cycle["awaited"]) == ("LOAD_MISSING", [other.id])
    assert cycle["deviation"] is None


@on_nodes(2)
async def test_who_does_not_lead_sends_on_to_the_leader(nodes: list[HttpNode]) -> None:
    leader, other = leader_first(nodes)
    url = leader.node.settings.web_url
    shown = await other.http.get(SHOW)
    assert (shown.status_code, shown.headers["location"]) == (307, url + SHOW)
    assert f"{leader.id} leads" in shown.json()["reason"]


@on_nodes()
async def test_a_broker_alone_has_no_cycles(node: HttpNode) -> None:
    found = (await node.http.get(SHOW)).json()
    assert found["prevented"] == "there are no two brokers that take bundles"
    assert (found["cycles"], found["average"], found["deviation"]) == ([], None, None)


@on_nodes(3)
async def test_the_command_shows_it_in_words_and_as_json(nodes: list[HttpNode]) -> None:
    leader, hot, _ = await heated(nodes)
    before = len(nodes[0].cluster.entries)
    shown, told = await ran(str(leader.http.base_url), "balance show", "balance show --json")
    rows = [line.split() for line in shown.output.splitlines()]
    assert [hot.id, "0.900", "900000", "0", "0", "0", "4"] in [row[:7] for row in rows]
    assert "mean load 0.367, deviation 0.377" in shown.output
    assert "there is a reason to move bundles: Overloaded, in 1 cycle in a row" in shown.output
    assert f"nothing, because it has not been so for enough cycles in a row ({HITS}=3)" in (
        shown.output
    )
    assert json.loads(told.output)["cycles"][0]["ended"] == "HITS"
    assert len(nodes[0].cluster.entries) == before


@on_nodes(3, **{HITS: 0, STRATEGY: "absent", "loadBalancerAdjustedThresholdsEnabled": True})
async def test_it_says_which_bundles_go_by_which_thresholds_and_that_a_strategy_is_not_there(
    nodes: list[HttpNode],
) -> None:
    leader, hot, bundles = await heated(nodes)
    cycles_passed(leader, 11)
    [cycle] = (await leader.http.get(SHOW)).json()["cycles"]
    assert "target deviation 0.125 in place of 0.25" in cycle["thresholds"]
    assert "strategy absent did not decide: it is not installed" in cycle["fault"]
    assert cycle["strategy"] == "", "the built-in one goes on"
    assert cycle["predicted"] < cycle["deviation"]
    [told] = await ran(str(leader.http.base_url), "balance show")
    assert f"  {cycle['fault']}\n  {cycle['thresholds']}\n" in told.output
    assert "cycle 1: moves 1 bundle; deviation 0.377, " in told.output
    assert f"{bundles[0]}  {hot.id}" in told.output
