"""What one role was allowed, did, and did for others as their proxy: each with its place in the
log.
"""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.core.log.records import Record
from anabranch.core.log.state import Change, Entity
from anabranch.core.log.verdicts import Verdict
from anabranch.core.security.changes import asker_of
from anabranch.core.security.permission import PERMISSIONS_PREFIX, Permission
from anabranch.core.sessions.session import Session
from anabranch.core.tenants.tenant import Tenant
from anabranch.spark_replay.audit.statistics import kind_in_words

EVENTS_MAX: Final = 100_000  # of each part of the replay


class RoleEvent(msgspec.Struct, frozen=True, order=True):
    """One line: what a role was allowed from here on, or what it asked for, or passed on as a
    proxy, and what became of it.

    `verdict`: of what was asked for; "" where a right begins or ends.
    """

    offset: int
    timestamp_ms: int
    text: str
    verdict: str = ""


class RoleHistory:
    """Follows one role through a part of the log. `events` may be read at its end."""

    def __init__(self, role: str, *, primary: bool) -> None:
        self.events: list[RoleEvent] = []
        self._role = role
        self._primary = primary
        self._held: dict[str, tuple[str, ...]] = {}  # by key, what the role may do by it

    def start(self, offset: int, key: str, entity: Entity) -> None:
        """A replay from a snapshot starts with this, which was so before."""
        self._changed(offset, 0, key, entity)

    def folded(
        self, offset: int, timestamp_ms: int, record: Record, verdict: Verdict, *, shared: bool
    ) -> None:
        """A record was read, whatever came of it."""
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
        """What an accepted record has changed."""
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
        """What the role may do by this entity, and where; no place for what gives no rights."""
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
