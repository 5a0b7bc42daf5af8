"""Which topics a node calls its own, while bundles come and go."""

from __future__ import annotations

from anabranch.core.names import full_name, namespace_of
from support.http import PATIENT
from support.memory_cluster import MemoryCluster, MemoryNode, MemoryView, memory_cluster, until

_NAMES = [f"public/default/orders-{number}" for number in range(8)]


def _owned(node: MemoryNode) -> set[str]:
    return set(node.operations.topics.owned.names())


def _are_right(cluster: MemoryCluster) -> bool:
    """Whether each node has those whose bundles it owns, by its own fold."""
    return all(
        _owned(node)
        == {
            name
            for name in _NAMES
            if node.runtime.routes.owner(full_name(name), namespace_of(name)) == node.id
        }
        for node in cluster.nodes
    )


async def _created(cluster: MemoryCluster) -> None:
    by_id = {node.id: node for node in cluster.nodes}
    for name in _NAMES:
        lookups = cluster.nodes[0].operations.lookups
        located = await lookups.find(full_name(name), namespace_of(name))
        await by_id[located.broker].operations.topics.create(name, 1, {})
    await until(lambda: _are_right(cluster))


async def test_topics_come_and_go_with_their_bundles() -> None:
    async with memory_cluster(2, **PATIENT) as cluster:
        await _created(cluster)
        for name in _NAMES:  # some of them go to and fro
            unit = cluster.nodes[0].operations.bundle_of(full_name(name), namespace_of(name))
            one, other = sorted(cluster.nodes, key=lambda node: name not in _owned(node))
            await one.operations.unload(unit, other.id)
            await until(lambda: _are_right(cluster))
            assert name in _owned(other)


async def test_a_node_whose_view_was_built_anew_has_its_topics_still() -> None:
    async with memory_cluster(1, **PATIENT) as cluster:
        await _created(cluster)
        (node,) = cluster.nodes
        fresh = MemoryView()
        fresh.read_batch(cluster.entries)
        node.view = fresh
        node.runtime.replaced(fresh)
        node.runtime.tick()
        await until(lambda: _owned(node) == {*_NAMES})
