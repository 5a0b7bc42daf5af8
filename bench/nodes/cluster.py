"""Figures of three whole nodes, each a process of its own, over their HTTP interface."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from anabranch.devkit.nodes import NodeProcess
from bench.figure import Measured, spread
from bench.http import wrk
from bench.http.client import Client, topic_per_bundle
from bench.http.lookups import look_up_all
from bench.log.roundtrip import bare_ms
from bench.nodes.processor_time import spent
from bench.place import Place, resident_mb

LIVENESS_S = 6.0  # the default liveness time-out
_CLIENTS = 8
_SETTLE_S = 60.0
_MANY = 10_000


class NamespaceUnderTest:
    """A fresh namespace and a topic for each of its bundles."""

    def __init__(self, place: Place, bundles: int) -> None:
        self.clients = [Client(node) for node in place.nodes]
        self.name = f"public/bench-{place.number()}"
        first = self.clients[0]
        first.put(f"/admin/v2/namespaces/{self.name}", {"bundles": {"numBundles": bundles}})
        for client in self.clients:
            until(partial(self._known_to, client), "the namespace is known")
        self.topics = topic_per_bundle(self.name, list(first.owners(self.name)))

    def _known_to(self, client: Client) -> bool:
        return client.get(f"/admin/v2/namespaces/{self.name}/bundles")[0] == 200

    def own_all(self) -> dict[str, str]:
        """Every bundle has an owner; owner by range."""
        nodes = [client.node for client in self.clients]
        look_up_all(nodes, list(self.topics.values()), _CLIENTS)
        return self.clients[0].owners(self.name)

    def close(self) -> None:
        for client in self.clients:
            client.close()


def until(done: Callable[[], bool], what: str, timeout_s: float = _SETTLE_S) -> float:
    """Seconds until it holds. Raises RuntimeError."""
    began = time.perf_counter()
    while not done():
        if time.perf_counter() - began > timeout_s:
            raise RuntimeError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(0.001)
    return time.perf_counter() - began


def _in_threads(jobs: Sequence[Callable[[], object]]) -> None:
    errors: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - told by the caller
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# --- look-ups and assignments ---------------------------------------------------------------


def first_lookup(place: Place) -> Measured:
    """Look-ups of topics whose bundles are free, one at a time, through all nodes in turn."""
    under = NamespaceUnderTest(place, 100 if place.quick else 400)
    bare = bare_ms(place)
    took = []
    for number, topic in enumerate(under.topics.values()):
        client = under.clients[number % len(under.clients)]
        began = time.perf_counter()
        client.lookup(topic)
        took.append((time.perf_counter() - began) * 1000)
    under.close()
    return _latency(took[30:], bare, 10.0)


def _latency(took: list[float], bare: list[float], goal_ms: float) -> Measured:
    value, limit = statistics.median(took), statistics.median(bare)
    return Measured(
        value,
        "ms",
        value,
        goal_ms,
        limit=limit,
        limit_what="append to consume, bare",
        details={"sample": spread(took), "bare": spread(bare)},
    )


def assignments(place: Place) -> Measured:
    """10,000 free bundles, looked up by 8 clients as fast as they can."""
    count = 1_000 if place.quick else _MANY
    under = NamespaceUnderTest(place, count)
    pids = [node.pid or 0 for node in place.nodes]
    before, began = spent(pids), time.perf_counter()
    owners = under.own_all()
    took, after = time.perf_counter() - began, spent(pids)
    under.close()
    if not all(owners.values()):
        raise RuntimeError("not every bundle has an owner")
    value = count / took
    details = {"bundles": count, "s": took, **after.each_ms(before, count)}
    return Measured(value, "bundles/s", value, 1_000, at_least=True, details=details)


def transfer(place: Place) -> Measured:
    """From the request until every node answers the new owner."""
    under = NamespaceUnderTest(place, 30)
    owners = under.own_all()
    bare = bare_ms(place)
    brokers = sorted({client.node.broker_id for client in under.clients})
    took = []
    for number in range(60 if place.quick else 200):
        part = list(under.topics)[number % len(under.topics)]
        topic = under.topics[part]
        target = next(one for one in brokers[number % 3 :] + brokers if one != owners[part])
        path = f"/admin/v2/namespaces/{under.name}/{part}/unload?destinationBroker={target}"
        began = time.perf_counter()
        under.clients[number % len(under.clients)].put(path)
        for client in under.clients:
            while client.lookup(topic) != target:
                if time.perf_counter() - began > _SETTLE_S:
                    raise RuntimeError(f"{part} did not get to {target}")
        took.append((time.perf_counter() - began) * 1000)
        owners[part] = target
    under.close()
    return _latency(took[20:], bare, 15.0)


# --- fail-over ------------------------------------------------------------------------------


def kill_owner(place: Place) -> Measured:
    """SIGKILL of the owner of 1,000 bundles that does not lead."""
    return _kill(place, leader=False, goal_s=LIVENESS_S + 1)


def kill_leader(place: Place) -> Measured:
    """SIGKILL of the leader, which owns 1,000 bundles."""
    return _kill(place, leader=True, goal_s=LIVENESS_S + 2)


def _kill(place: Place, *, leader: bool, goal_s: float) -> Measured:
    bundles = 300 if place.quick else 3_000
    under = NamespaceUnderTest(place, bundles)
    under.own_all()
    lead = str(under.clients[0].get("/admin/v2/brokers/leaderBroker")[1]["brokerId"])
    victim = next(node for node in place.nodes if (node.broker_id == lead) is leader)
    _even_out(under, victim, bundles // 3)
    owners = under.clients[0].owners(under.name)
    lost = [part for part, owner in owners.items() if owner == victim.broker_id]
    alive = [client for client in under.clients if client.node is not victim]
    began = time.perf_counter()
    victim.kill()
    waits: list[list[float]] = [[] for _ in alive]
    _in_threads(
        [
            partial(_served_elsewhere, client, under, lost, victim, began, found)
            for client, found in zip(alive, waits, strict=True)
        ]
    )
    under.close()
    victim.start()
    place.nodes  # noqa: B018 - waits until it serves again
    value = max(max(wait) for wait in waits)
    return Measured(
        value,
        "s",
        value,
        goal_s,
        limit=LIVENESS_S,
        limit_what="the liveness time-out",
        details={"bundles": len(lost), "by_node": [spread(wait) for wait in waits]},
    )


def _even_out(under: NamespaceUnderTest, victim: NodeProcess, wanted: int) -> None:
    """The victim owns at least `wanted` bundles."""
    owners = under.clients[0].owners(under.name)
    mine = sum(owner == victim.broker_id for owner in owners.values())
    others = [part for part, owner in owners.items() if owner != victim.broker_id]
    for part in others[: max(0, wanted - mine)]:
        path = f"/admin/v2/namespaces/{under.name}/{part}/unload"
        under.clients[0].put(f"{path}?destinationBroker={victim.broker_id}")


def _served_elsewhere(
    client: Client,
    under: NamespaceUnderTest,
    lost: list[str],
    victim: NodeProcess,
    began: float,
    waits: list[float],
) -> None:
    """For each lost bundle, seconds until a node's look-up names another owner."""
    for part in lost:
        while True:
            if time.perf_counter() - began > _SETTLE_S:
                raise RuntimeError(f"{part} was not taken over within {_SETTLE_S:.0f} s")
            try:
                owner = client.lookup(under.topics[part])
            except RuntimeError:
                continue  # refused while nobody can say: asked again
            if owner != victim.broker_id:
                break
            time.sleep(0.001)
        waits.append(time.perf_counter() - began)


