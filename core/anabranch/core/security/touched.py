"""The roles whose rights a change of the state may have touched; nodes check their open things
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.core.entities.permission import PERMISSIONS_PREFIX
from anabranch.core.log.state import Change
from anabranch.core.security.resources import scope_resource

_TENANTS: Final = "tenant:"


def touched_roles(changes: Iterable[Change]) -> dict[str, frozenset[str] | None]:
    """The roles in each tenant whose rights within it may be others now; None: anybody's.

    >>> found = touched_roles([("permission:acme/shop:urn:ada", None), ("tenant:river", None)])
    >>> found["acme"], found["river"]
    (frozenset({'urn:ada'}), None)
    """
    found: dict[str, frozenset[str] | None] = {}
    for key, _ in changes:
        if key.startswith(_TENANTS):
            found[key[len(_TENANTS) :]] = None
        elif key.startswith(PERMISSIONS_PREFIX):
            scope, _, role = key[len(PERMISSIONS_PREFIX) :].partition(":")
            tenant = scope_resource(scope).tenant
            roles = found.get(tenant, frozenset())
            found[tenant] = None if roles is None else roles | {role}
    return found
