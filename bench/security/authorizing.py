"""One judgement of who may do what, by a node's view: the slowest kind of question counts."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Final

from anabranch.channel.codec import encode_record, schema_header
from anabranch.channel.log.entries import Entry
from anabranch.core.log.records import (
    ClusterSettings,
    NamespaceChange,
    PermissionChange,
    PolicyOp,
    Record,
    SessionChange,
    SessionOp,
    TenantChange,
)
from anabranch.core.security.actions import CONSUMING
from anabranch.core.security.authorize import Grants, Judgement, authorize
from anabranch.core.security.changes import FoldedGrants
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import topic_resource
from anabranch.projections.view import View
from bench.figure import Measured
from bench.place import Place

_GOAL_US: Final = 5.0
_TENANTS: Final = 50
_NAMESPACES: Final = 10  # of each tenant
_ROLES: Final = 20  # that have something granted on each namespace
_CALLS: Final = 20_000
_REPEATS: Final = 7
_NODE: Final = "a:8080"
_BATCH: Final = 2_000
_QUESTIONS: Final = {
    "granted on the namespace": "r7",
    "an administrator": "boss",
    "a superuser": "root",
    "granted elsewhere": "r99",
}


def worst(place: Place) -> Measured:
    """Of roles that may by a grant, as administrators, as superusers, and that may not."""
    with View.open(place.folder / f"grants-{place.number()}") as view:
        count = _filled(view)
        grants = Grants(FoldedGrants(view), frozenset(("root",)), frozenset(("proxy",)))
        asked = {what: _took_us(grants, role) for what, role in _QUESTIONS.items()}
    return Measured(
        max(asked.values()),
        "us",
        max(asked.values()),
        _GOAL_US,
        floor=_floor_us(),
        floor_what="looking three texts up in a dictionary, in Python",
        details={"permissions": count, "us_by_question": asked},
    )


def _took_us(grants: Grants, role: str) -> float:
    """Processor time of a call, over topics of all namespaces."""
    who = Principal(role)
    names = [f"t{t}/n{n}/orders" for t in range(_TENANTS) for n in range(_NAMESPACES)]
    wanted = Judgement.HIDDEN if role == "r99" else Judgement.ALLOWED
    samples = []
    for _ in range(_REPEATS):
        turns = itertools.islice(itertools.cycle(names), _CALLS)
        began = time.process_time_ns()
        found = {authorize(grants, who, CONSUMING, topic_resource(name)) for name in turns}
        samples.append((time.process_time_ns() - began) / _CALLS / 1_000)
        if found != {wanted}:
            raise RuntimeError(f"{role} was answered {found}")
    return statistics.median(samples)


def _floor_us() -> float:
    known = {f"key-{number}": number for number in range(10_000)}
    began = time.process_time_ns()
    for number in range(_CALLS):
        known.get(f"key-{number}"), known.get(f"key-{number + 1}"), known.get(f"key-{number + 2}")
    return (time.process_time_ns() - began) / _CALLS / 1_000


def _filled(view: View) -> int:
    """Folds a log of grants; says how many there are."""
    records = _records()
    entries = [
        Entry(offset, offset, record.key.encode(), encode_record(record), schema_header(record)[1])
        for offset, record in enumerate(records)
    ]
    for at in range(0, len(entries), _BATCH):
        view.read_batch(entries[at : at + _BATCH])
    count = sum(isinstance(record, PermissionChange) for record in records)
    kept = sum(
        sum(1 for _ in view.permissions(f"t{t}/n{n}"))
        for t in range(_TENANTS)
        for n in range(_NAMESPACES)
    )
    if kept != count:
        raise RuntimeError(f"{kept} of {count} permissions were folded")
    return count


def _records() -> list[Record]:
    found: list[Record] = [
        ClusterSettings("c", "bench", 1, _NODE, 500, 4_000, 6_000, 1),
        SessionChange("s", _NODE, SessionOp.OPEN, 1, _NODE, 0),
    ]
    for t in range(_TENANTS):
        create = PolicyOp.CREATE
        found.append(TenantChange(f"t{t}", f"t{t}", create, 1, _NODE, 1, ("boss", "chief")))
        for n in range(_NAMESPACES):
            home = f"t{t}/n{n}"
            found.append(NamespaceChange(home, home, create, 1, _NODE, 1, 1))
            found += (
                PermissionChange(f"{home}{r}", home, f"r{r}", create, 1, _NODE, 1, ("consume",))
                for r in range(_ROLES)
            )
    return found
