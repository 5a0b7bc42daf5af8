"""Moves and splits by hand: of a topic's bundle, of the largest one, between topics."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.names import Namespace
from anabranch.core.ring import split_bundle_name, topic_hash
from support.commands import ran
from support.http import HttpNode, http_nodes
from support.memory_cluster import MemoryCluster

HOME = "/admin/v2/namespaces/public/default"
DEFAULT = Namespace("public/default")


async def owner(node: HttpNode, bundle: str) -> str:
    found = (await node.http.get(f"{HOME}/bundles/ownership")).json()["bundles"]
    return next(str(each["broker"]) for each in found if each["bundle"] == bundle)


async def made(nodes: list[HttpNode], topic: str) -> None:
    """A scalable topic; the node that controls it makes it."""
    answers = [await node.http.put(f"/admin/v2/scalable/public/default/{topic}") for node in nodes]
    assert 204 in [answer.status_code for answer in answers]


async def moved(node: HttpNode, domain: str, topic: str, to: str) -> tuple[int, str]:
    path = f"/admin/v2/{domain}/public/default/{topic}/unload"
    answer = await node.http.put(path, params={"destinationBroker": to} if to else {})
    return answer.status_code, answer.text


async def ranges(node: HttpNode) -> list[str]:
    answer = await node.http.get(f"{HOME}/bundles/ownership")
    return [str(each["bundle"]) for each in answer.json()["bundles"]]


def placed(found: list[str], names: Iterable[str]) -> dict[str, list[str]]:
    """Topics by the bundle that they fall into, in the order of the ring."""
    at = {name: topic_hash(f"topic://{DEFAULT}/{name}") for name in names}
    return {
        home: sorted((n for n in at if at[n] in whole), key=lambda n: at[n])
        for home, whole in {r: split_bundle_name(f"{DEFAULT}/{r}")[1] for r in found}.items()
    }


async def test_a_scalable_topic_must_be_there_and_its_domain_one() -> None:
    async with http_nodes(2) as (nodes, _):
        status, said = await moved(nodes[0], "scalable", "t", "")
        assert (status, "topic://public/default/t not found" in said) == (404, True)
        await made(nodes, "t")
        target = nodes[1].id
        assert (await moved(nodes[0], "scalable", "t", target))[0] == 204
        bundle = (await nodes[0].http.get("/lookup/v2/topic/topic/public/default/t/bundle")).text
        assert await owner(nodes[0], bundle) == target
        assert (await moved(nodes[0], "queues", "t", ""))[0] == 404
        missing = await nodes[0].http.put("/admin/v2/persistent/public/nothing/t/unload")
        assert missing.status_code == 404


async def split(node: HttpNode, bundle: str, **query: Any) -> tuple[int, str]:
    answer = await node.http.put(f"{HOME}/{bundle}/split", params=query)
    return answer.status_code, answer.text


async def test_the_largest_bundle_is_cut_between_its_topics() -> None:
    async with http_nodes() as (nodes, _):
        status, said = await split(nodes[0], "LARGEST")
        assert (status, "LARGEST not found" in said) == (404, True)
        names = [f"t{number}" for number in range(9)]
        for name in names:
            await made(nodes, name)
        before = placed(await ranges(nodes[0]), names)
        done = await split(nodes[0], "LARGEST", splitAlgorithmName="topic_count_equally_divide")
        assert done == (204, "")
        after = placed(await ranges(nodes[0]), names)
        (gone,) = before.keys() - after.keys()
        assert len(before[gone]) == max(map(len, before.values()))
        one, other = (after[part] for part in after.keys() - before.keys())
        assert abs(len(one) - len(other)) <= 1
        assert {*one, *other} == set(before[gone])


REFUSED = (
    ("HOT", "range_equally_divide", 404, "no scalable topic with traffic; name a range"),
    ("LARGEST", "flow_or_qps_equally_divide", 404, "has no scalable topics; name a range"),
    ("hot", "range_equally_divide", 412, "0x00000000_0x40000000 (8 lower-case hex digits)"),
    ("0x00000000_0x40000000", "flow_or_qps", 412, "specified_positions_divide, flow_or_qps_eq"),
    ("0x00000000_0x40000000", "flow_or_qps_equally_divide", 412, "fewer than two scalable"),
    ("0x00000000_0x50000000", "topic_count_equally_divide", 412, "Cannot find bundle"),
)


async def test_what_cannot_be_split_so_is_refused() -> None:
    async with http_nodes() as (nodes, _):
        for bundle, algorithm, status, said in REFUSED:
            found = await split(nodes[0], bundle, splitAlgorithmName=algorithm)
            assert (found[0], said in found[1]) == (status, True), found


async def test_a_node_that_has_not_read_the_loads_yet_says_so() -> None:
    async with http_nodes() as (nodes, cluster):
        await made(nodes, "t")
        cluster.loads[f"{DEFAULT}/t"] = None
        status, said = await split(nodes[0], "HOT")
        assert (status, "has not read the loads of segments yet" in said) == (503, True)


def loaded(cluster: MemoryCluster, topic: str, rate: float, of_bytes: float = 0.0) -> None:
    """The first segment's load: so much comes in, and as much goes out."""
    load = SegmentLoad(rate, of_bytes, rate, of_bytes, cluster.log_ms)
    cluster.loads[f"{DEFAULT}/{topic}"] = {0: load}


