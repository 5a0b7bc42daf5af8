"""Roles' rights on namespaces and scalable topics: shown, granted and revoked."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.broker.changing import Changing
from anabranch.broker.errors import NotFoundError, PreconditionError, no_namespace
from anabranch.broker.proposals import Refusals
from anabranch.core.entities.permission import PERMISSIONS_MAX
from anabranch.core.log.records import PermissionChange
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import Namespace, full_name, namespace_of
from anabranch.core.security.actions import parse_actions
from anabranch.core.security.principal import check_role
from anabranch.core.security.resources import ResourceLevel, scope_resource

GrantedActions = dict[str, list[str]]  # by role


class RolePermissions(Changing):
    """The requests about permissions; their bodies and answers are Pulsar's."""

    def of_namespace(self, home: Namespace) -> GrantedActions:
        """Returns the grants on the namespace, for all its topics. Raises NotFoundError."""
        self._must_be_there(home)
        return {role: list(each.actions) for role, each in self._runtime.view.permissions(home)}

    def of_topic(self, topic: str) -> GrantedActions:
        """Returns roles' rights on the topic, by it or by its namespace. Raises NotFoundError."""
        self._must_be_there(topic)
        found = self.of_namespace(namespace_of(topic))
        for role, each in self._runtime.view.permissions(topic):
            found[role] = sorted({*found.get(role, ()), *each.actions})
        return dict(sorted(found.items()))

    async def grant(self, scope: str, role: str, words: Sequence[str]) -> None:
        """Gives the role these actions, and no others, on that namespace or topic from now on.

        Raises NotFoundError, and InvalidInputError for a word that is no role or no action.
        """
        check_role(role)
        if self._settings.now.kafka_acls_enabled:
            self._settings.now.principal_mapping.principal(role)
        actions = tuple(str(action) for action in parse_actions(words))

        def build() -> PermissionChange | None:
            self._must_be_there(scope)
            before = self._runtime.view.permission(scope, role)
            if before is not None and before.actions == actions:
                return None
            return self._written(PermissionChange, before, scope=scope, role=role, actions=actions)

        def full() -> PreconditionError:
            return PreconditionError(
                f"{PERMISSIONS_MAX} roles have something granted on {scope}, which is all there "
                "may be: revoke some, or let more people share a role"
            )

        await self._settle(build, {Verdict.TOO_MANY_PERMISSIONS: full, **self._gone(scope)})

    async def revoke(self, scope: str, role: str) -> None:
        """Nothing is granted to the role on that namespace or topic any more.

        Raises NotFoundError where nothing is, so that a wrong name is not taken for done.
        """
        check_role(role)

        def build() -> PermissionChange:
            self._must_be_there(scope)
            before = self._runtime.view.permission(scope, role)
            if before is None:
                raise NotFoundError(f"nothing is granted to {role} on {scope} itself")
            return self._deleted(PermissionChange, before, scope=scope, role=role)

        await self._settle(build, {Verdict.UNKNOWN_PERMISSION: None, **self._gone(scope)})

    def _must_be_there(self, scope: str) -> None:
        named, view = scope_resource(scope), self._runtime.view
        if view.namespace(Namespace(named.namespace)) is None:
            raise self._missing(named.namespace)
        if named.level is ResourceLevel.TOPIC:
            topic = view.topic(scope)
            if topic is None or not topic.is_open:
                raise self._missing(scope)

    @staticmethod
    def _missing(scope: str) -> NotFoundError:
        if scope_resource(scope).level is ResourceLevel.TOPIC:
            return NotFoundError(f"Scalable topic not found: {full_name(scope)}")
        return no_namespace(scope)

    def _gone(self, scope: str) -> Refusals:
        """Returns the errors for a change whose namespace or topic has gone meanwhile."""
        home = scope_resource(scope).namespace
        return {
            Verdict.UNKNOWN_NAMESPACE: lambda: self._missing(home),
            Verdict.UNKNOWN_TOPIC: lambda: self._missing(scope),
        }
