"""Tenants' limits: the counts that they bound, and namespaces' own limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.broker.changing import Changing
from anabranch.broker.errors import PreconditionError
from anabranch.broker.settings.model import name_of
from anabranch.core.log.records import NamespaceChange, PolicyOp
from anabranch.core.names import Namespace
from anabranch.core.tenants.limits import (
    LIMIT_MAX,
    OF_NAMESPACES,
    TenantLimit,
    has_room,
    limit_in_force,
    own_limit,
    with_limit,
)
from anabranch.wire.anabranch_pb2 import ServerError

_COUNTED: Final = {
    TenantLimit.MAX_NAMESPACES_PER_TENANT: "namespaces",
    TenantLimit.MAX_TOPICS_PER_NAMESPACE: "scalable topics",
    TenantLimit.MAX_SUBSCRIPTIONS_PER_TOPIC: "subscriptions",
    TenantLimit.MAX_CONSUMERS_PER_SUBSCRIPTION: "consumers",
}


class LimitReachedError(PreconditionError):
    """The tenant has as many of something as it may have."""


class ConsumersFullError(LimitReachedError):
    """The subscription has as many consumers as it may have."""

    code = ServerError.ConsumerBusy


def setting_of(what: TenantLimit) -> str:
    """The setting's name, which is also that of a namespace's own."""
    return name_of(what.name.lower())


LIMIT_OF: Final = {setting_of(each): each for each in OF_NAMESPACES}
"""The limits that namespaces can have of their own, by the setting's name."""


class RoomForOne:
    """Room for one more of something. `whose`: its holder; `ns`: the holder's namespace, if any."""

    def __init__(self, limits: TenantLimits, what: TenantLimit, whose: str, ns: str = "") -> None:
        self._limits = limits
        self._what = what
        self._whose = whose
        self._ns = ns

    @property
    def limit(self) -> int:
        """The limit; 0 for any number."""
        return self._limits.in_force(self._ns, self._what)

    def taken(self, present: Iterable[object]) -> int:
        """The limit that a proposal of one more carries.

        Raises LimitReachedError as the log would, which then need not be asked.
        """
        if not has_room(self.limit, present):
            raise self.full()
        return self._limits.of_cluster(self._what)

    def full(self) -> LimitReachedError:
        """Says that no more may come."""
        setting = setting_of(self._what)
        raised = f"anabranch config set {setting} N"
        if self._ns:
            raised += f", or for {self._ns} alone POST /admin/v2/namespaces/{self._ns}/{setting}"
        consuming = self._what is TenantLimit.MAX_CONSUMERS_PER_SUBSCRIPTION
        kind = ConsumersFullError if consuming else LimitReachedError
        return kind(
            f"{self._whose} has as many {_COUNTED[self._what]} as {setting} lets it have, "
            f"{self.limit}: {'close' if consuming else 'delete'} one, or let a superuser raise it "
            f"({raised})"
        )


class TenantLimits(Changing):
    """One node's, for use in its event loop."""

    def of_cluster(self, what: TenantLimit) -> int:
        """Returns the limit that a proposal of this node carries; 0 for any number."""
        return self._settings.now.tenant_limit(what)

    def in_force(self, ns: str, what: TenantLimit) -> int:
        """Returns the limit in a namespace, or outside of all (""); 0 for any number."""
        given = self.of_cluster(what)
        return limit_in_force(self._runtime.view, ns, what, given) if ns else given

    def own(self, ns: Namespace, what: TenantLimit) -> int | None:
        """Returns the namespace's own limit; None if the cluster's counts. Raises NotFoundError."""
        return own_limit(self._runtime.namespace(ns).limits, what)

    async def set(self, ns: Namespace, what: TenantLimit, own: int | None) -> None:
        """Sets the namespace's own limit, or removes it for None. Things that are there already
        stay.

        Raises NotFoundError and PreconditionError.
        """
        if own is not None and not 0 <= own <= LIMIT_MAX:
            raise PreconditionError(
                f"{setting_of(what)} must be 0, for any number, or more, to {LIMIT_MAX}: not {own}"
            )

        def build() -> NamespaceChange | None:
            before = self._runtime.namespace(ns).limits
            limits = with_limit(before, what, own)
            if limits == before:
                return None
            return self._namespace_change(ns, PolicyOp.UPDATE, limits=limits)

        await self._settle(build)
