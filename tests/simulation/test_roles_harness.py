"""The simulation of roles finds planted bugs: a fold that lets through what nobody may do."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.core.log import fold
from anabranch.core.security import changes
from anabranch.core.tenants import evolve as tenants
from anabranch.core.topics import evolve as topics
from simulation.planted import noticed

pytestmark = pytest.mark.simulation

violation_found = partial(noticed, "roles")


def test_a_fold_that_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "is_permitted", lambda state, record: True)
    violation_found("had no right to")


def test_a_fold_that_asks_nothing_of_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = changes.is_permitted

    def of_principals(state: Any, record: Any) -> bool:
        by_itself = hasattr(record, "proxied_by")
        return ask(state, replace(record, proxied_by="") if by_itself else record)

    monkeypatch.setattr(fold, "is_permitted", of_principals)
    violation_found("gate had no right to")


def test_a_fold_that_takes_a_broker_s_look_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers look at what they have read; what was revoked behind that lands all the same."""
    looked: set[str] = set()
    ask = changes.is_permitted

    def by_the_look(state: object, record: object) -> bool:
        return getattr(record, "proposal_id", "") in looked or ask(state, record)  # type: ignore[arg-type]

    def look(state: object, record: object) -> bool:
        found = ask(state, record)  # type: ignore[arg-type]
        if found:
            looked.add(record.proposal_id)  # type: ignore[attr-defined]
        return found

    monkeypatch.setattr(fold, "is_permitted", by_the_look)
    monkeypatch.setattr("simulation.roles.is_permitted", look)
    violation_found("had no right to", first_seed=1)


@pytest.mark.parametrize(("module", "first_seed"), [(tenants, 7), (topics, 3)])
def test_what_is_granted_on_a_thing_that_outlives_it(
    module: object, first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "revoked_with", lambda state, scope: [])
    violation_found("something is still granted to", first_seed=first_seed)
