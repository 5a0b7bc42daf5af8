"""Tenants and namespaces: created, changed and deleted by records of the log."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.broker.changing import Changing
from anabranch.broker.errors import ConflictError, NotFoundError, PreconditionError, listed
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.tenants.limits import RoomForOne, TenantLimits
from anabranch.core.entities.tenant import Tenant
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.records import NamespaceChange, PolicyOp, Record, TenantChange
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import Namespace, tenant_of
from anabranch.core.ring import even_ranges
from anabranch.core.security.principal import check_role
from anabranch.core.tenants.limits import TenantLimit


class Tenancy(Changing):
    """The requests about tenants and namespaces; words and codes are Pulsar's."""

    def __init__(self, runtime: Runtime, settings: CurrentSettings) -> None:
        super().__init__(runtime, settings)
        self._cluster = settings.own.cluster_name
        self._limits = TenantLimits(runtime, settings)

    def tenants(self) -> list[str]:
        return list(self._runtime.view.tenants())

    def namespaces(self, tenant: str) -> list[str]:
        self.tenant(tenant)
        return list(self._runtime.view.namespaces(tenant))

    def tenant(self, name: str) -> Tenant:
        """Raises NotFoundError."""
        found = self._runtime.view.tenant(name)
        if found is None:
            raise NotFoundError(f"Tenant {name} does not exist")
        return found

    async def create_tenant(
        self, name: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str]
    ) -> None:
        wanted = self._checked(admin_roles, allowed_clusters)

        def build() -> Record:
            if self._runtime.view.tenant(name) is not None:
                raise ConflictError(f"Tenant {name} already exists")
            return self._written(TenantChange, None, tenant=name, **wanted)

        await self._settle(build)

    async def update_tenant(
        self, name: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str]
    ) -> None:
        wanted = self._checked(admin_roles, allowed_clusters)

        def build() -> Record:
            return self._written(TenantChange, self.tenant(name), tenant=name, **wanted)

        await self._settle(build)

    async def delete_tenant(self, name: str) -> None:
        def busy() -> ConflictError:
            return ConflictError(
                f"The tenant {name} still has active namespaces; delete them first"
            )

        def build() -> Record:
            before = self.tenant(name)
            if list(self._runtime.view.namespaces(name)):
                raise busy()
            return self._deleted(TenantChange, before, tenant=name)

        await self._settle(build, {Verdict.TENANT_BUSY: busy})

    async def create_namespace(self, ns: Namespace, bundles: int = 0) -> None:
        """`bundles` of 0 stands for defaultNumberOfNamespaceBundles."""
        what = TenantLimit.MAX_NAMESPACES_PER_TENANT
        room = RoomForOne(self._limits, what, f"tenant {tenant_of(ns)}")
        number = bundles or self._settings.now.default_number_of_namespace_bundles
        try:
            even_ranges(number)
        except InvalidInputError as error:
            raise PreconditionError(str(error)) from None

        def build() -> Record:
            self.tenant(tenant_of(ns))
            if self._runtime.view.namespace(ns) is not None:
                raise ConflictError(f"Namespace {ns} already exists")
            limit = room.taken(self._runtime.view.namespaces(tenant_of(ns)))
            return self._written(NamespaceChange, None, namespace=ns, bundles=number, limit=limit)

        def gone() -> NotFoundError:
            return NotFoundError(f"Tenant {tenant_of(ns)} does not exist")

        await self._settle(build, {Verdict.UNKNOWN_TENANT: gone})

    async def delete_namespace(self, ns: Namespace) -> bool:
        """False when one of its bundles was owned or moving."""

        def build() -> Record:
            return self._namespace_change(ns, PolicyOp.DELETE)

        return await self._settle(build, {Verdict.NAMESPACE_BUSY: None}) is not None

    def _checked(
        self, admin_roles: Sequence[str], allowed_clusters: Sequence[str]
    ) -> dict[str, tuple[str, ...]]:
        """Returns the fields of a tenant. Raises PreconditionError, InvalidInputError."""
        for role in admin_roles:
            check_role(role)
        if not allowed_clusters:
            raise PreconditionError(
                f"Clusters can not be empty: give allowedClusters, [{self._cluster!r}]"
            )
        unknown = [cluster for cluster in allowed_clusters if cluster != self._cluster]
        if unknown:
            raise PreconditionError(
                f"Clusters [{listed(unknown)}] do not exist: this one is {self._cluster}"
            )
        return {"admin_roles": tuple(admin_roles), "allowed_clusters": tuple(allowed_clusters)}
