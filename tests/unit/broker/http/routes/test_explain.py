"""`anabranch explain` and what it asks a node."""

from __future__ import annotations

from support.commands import ran
from support.http import HttpNode, on_nodes
from support.world import FIRST


@on_nodes()
async def test_a_bundle_the_leadership_and_a_topic_are_explained(node: HttpNode) -> None:
    ranges = (await node.http.get(f"/admin/v2/namespaces/{FIRST}/bundles")).json()
    bundle = f"{FIRST}/{'_'.join(ranges['boundaries'][:2])}"
    names = (bundle, "leadership", f"topic://{FIRST}/orders")
    done = await ran(str(node.http.base_url), *(f"explain {name}" for name in names))
    assert [each for each in done if each.exit_code] == []
    of_bundle, of_leadership, of_topic = (" ".join(each.output.split()) for each in done)
    assert of_bundle.startswith(f"{bundle} is FREE, at version ")
    assert f"ASSIGN ASSIGNING {node.id}" in of_bundle
    assert "RELEASE - unless it starts from OWNED" in of_bundle
    assert "RESIGN" in of_leadership
    assert of_topic.startswith(f"{FIRST}/orders is INIT, at version 0")
