"""The tenants and namespaces of the trace, on a cluster that somebody else has set up."""

from __future__ import annotations

import contextlib

from anabranch.admin import Admin, ConflictError, ForbiddenError, NotFoundError, RefusedError
from anabranch.admin.errors import refusal
from anabranch.devkit.demo.trace import NAMESPACES


def make_homes(admin: Admin) -> None:
    """Makes those that are not there, by the rights of who asks; what is there needs none.

    Raises AdminError, a RefusedError with the remedy where somebody with more rights has to.
    """
    for home, bundles in NAMESPACES.items():
        if not _has_namespace(admin, home):
            tenant = home.partition("/")[0]
            if not _has_tenant(admin, tenant):
                _make_tenant(admin, tenant)
            with contextlib.suppress(ConflictError):  # another run was quicker
                admin.namespaces.create_namespace(home, bundles)


def _has_namespace(admin: Admin, home: str) -> bool:
    try:
        admin.namespaces.get_policies(home)
    except NotFoundError:
        return False
    return True


def _has_tenant(admin: Admin, tenant: str) -> bool:
    """Whether it is there, and for us to see, as it is for those alone who administer it."""
    try:
        admin.tenants.get_tenant_info(tenant)
    except NotFoundError:
        return False
    return True


def _make_tenant(admin: Admin, tenant: str) -> None:
    try:
        with contextlib.suppress(ConflictError):
            admin.tenants.create_tenant(tenant, admin.tenants.get_clusters())
    except (ForbiddenError, NotFoundError) as error:
        raise _with_remedy(error, tenant) from error


def _with_remedy(error: RefusedError, tenant: str) -> Exception:
    tenants = sorted({home.partition("/")[0] for home in NAMESPACES})
    return refusal(
        error.status,
        f"{error.reason}. The demo needs tenant {tenant}: run it as a superuser, or have one make "
        f"what it needs, for a role of yours: for each of {', '.join(tenants)} `anabranch tenants "
        "create TENANT --admin-role ROLE`",
    )
