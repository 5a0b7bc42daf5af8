"""What can be asked of the load balancer: over HTTP and by commands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.admin import AsyncAdmin
from anabranch.core.balancer import Balancer
from anabranch.core.bundles import propose
from anabranch.core.log.grounds import Grounds
from anabranch.core.log.records import Cause
from anabranch.core.names import Namespace
from support.balance import give_all, tell
from support.commands import ran
from support.http import HttpNode, on_nodes
from support.memory_cluster import MemoryCluster
from support.scalable import refused
from support.waiting import eventually

SHOW = "/admin/v2/balance"
PLAN = f"{SHOW}/plan"
HOME = Namespace("public/shop")
HITS = "loadBalancerSheddingConditionHitCountThreshold"
STRATEGY = "loadBalancerLoadSheddingStrategy"
TARGET = "loadBalancerBrokerLoadTargetStd"
GRACE = "loadBalancerSheddingGracePeriodMinutes"


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
    seen = Balancer(runtime.core, runtime.proposals.new_id).seen(
        board.known(), board.top(), runtime.now()
    )
    for _ in range(count):
        runtime.core.balance.shed(runtime.view, seen, board.settings, runtime.log_ms)


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
    assert (found["hits"], found["changed"], found["prevented"]) == (2, {}, "")
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


@on_nodes(3)
async def test_a_plan_tries_other_settings_and_changes_neither_the_log_nor_the_notes(
    nodes: list[HttpNode], cluster: MemoryCluster
) -> None:
    leader, hot, bundles = await heated(nodes)
    cycles_passed(leader, 1)
    core = leader.node.runtime.core
    core.balance._bundles["t/n/x"] = leader.node.runtime.log_ms - 60_000
    before = len(cluster.entries), core.balance.state(core.settings.balance, core.log_now_ms)
    wanted = {HITS: 0, TARGET: "0.05", GRACE: 0.5}
    answer = await leader.http.post(f"{PLAN}?cycles=2", json=wanted)
    assert answer.status_code == 200
    found = answer.json()
    assert found["changed"] == {HITS: 3, TARGET: 0.25, GRACE: 30}
    assert {name: found["settings"][name] for name in wanted} == {HITS: 0, TARGET: 0.05, GRACE: 0.5}
    first, second = found["cycles"]
    assert first["predicted"] < first["deviation"] == found["deviation"]
    assert {each["source"] for each in first["unloads"]} == {hot.id}
    assert {each["bundle"] for each in first["unloads"]} < set(bundles)
    assert (second["ended"], second["awaited"]) == ("COOLING_DOWN", [hot.id])
    now = len(cluster.entries), core.balance.state(core.settings.balance, core.log_now_ms)
    assert (now, now[1].hits) == (before, 1)
    assert "t/n/x" in now[1].unloaded_bundles
    assert leader.node.settings.load_balancer_broker_load_target_std == 0.25
    assert {name for name, _ in leader.node.operations.owned(hot.id)} == set(bundles)


@on_nodes(3)
async def test_a_plan_says_which_thresholds_would_hold_and_that_a_strategy_is_not_there(
    nodes: list[HttpNode],
) -> None:
    leader, _, _ = await heated(nodes)
    cycles_passed(leader, 11)
    wanted = {"loadBalancerAdjustedThresholdsEnabled": True, STRATEGY: "absent"}
    [cycle] = (await leader.http.post(PLAN, json=wanted)).json()["cycles"]
    assert "target deviation 0.125 in place of 0.25" in cycle["thresholds"]
    assert "strategy absent did not decide: it is not installed" in cycle["fault"]
    assert (cycle["strategy"], bool(cycle["unloads"])) == ("", True), "the built-in one goes on"
    sets = f"--set {STRATEGY}=absent --set loadBalancerAdjustedThresholdsEnabled=true"
    [told] = await ran(str(leader.http.base_url), f"balance plan {sets}")
    assert f"  {cycle['fault']}\n  {cycle['thresholds']}\n" in told.output
    [cycle] = (await leader.http.get(SHOW)).json()["cycles"]
    assert (cycle["thresholds"], cycle["fault"]) == ("", "")


@on_nodes(2)
async def test_who_does_not_lead_sends_on_to_the_leader(nodes: list[HttpNode]) -> None:
    leader, other = leader_first(nodes)
    url = leader.node.settings.web_url
    shown = await other.http.get(SHOW)
    assert (shown.status_code, shown.headers["location"]) == (307, url + SHOW)
    assert f"{leader.id} leads" in shown.json()["reason"]
    planned = await other.http.post(f"{PLAN}?cycles=3", json={TARGET: 0.1})
    assert (planned.status_code, planned.headers["location"]) == (307, f"{url}{PLAN}?cycles=3")


@on_nodes()
async def test_every_problem_is_told_and_a_number_of_cycles_too(node: HttpNode) -> None:
    http = node.http
    both = (await http.post(PLAN, json={"nope": 1, TARGET: "x"})).json()["reason"]
    assert "nope is no setting" in both
    assert f"{TARGET} is 'x'" in both
    for cycles in ("0", "101", "some"):
        refused(await http.post(f"{PLAN}?cycles={cycles}", json={}), 400, "cycles")
    nan = await http.post(
        PLAN, content=b'{"%s": NaN}' % TARGET.encode(), headers={"Content-Type": "application/json"}
    )
    assert (nan.status_code, TARGET in nan.text) == (412, True)


REFUSED: list[tuple[Any, int, str]] = [
    ({"loadBalancerBrokerLoadTargetSd": 0.1}, 412, f"did you mean {TARGET}"),
    ({"leaseMillis": 5}, 412, "leaseMillis is no setting of the load balancer"),
    ({"loadBalancerCPUResourceWeight": 2}, 412, "loadBalancerCPUResourceWeight has no part"),
    ({TARGET: "much"}, 412, f"{TARGET} is 'much'"),
    ({TARGET: -1}, 412, f"{TARGET} is -1"),
    ({TARGET: True}, 412, f"{TARGET} is True: it takes no true or false"),
    ({HITS: 1.5}, 412, f"{HITS} is 1.5"),
    ({HITS: [1]}, 412, f"{HITS} is [1]"),
    ({"loadBalancerBrokerMaxTopics": 10**400}, 412, "loadBalancerBrokerMaxTopics must be a number"),
    ({"loadBalancerTransferEnabled": "perhaps"}, 412, "loadBalancerTransferEnabled is 'perhaps'"),
    (
        {"loadBalanceSheddingDelay": "3m", "loadBalanceSheddingDelayInSeconds": 180},
        412,
        "loadBalanceSheddingDelayInSeconds is given twice",
    ),
    ([TARGET], 400, "the body"),
]


@on_nodes(2)
async def test_settings_that_cannot_be_meant_are_refused_by_name_on_every_node(
    nodes: list[HttpNode], cluster: MemoryCluster
) -> None:
    before = len(cluster.entries)
    for given, status, said in REFUSED:
        for node in nodes:
            answer = await node.http.post(PLAN, json=given)
            assert answer.status_code == status, given
            assert said in answer.json()["reason"], given
    assert len(cluster.entries) == before


@on_nodes()
async def test_a_broker_alone_has_no_cycles(node: HttpNode) -> None:
    found = (await node.http.get(SHOW)).json()
    assert found["prevented"] == "there are no two brokers that take bundles"
    assert (found["cycles"], found["average"], found["deviation"]) == ([], None, None)


@on_nodes(2)
async def test_any_node_tells_what_was_done_and_what_came_of_it(nodes: list[HttpNode]) -> None:
    owner, other = nodes
    bundles = await give_all(owner.node, HOME, 2)
    proposals = owner.node.runtime.proposals
    for bundle, cause in zip(bundles, (Cause.OVERLOADED, Cause.OPERATOR), strict=True):
        unit = owner.node.view.unit(bundle)
        assert unit is not None
        grounds = Grounds("Overloaded", 2, 0.5, 0.3, ())
        record = propose.release(
            *(owner.node.runtime.core.actor(), bundle, unit, other.id, proposals.new_id()),
            *(cause, (grounds,)),
        )
        assert record is not None
        await proposals.propose(record, proposals.deadline(5))
    async with AsyncAdmin(str(other.http.base_url)) as admin:

        async def told() -> bool:
            return len((await admin.balance.get_history()).moves) > 0

        await eventually(told)
        found = await admin.balance.get_history(1)
    (move,) = found.moves
    assert (move.move, move.bundle, move.to) == ("RELEASE", bundles[0], other.id)
    assert (move.reason, move.deviation, move.predicted) == ("OVERLOADED", 0.5, 0.3)
    assert move.observed is None
    assert 0 <= found.since_offset < move.offset
    for limit in ("0", "1001", "all"):
        refused(await other.http.get(f"{SHOW}/history?limit={limit}"), 400, "limit")


@on_nodes(3)
async def test_commands_show_and_plan_in_words_and_as_json(nodes: list[HttpNode]) -> None:
    leader, hot, bundles = await heated(nodes)
    before = len(nodes[0].cluster.entries)
    shown, told, planned, document, unknown = await ran(
        str(leader.http.base_url),
        "balance show",
        "balance show --json",
        f"balance plan --set {HITS}=0 --set loadBalancerSheddingExcludedNamespaces=a/b",
        f"balance plan --set {HITS}=0 --cycles 3 --json",
        "balance plan --set loadBalancerTargetStd=1",
    )
    rows = [line.split() for line in shown.output.splitlines()]
    assert [hot.id, "0.900", "900000", "0", "0", "0", "4"] in [row[:7] for row in rows]
    assert "mean load 0.367, deviation 0.377" in shown.output
    assert "there is a reason to move bundles: Overloaded, in 1 cycle in a row" in shown.output
    assert f"nothing, because it has not been so for enough cycles in a row ({HITS}=3)" in (
        shown.output
    )
    assert json.loads(told.output)["cycles"][0]["ended"] == "HITS"
    assert f"{HITS} is 0 in place of 3\n" in planned.output
    assert "loadBalancerSheddingExcludedNamespaces is a/b in place of nothing\n" in planned.output
    assert "cycle 1: moves 1 bundle; deviation 0.377, " in planned.output
    assert f"{bundles[0]}  {hot.id}" in planned.output
    found = json.loads(document.output)
    assert [each["ended"] for each in found["cycles"]][1:] == ["COOLING_DOWN", "COOLING_DOWN"]
    assert unknown.exit_code == 1
    assert "412: loadBalancerTargetStd is no setting of the load balancer" in unknown.errors
    assert len(nodes[0].cluster.entries) == before