# --- throughput of look-ups -----------------------------------------------------------------


def http_few(place: Place) -> Measured:
    """wrk against one of three nodes, one topic."""
    return _wrk(place, 4, 1, 12_600)


def http_many(place: Place) -> Measured:
    """wrk against one of three nodes, topics of 10,000 bundles."""
    count = 1_000 if place.quick else _MANY
    return _wrk(place, count, count, 9_600)


def _wrk(place: Place, bundles: int, topics: int, peer: int) -> Measured:
    under = NamespaceUnderTest(place, bundles)
    under.own_all()
    names = list(under.topics.values())[:topics]
    found = wrk.load(place, [f"/lookup/v2/topic/persistent/{name}" for name in names])
    under.close()
    return Measured(
        found.rate,
        "look-ups/s",
        found.rate,
        peer,
        at_least=True,
        limit=found.limit,
        limit_what=wrk.LIMIT_WHAT,
        details={"p99_ms": found.p99_ms, "bundles": bundles, "rates": found.rates},
    )


# --- start and memory -----------------------------------------------------------------------


def idle_memory(place: Place) -> Measured:
    """Resident memory of the nodes of a cluster that nothing is asked of."""
    nodes = place.nodes
    time.sleep(5.0)
    found = [resident_mb(node.pid or 0) for node in nodes]
    return Measured(max(found), "MB", max(found), 80, details={"nodes": found})


def start_to_lookup(place: Place) -> Measured:
    """From the start of a process to its first right look-up, 10,000 bundles in the channel."""
    count = 1_000 if place.quick else _MANY
    under = NamespaceUnderTest(place, count)
    owners = under.own_all()
    part, topic = next(iter(under.topics.items()))
    fresh, again = [], []
    for _ in range(3):
        node = place.another_node()
        fresh.append(_until_right(node, topic, owners[part]))
        node.kill()
        again.append(_until_right(node, topic, owners[part]))
        memory = resident_mb(node.pid or 0)
        place.forget(node)
    under.close()
    value = statistics.median(fresh)
    details = {"fresh_s": fresh, "with_a_view_after_sigkill_s": again, "memory_mb": memory}
    return Measured(value, "s", value, 3.0, details=details)


def _until_right(node: NodeProcess, topic: str, owner: str) -> float:
    began = time.perf_counter()
    node.start()
    while True:
        client = Client(node)
        try:
            found = client.lookup(topic)
        except (OSError, RuntimeError):
            if time.perf_counter() - began > _SETTLE_S:
                raise
            time.sleep(0.005)
            continue
        finally:
            client.close()
        if found != owner:
            raise RuntimeError(f"{node.name} answers {found} instead of {owner}")
        return time.perf_counter() - began
