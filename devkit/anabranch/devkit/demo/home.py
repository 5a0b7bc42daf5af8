"""The demo's tenant and namespace, on a cluster that somebody else has set up, or on its own."""

from __future__ import annotations

import contextlib
from typing import Final

from anabranch.admin import AsyncAdmin, ConflictError, ForbiddenError, NotFoundError
from anabranch.admin.errors import refusal

TENANT: Final = "demo"
HOME: Final = f"{TENANT}/openstack"
_BUNDLES: Final = 4


async def make_home(admin: AsyncAdmin) -> None:
    """Makes the tenant and the namespace, unless they are there.

    Raises AdminError, a RefusedError with the remedy where it takes more rights to make the tenant.
    """
    with contextlib.suppress(NotFoundError):
        await admin.namespaces.get_policies(HOME)
        return
    # A tenant shows itself to its administrators alone.
    try:
        await admin.tenants.get_tenant_info(TENANT)
    except NotFoundError:
        await _make_tenant(admin)
    with contextlib.suppress(ConflictError):  # another run was quicker
        await admin.namespaces.create_namespace(HOME, _BUNDLES)


async def _make_tenant(admin: AsyncAdmin) -> None:
    try:
        with contextlib.suppress(ConflictError):
            await admin.tenants.create_tenant(TENANT, await admin.tenants.get_clusters())
    except (ForbiddenError, NotFoundError) as error:
        raise refusal(
            error.status,
            f"{error.reason}. The demo needs the tenant {TENANT}: run it as a superuser, or have "
            f"one make it for a role of yours: `anabranch tenants create {TENANT} --admin-role "
            "ROLE`",
        ) from error
