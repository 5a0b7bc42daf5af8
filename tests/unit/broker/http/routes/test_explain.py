"""`anabranch explain` and what it asks a node."""

from __future__ import annotations

import asyncio

from click.testing import CliRunner

from anabranch.broker.cli.main import cli
from support.http import HttpNode, on_nodes
from support.world import FIRST


async def explained(node: HttpNode, name: str) -> str:
    """What the command says of it; raises AssertionError unless it ends well."""
    command = ["explain", name, "--url", str(node.http.base_url)]
    found = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert found.exit_code == 0, found.output
    return " ".join(found.output.split())


@on_nodes()
async def test_a_bundle_the_leadership_and_a_topic_are_explained(node: HttpNode) -> None:
    ranges = (await node.http.get(f"/admin/v2/namespaces/{FIRST}/bundles")).json()
    bundle = "_".join(ranges["boundaries"][:2])
    said = await explained(node, f"{FIRST}/{bundle}")
    assert said.startswith(f"{FIRST}/{bundle} is FREE, at version ")
    assert f"ASSIGN ASSIGNING {node.id}" in said
    assert "RELEASE - unless it starts from OWNED" in said
    assert "RESIGN" in await explained(node, "leadership")
    said = await explained(node, f"topic://{FIRST}/orders")
    assert said.startswith(f"{FIRST}/orders is INIT, at version 0")
