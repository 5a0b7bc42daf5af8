"""One role's rights, its requests, and its requests for others as their proxy, each with its place
in the log.
"""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.core.entities.permission import PERMISSIONS_PREFIX, Permission
from anabranch.core.entities.session import Session
from anabranch.core.entities.tenant import Tenant
from anabranch.core.log.records import Record
from anabranch.core.log.state import Change, Entity
from anabranch.core.log.verdicts import Verdict
from anabranch.core.security.changes import asker_of
from anabranch.spark_replay.audit.statistics import kind_in_words

EVENTS_MAX: Final = 100_000  # for each part of the replay


class RoleEvent(msgspec.Struct, frozen=True, order=True):
    """One event: a right of the role begins or ends, or the role asked for something, or passed it
    on as a proxy.

    `verdict` is that of a request, "" for a right.
    """

    offset: int
    timestamp_ms: int
    text: str
    verdict: str = ""


class RoleHistory:
    """Follows one role through a part of the log. Read `events` at its end."""

    def __init__(self, role: str, *, primary: bool) -> None:
        self.events: list[RoleEvent] = []
        self._role = role
        self._primary = primary
        self._held: dict[str, tuple[str, ...]] = {}  # the role's actions by each key

    def start(self, offset: int, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot with an entity of before."""
        self._changed(offset, 0, key, entity)

    def folded(
        self, offset: int, timestamp_ms: int, record: Record, verdict: Verdict, *, shared: bool
    ) -> None:
        """Notes a record with any verdict."""
        asker = asker_of(record)
        if self._role not in (asker.role, asker.proxied_by) or (shared and not self._primary):
            return
        what = f"{kind_in_words(record)} {record.key}"
        if asker.role != self._role:
            text = f"passed on {what} for {asker.role}"
        elif asker.proxied_by:
            text = f"asked for {what} through {asker.proxied_by}"
        else:
            text = f"asked for {what}"
        self._add(RoleEvent(offset, timestamp_ms, text, Verdict(verdict).name))

    def accepted(
        self, offset: int, timestamp_ms: int, changes: tuple[Change, ...], *, shared: bool
    ) -> None:
        """Notes the changes of an accepted record."""
        if shared and not self._primary:
            return
        for key, entity in changes:
            self._changed(offset, timestamp_ms, key, entity)

    def _changed(self, offset: int, timestamp_ms: int, key: str, entity: Entity | None) -> None:
        before = self._held.get(key, ())
        after, where = self._by(key, entity)
        if after == before or not where:
            return
        if after:
            self._held[key] = after
            text = f"may {', '.join(after)} {where}"
        else:
            del self._held[key]
            text = f"may {', '.join(before)} {where} no more"
        self._add(RoleEvent(offset, timestamp_ms, text))

    def _by(self, key: str, entity: Entity | None) -> tuple[tuple[str, ...], str]:
        """Returns the role's actions by this entity, and their place, which is "" for an entity
        without rights.
        """
        kind, _, rest = key.partition(":")
        if key.startswith(PERMISSIONS_PREFIX):
            scope, _, role = rest.partition(":")
            actions = entity.actions if isinstance(entity, Permission) else ()
            return actions, f"on {scope}" if role == self._role else ""
        if kind == "tenant":
            admins = entity.admin_roles if isinstance(entity, Tenant) else ()
            return ("do everything",) if self._role in admins else (), f"in tenant {rest}"
        if kind == "session" and isinstance(entity, Session):
            rules = entity.authorizes and self._role in entity.superusers
            return ("do everything",) if rules else (), f"by asking {rest}"
        return (), ""

    def _add(self, event: RoleEvent) -> None:
        if len(self.events) < EVENTS_MAX:
            self.events.append(event)
