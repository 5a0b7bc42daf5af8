"""Proposals on namespaces, for the next version of each."""

from __future__ import annotations

from typing import Any

from anabranch.core.bundles.propose import Actor
from anabranch.core.entities.tenant import NamespaceInfo
from anabranch.core.log.records import Cause, NamespaceChange, PolicyOp


def namespace_change(
    actor: Actor,
    name: str,
    before: NamespaceInfo | None,
    op: PolicyOp,
    proposal_id: str,
    **fields: Any,
) -> NamespaceChange:
    """An operator's change. UPDATE says all that can be changed: `fields`, and the former values of
    the others.
    """
    if before is not None and op is PolicyOp.UPDATE:
        said = ("auto_scale", "anti_affinity", "limits")
        fields = {each: getattr(before, each) for each in said} | fields
    return NamespaceChange(
        proposal_id=proposal_id,
        namespace=name,
        op=op,
        version=(before.version if before is not None else 0) + 1,
        cause=Cause.OPERATOR,
        **actor.signature(),
        **fields,
    )
