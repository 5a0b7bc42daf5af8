"""Moves and splits by hand: of a topic's bundle, of the largest one, between topics."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click
import pytest

from anabranch.broker.cli.shared.watching import watched
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.names import Namespace
from anabranch.core.ring import split_bundle_name, topic_hash
from support.commands import ran
from support.http import HttpNode, with_http
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


def test_a_topic_s_bundle_goes_to_the_broker_that_is_named() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        http = nodes[0].http
        look = "/lookup/v2/topic/persistent/public/default/t"
        await http.get(look)
        bundle = (await http.get(f"{look}/bundle")).text
        for target in (nodes[1].id, nodes[0].id):
            assert await moved(nodes[0], "persistent", "t", f"http://{target}") == (204, "")
            assert await owner(nodes[0], bundle) == target
        status, said = await moved(nodes[0], "persistent", "t", "nobody:1")
        assert (status, "inactive destination broker" in said) == (409, True)
        assert (await moved(nodes[0], "persistent", "t", ""))[0] == 204
        assert await owner(nodes[0], bundle) == ""

    with_http(test, 2)


def test_a_scalable_topic_must_be_there_and_its_domain_one() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
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

    with_http(test, 2)


async def split(node: HttpNode, bundle: str, **query: Any) -> tuple[int, str]:
    answer = await node.http.put(f"{HOME}/{bundle}/split", params=query)
    return answer.status_code, answer.text


def test_the_largest_bundle_is_cut_between_its_topics() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        http = nodes[0].http
        status, said = await split(nodes[0], "LARGEST")
        assert (status, "LARGEST not found" in said) == (404, True)
        places: dict[str, list[int]] = {}
        bundles = (await http.get(f"{HOME}/bundles/ownership")).json()["bundles"]
        ranges = [each["bundle"] for each in bundles]
        for number in range(9):
            await made(nodes, f"t{number}")
            at = topic_hash(f"topic://{DEFAULT}/t{number}")
            home = next(r for r in ranges if at in split_bundle_name(f"{DEFAULT}/{r}")[1])
            places.setdefault(home, []).append(at)
        most = max(places.values(), key=len)
        largest = {home for home, found in places.items() if len(found) == len(most)}
        done = await split(nodes[0], "LARGEST", splitAlgorithmName="topic_count_equally_divide")
        assert done == (204, "")
        after = (await http.get(f"{HOME}/bundles/ownership")).json()["bundles"]
        new = [each["bundle"] for each in after if each["bundle"] not in ranges]
        (gone,) = set(ranges) - {each["bundle"] for each in after}
        assert gone in largest
        counts = [
            sum(1 for at in places[gone] if at in split_bundle_name(f"{DEFAULT}/{part}")[1])
            for part in new
        ]
        assert len(counts) == 2
        assert abs(counts[0] - counts[1]) <= 1
        assert sum(counts) == len(places[gone])

    with_http(test)


@pytest.mark.parametrize(
    ("bundle", "algorithm", "status", "said"),
    [
        ("HOT", "range_equally_divide", 404, "no scalable topic with traffic; name a range"),
        ("LARGEST", "flow_or_qps_equally_divide", 404, "has no scalable topics; name a range"),
        ("hot", "range_equally_divide", 412, "0x00000000_0x40000000 (8 lower-case hex digits)"),
        ("0x00000000_0x40000000", "flow_or_qps", 412, "specified_positions_divide, flow_or_qps_eq"),
        ("0x00000000_0x40000000", "flow_or_qps_equally_divide", 412, "fewer than two scalable"),
        ("0x00000000_0x50000000", "flow_or_qps_equally_divide", 412, "Cannot find bundle"),
        ("0x00000000_0x40000000", "topic_count_equally_divide", 412, "fewer than two scalable"),
        ("0x00000000_0x50000000", "topic_count_equally_divide", 412, "Cannot find bundle"),
    ],
)
def test_what_cannot_be_split_so_is_refused(
    bundle: str, algorithm: str, status: int, said: str
) -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
        found = await split(nodes[0], bundle, splitAlgorithmName=algorithm)
        assert (found[0], said in found[1]) == (status, True), found

    with_http(test)


def test_a_node_that_has_not_read_the_loads_yet_says_so() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        await made(nodes, "t")
        cluster.loads[f"{DEFAULT}/t"] = None
        status, said = await split(nodes[0], "HOT")
        assert (status, "has not read the loads of segments yet" in said) == (503, True)

    with_http(test)


async def ranges(node: HttpNode) -> list[str]:
    answer = await node.http.get(f"{HOME}/bundles/ownership")
    return [str(each["bundle"]) for each in answer.json()["bundles"]]


def placed(found: list[str], names: Iterable[str]) -> dict[str, list[str]]:
    """Topics by the bundle that they fall into, in the order of the ring."""
    at = {name: topic_hash(f"topic://{DEFAULT}/{name}") for name in names}
    homes = {r: split_bundle_name(f"{DEFAULT}/{r}")[1] for r in found}
    return {
        home: sorted((n for n in at if at[n] in whole), key=lambda n: at[n])
        for home, whole in homes.items()
    }


def loaded(cluster: MemoryCluster, topic: str, rate: float, of_bytes: float = 0.0) -> None:
    """The first segment's load: so much comes in, and as much goes out."""
    load = SegmentLoad(rate, of_bytes, rate, of_bytes, cluster.log_ms)
    cluster.loads[f"{DEFAULT}/{topic}"] = {0: load}


def test_the_hot_bundle_is_the_one_with_the_most_traffic_not_the_most_topics() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
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

    with_http(test, 2)


def test_a_bundle_is_cut_wherever_its_traffic_would_be_too_much_for_one() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
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

    with_http(test, loadBalancerNamespaceBundleMaxMsgRate=80)


def test_the_commands_move_and_split() -> None:
    async def test(nodes: list[HttpNode], _: MemoryCluster) -> None:
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

    with_http(test, 2)


def test_a_bundle_is_named_by_a_word_to_the_command_that_splits_it() -> None:
    async def test(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        done = await ran(
            str(nodes[0].http.base_url),
            "topics create public/default/orders",
            "topics unload public/default/orders",
            "bundles split public/default LARGEST",
        )
        assert [each for each in done if each.exit_code] == []
        assert done[1].output == "the bundle of public/default/orders is unloaded\n"
        assert "is split into 2 parts: 0x" in done[2].output
        loaded(cluster, "orders", 10.0)
        [hot] = await ran(str(nodes[0].http.base_url), "bundles split public/default HOT")
        assert (hot.exit_code, "is split into 2 parts: 0x" in hot.output) == (0, True)

    with_http(test)


def test_what_is_watched_is_said_again_only_when_it_has_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = iter(["one", "one", "two"])
    left = 3

    def waits(_: float) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt

    watched(True, lambda: click.echo(next(said)), waits)
    first, _, time, second = capsys.readouterr().out.splitlines()
    assert (first, time.count(":"), second) == ("one", 2, "two")
    watched(False, lambda: click.echo("once"))
    assert capsys.readouterr().out == "once\n"