async def test_the_hot_bundle_is_the_one_with_the_most_traffic_not_the_most_topics() -> None:
    async with http_nodes(2) as (nodes, cluster):
        before = await ranges(nodes[0])
        names = [f"t{number}" for number in range(9)]
        homes = placed(before, names)
        largest = max(homes, key=lambda home: len(homes[home]))
        hot = next(home for home, there in homes.items() if there and home != largest)
        for name in names:
            await made(nodes, name)
        status, said = await split(nodes[1], "HOT")
        assert (status, "no scalable topic with traffic" in said) == (404, True)
        for name in homes[largest]:
            loaded(cluster, name, 10.0, 1_000.0)
        loaded(cluster, homes[hot][0], 1.0, 1e6)
        assert await split(nodes[1], "HOT") == (204, "")  # whoever owns it, any node knows
        assert set(before) - set(await ranges(nodes[0])) == {hot}


async def test_a_bundle_is_cut_wherever_its_traffic_would_be_too_much_for_one() -> None:
    async with http_nodes(loadBalancerNamespaceBundleMaxMsgRate=80) as (nodes, cluster):
        before = await ranges(nodes[0])
        names = [f"t{number}" for number in range(12)]
        homes = placed(before, names)
        home = max(homes, key=lambda each: len(homes[each]))
        there = homes[home]
        assert len(there) >= 4
        for name in there:
            await made(nodes, name)
            loaded(cluster, name, 20.0)  # 40 messages/s, in and out
        flow = {"splitAlgorithmName": "flow_or_qps_equally_divide"}
        by_flow = "--algorithm flow_or_qps_equally_divide"
        [done] = await ran(
            str(nodes[0].http.base_url), f"bundles split public/default HOT {by_flow}"
        )
        assert done.exit_code == 0, done.errors
        after = placed(await ranges(nodes[0]), names)
        parts = [found for found in after.values() if set(found) & set(there)]
        assert all(len(found) <= 2 for found in parts)
        assert sorted(name for found in parts for name in found) == sorted(there)
        quiet = next(part for part, found in after.items() if found == there[:2])
        status, said = await split(nodes[0], quiet, **flow)
        assert (status, "sees no reason to cut" in said, "80 messages/s" in said) == (
            412,
            True,
            True,
        )


async def test_the_commands_move_and_split() -> None:
    async with http_nodes(2) as (nodes, _):
        url, other = str(nodes[0].http.base_url), nodes[1].id
        bundle = "0x00000000_0x40000000"
        await nodes[0].http.get("/lookup/v2/topic/persistent/public/default/topic-1")
        done = await ran(
            url,
            f"bundles transfer public/default {bundle} {other}",
            "bundles public/default",
            "bundles list public/default --json",
            "bundles --json",
            f"bundles unload public/default {bundle}",
            f"topics unload persistent://public/default/topic-1 --dest {other}",
            "topics unload persistent://public/default/topic-1",
            f"bundles split public/default {bundle} --at 268435456",
        )
        assert [each for each in done if each.exit_code] == []
        texts = [each.output for each in done]
        assert texts[0] == f"bundle {bundle} of public/default belongs to {other}\n"
        assert texts[1].splitlines()[1].split()[:3] == [bundle, "OWNED", other]
        assert json.loads(texts[2]) == json.loads(texts[3])
        whose = "the bundle of persistent://public/default/topic-1"
        assert texts[5:7] == [f"{whose} belongs to {other}\n", f"{whose} is unloaded\n"]
        assert texts[7] == (
            f"bundle {bundle} is split into 2 parts: 0x00000000_0x10000000, 0x10000000_0x40000000\n"
        )
