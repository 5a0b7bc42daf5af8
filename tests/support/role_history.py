"""Histories in which brokers ask who may do what, and roles that ask for things."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.core.entities.topic import TopicMove
from anabranch.core.fold.evolve import evolve
from anabranch.core.log.outcome import Outcome
from anabranch.core.log.records import PermissionChange, PolicyOp, Record, TenantChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.verdicts import Verdict
from support.history import BROKERS, DEFAULT, History, Rule
from support.topic_history import controlled, create, subscribe, topic_move

ORDERS: Final = f"{DEFAULT}/orders"


def authorizing(history: History, broker: str, *superusers: str) -> None:
    """The broker's next session, in which it asks."""
    history.join(broker, authorizes=True, superusers=superusers)


def grant(history: History, scope: str, role: str, *actions: str) -> PermissionChange:
    """The record that lets the role do this there; nothing, if nothing is named."""
    before = history.state.permission(scope, role)
    op = PolicyOp.CREATE if before is None else PolicyOp.UPDATE
    op = op if actions else PolicyOp.DELETE
    return history.next_of(PermissionChange, before, scope=scope, role=role, op=op, actions=actions)


def administered(history: History, tenant: str, *roles: str) -> TenantChange:
    """The record that says who administers the tenant."""
    before = history.state.tenant(tenant)
    return history.next_of(
        TenantChange, before, tenant=tenant, op=PolicyOp.UPDATE, admin_roles=roles
    )


def asked(history: History, role: str, record: Record, by: str = "") -> Verdict:
    """What becomes of the record, for which the role has asked, `by` a proxy."""
    return history.append(msgspec.structs.replace(record, principal=role, proxied_by=by))


def of_roles(rule: Rule = evolve) -> History:
    """Brokers that ask, a topic, and roles that do what they may and try what they may not."""
    history = History(rule)
    history.found()
    for broker in BROKERS:
        authorizing(history, broker, "root")
    controlled(history, ORDERS)
    create(history, ORDERS)
    must(asked(history, "root", administered(history, "public", "boss")))
    must(asked(history, "boss", grant(history, ORDERS, "ada", "consume", "scale")))
    must(asked(history, "ada", policy(history)))
    must(asked(history, "boss", grant(history, DEFAULT, "bob", "view")))
    subscribe(history, "mine", ORDERS)
    return history


def lets_all_through(state: StateReader, record: Record, offset: int, ms: int) -> Outcome:
    """A fold that does not ask who wants it."""
    anonymous = (
        msgspec.structs.replace(record, principal="") if hasattr(record, "principal") else record
    )
    return evolve(state, anonymous, offset, ms)


def lets_proxies_through(state: StateReader, record: Record, offset: int, ms: int) -> Outcome:
    """A fold that asks the principal alone, not the proxy."""
    by_itself = (
        msgspec.structs.replace(record, proxied_by="") if hasattr(record, "proxied_by") else record
    )
    return evolve(state, by_itself, offset, ms)


def policy(history: History) -> Record:
    """A change that needs `scale`."""
    return topic_move(history, TopicMove.POLICY, ORDERS, auto_scale=("enabled", "false"))


def must(verdict: Verdict) -> None:
    if verdict is not Verdict.ACCEPTED:
        raise AssertionError(verdict.name)
