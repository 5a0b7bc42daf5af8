"""`anabranch explain` and what it asks a node."""

from __future__ import annotations

import asyncio

from click.testing import CliRunner

from anabranch.broker.cli.main import cli
from support.http import HttpNode, with_http
from support.memory_cluster import MemoryCluster
from support.world import FIRST, WHOLE


async def explained(node: HttpNode, name: str) -> str:
    """What the command says of it; raises AssertionError unless it ends well."""
    command = ["explain", name, "--url", str(node.http.base_url)]
    found = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert found.exit_code == 0, found.output
    return " ".join(found.output.split())


def test_a_bundle_the_leadership_and_a_topic_are_explained() -> None:
    async def body(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        (node,) = nodes
        ranges = (await node.http.get(f"/admin/v2/namespaces/{FIRST}/bundles")).json()
        bundle = "_".join(ranges["boundaries"][:2])
        said = await explained(node, f"{FIRST}/{bundle}")
        assert said.startswith(f"{FIRST}/{bundle} is FREE, at version ")
        assert f"ASSIGN ASSIGNING {node.id}" in said
        assert "RELEASE - unless it starts from OWNED" in said
        assert "RESIGN" in await explained(node, "leadership")
        said = await explained(node, f"topic://{FIRST}/orders")
        assert said.startswith(f"{FIRST}/orders is INIT, at version 0")

    with_http(body)


def test_what_has_no_namespace_is_404_and_what_is_no_name_412() -> None:
    async def body(nodes: list[HttpNode], cluster: MemoryCluster) -> None:
        (node,) = nodes
        for name, code in (("acme/none/t", 404), (f"acme/none/{WHOLE}", 404), ("nothing", 412)):
            answer = await node.http.get("/admin/v2/brokers/explain", params={"name": name})
            assert answer.status_code == code, name

    with_http(body)
