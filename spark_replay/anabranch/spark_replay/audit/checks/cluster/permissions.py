"""Permissions: a role that asked for a change had the right to it just before it. A role that was
refused for want of a right had none.

This module puts the roles' rights together from the changes of accepted records, apart from the
state of the fold. Core's own `authorize` judges the need of a change, and who has it. The check
covers only changes whose proposing broker has a session that asks for rights. If a proxy asked for
somebody, both must have had the right. There are no grants on things that do not exist: a namespace
or a topic takes its permissions along.
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.core.entities.permission import PERMISSIONS_PREFIX, Permission
from anabranch.core.entities.session import Session
from anabranch.core.entities.tenant import Tenant
from anabranch.core.log.records import Record, namespace_key, topic_key
from anabranch.core.log.state import Change, Entity
from anabranch.core.security.authorize import Grants, Judgement, authorize
from anabranch.core.security.changes import asker_of, need_of
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import ResourceLevel, scope_resource
from anabranch.spark_replay.audit.tally import CheckTally


class Permissions:
    """Follows the rights of all. Only the primary part counts records of the whole cluster."""

    def __init__(self, *, primary: bool) -> None:
        self.tally = CheckTally()
        self._primary = primary
        self._sessions: dict[str, Session] = {}
        self._admins: dict[str, tuple[str, ...]] = {}
        self._granted: dict[str, dict[str, tuple[str, ...]]] = {}  # by scope and role

    # --- what core's `HeldGrants` asks ----------------------------------------------------------

    def admins(self, tenant: str) -> Collection[str]:
        """Returns the roles that administer the tenant now."""
        return self._admins.get(tenant, ())

    def granted(self, scope: str, role: str) -> Collection[str]:
        """Returns a role's actions there now."""
        return self._granted.get(scope, {}).get(role, ())

    # --- the log --------------------------------------------------------------------------------

    def start(self, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot with this entity."""
        self._keep(key, entity)

    def accepted(
        self, offset: int, record: Record, changes: tuple[Change, ...], *, shared: bool
    ) -> None:
        """Checks an accepted record. `shared` is True if it concerns the whole cluster."""
        asker = asker_of(record)
        if asker.role and (self._primary or not shared):
            self._judge(offset, record, asker)
        for key, entity in changes:
            self._keep(key, entity)
        for key, entity in changes:
            if entity is None:
                self._gone(offset, key)

    def refused(self, offset: int, record: Record, *, shared: bool) -> None:
        """Checks a record that was rejected because the role that asked had no right to it."""
        if shared and not self._primary:
            return
        self.tally.examined += 1
        asker = asker_of(record)
        session = self._asking(record)
        if not asker.role or session is None or not self._lacking(session, record, asker):
            through = f" through {asker.proxied_by}" if asker.proxied_by else ""
            self.tally.violate(
                offset,
                f"{record.key}: {record.actor} was refused it for {asker.role or 'nobody'}"
                f"{through}, who had the right to, or need not: {self._wanted(record)}",
            )

    def _judge(self, offset: int, record: Record, asker: Principal) -> None:
        session = self._asking(record)
        if session is None:
            return
        self.tally.examined += 1
        lacking = self._lacking(session, record, asker)
        if lacking:
            by = f"{asker.role} through {lacking}, a proxy that" if lacking != asker.role else ""
            self.tally.violate(
                offset,
                f"{record.key}: {record.actor} changed it for {by or f'{lacking}, who'} had no "
                f"right to: {self._wanted(record)}",
            )

    def _asking(self, record: Record) -> Session | None:
        """Returns the session of the proposing node, if that node asks for rights."""
        session = self._sessions.get(record.actor)
        return session if session is not None and session.authorizes else None

    def _lacking(self, session: Session, record: Record, asker: Principal) -> str:
        """Returns the role without a right to the change: the one that asked, or else its proxy, ""
        for neither.

        The node that believed the proxy had to know that it is one.
        """
        need, resource = need_of(record)
        proxies = frozenset({asker.proxied_by} - {""})
        grants = Grants(self, frozenset(session.superusers), proxies)
        match authorize(grants, asker, need, resource):
            case Judgement.ALLOWED:
                return ""
            case Judgement.PROXY_DENIED:
                return asker.proxied_by
            case _:
                return asker.role

    @staticmethod
    def _wanted(record: Record) -> str:
        need, resource = need_of(record)
        wanted = " or ".join(sorted(need.any_of)) or need.right.name.lower().replace("_", " ")
        return f"it needs {wanted} on {resource}"

    def _keep(self, key: str, entity: Entity | None) -> None:
        kind, _, rest = key.partition(":")
        if isinstance(entity, Session):
            self._sessions[rest] = entity
        elif kind == "tenant":
            self._admins[rest] = entity.admin_roles if isinstance(entity, Tenant) else ()
        elif key.startswith(PERMISSIONS_PREFIX):
            scope, _, role = rest.partition(":")
            if isinstance(entity, Permission):
                self._granted.setdefault(scope, {})[role] = entity.actions
            else:
                self._granted.get(scope, {}).pop(role, None)

    def _gone(self, offset: int, key: str) -> None:
        """Checks that a deleted namespace or topic leaves no grant on it."""
        scope = key.partition(":")[2]
        if key not in (namespace_key(scope), topic_key(scope)):
            return
        left = self._granted.pop(scope, {})
        if left:
            level = scope_resource(scope).level
            what = "topic" if level is ResourceLevel.TOPIC else "namespace"
            self.tally.violate(
                offset,
                f"{key}: the {what} is gone, but {', '.join(sorted(left)[:5])} may still do "
                "something on it",
            )
