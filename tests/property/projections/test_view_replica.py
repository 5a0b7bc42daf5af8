"""The view on RocksDB is the replica in memory, however its log is cut, repeated or interrupted."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from anabranch.channel.codec import decode_entity
from anabranch.core.entities.unit import LEADERSHIP, Unit
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import namespace_key
from anabranch.core.ring import RING_END
from anabranch.projections.view import View
from support.history import DEFAULT, History
from support.random_log import BROKERS, NAMESPACES, ROLES, TENANTS, TOPICS, random_record
from support.world import A, B, World

SUBSCRIPTIONS = ("s", "t")
SCOPES = (*NAMESPACES, *TOPICS)


def facts(replica: MemoryReplica | View) -> dict[str, Any]:
    """Everything that a replica can be asked."""
    state: MemoryReplica | View = replica
    ring = [0, 1, RING_END, *range(0, RING_END, RING_END // 13)]
    return {
        "place": (state.next_offset, state.digest, state.horizon),
        "cluster": state.cluster(),
        "leadership": state.unit(LEADERSHIP),
        "sessions": (list(state.sessions()), [state.session(name) for name in BROKERS]),
        "tenants": (list(state.tenants()), [state.tenant(name) for name in TENANTS]),
        "namespaces": [list(state.namespaces(name)) for name in TENANTS],
        "namespace": [state.namespace(name) for name in NAMESPACES],
        "bundles": [list(state.bundles(name)) for name in NAMESPACES],
        "units": [state.unit(unit) for name in NAMESPACES for unit, _ in state.bundles(name)],
        "at": [state.bundle_at(name, where) for name in NAMESPACES for where in ring],
        "units_of": [list(state.units_of(name)) for name in BROKERS],
        "unit_count": [state.unit_count(name) for name in BROKERS],
        "unsettled": list(state.unsettled()),
        "topics": [(list(state.topics(name))) for name in NAMESPACES],
        "states": [list(state.topic_states(name)) for name in NAMESPACES],
        "topic": [state.topic(name) for name in TOPICS],
        "subscriptions": [list(state.subscriptions(name)) for name in TOPICS],
        "permissions": [list(state.permissions(name)) for name in SCOPES],
        "permission": [state.permission(name, role) for name in SCOPES for role in ROLES],
        "subscription": [state.subscription(n, s) for n in TOPICS for s in SUBSCRIPTIONS],
        "restless": list(state.restless_topics()),
    }


class ViewMachine(RuleBasedStateMachine):
    """A log grows; a view and a replica in memory follow it at their own pace."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="view-"))
        self.world = World(A, B)
        self.copied = 0  # so many of its records are in the log
        self.log = History()
        self.path = self.home / "0"
        self.view = View.open(self.path)
        self.model = MemoryReplica()
        self.changed: dict[str, int] = {}  # key -> offset of its last change since the horizon

    def teardown(self) -> None:
        self.view.close()
        shutil.rmtree(self.home)

    @initialize()
    def found(self) -> None:
        self.world.elect(A)
        self.grow(200, random.Random(0))

    @rule(count=st.integers(1, 60), rng=st.randoms(use_true_random=False))
    def grow(self, count: int, rng: random.Random) -> None:
        """What a cluster would propose, and what loses."""
        for _ in range(count):
            self.world.tell(random_record(self.world, rng))
        for record, _ in self.world.log[self.copied :]:
            if record is None:
                self.log.garbage()
            else:
                self.log.append(record)
        self.copied = len(self.world.log)

    @rule(key=st.sampled_from((b"x", namespace_key(DEFAULT).encode())))
    def stranger(self, key: bytes) -> None:
        self.log.garbage(key)

    # --- the view follows ---------------------------------------------------------------

    def _model(self, count: int) -> list[Folded]:
        start = self.model.next_offset
        folded = []
        for entry in self.log.entries[start : start + count]:
            fold = self.model.read(entry.record(), entry.offset, entry.timestamp_ms)
            self.changed.update((key, entry.offset) for key, _ in fold.outcome.changes)
            folded.append(fold)
        return folded

    @rule(count=st.integers(0, 120), again=st.integers(0, 5))
    def fold(self, count: int, again: int) -> None:
        """A batch of any size, which may begin with what was delivered before."""
        start = self.model.next_offset
        answers = self.view.read_batch(self.log.entries[max(0, start - again) : start + count])
        expected = self._model(count)
        assert answers == expected

    @rule()
    def reopen(self) -> None:
        self.view.close()
        self.view = View.open(self.path)

    @rule()
    def crash(self) -> None:
        """What is on the disk while the view is open is all that a killed process leaves."""
        self.path = self.path.with_name(str(int(self.path.name) + 1))
        shutil.copytree(self.view.path, self.path)
        self.view.close()
        self.view = View.open(self.path)

    @rule(cut=st.integers(1, 30), stale=st.booleans())
    def load(self, cut: int, stale: bool) -> None:
        """A snapshot of the log's end, in batches; earlier values of a key may still be there."""
        self._model(len(self.log.entries))
        taken = self.log.snapshot()
        rows = taken.rows
        if stale:
            some = next(v for v in taken.values.values() if isinstance(decode_entity(v), Unit))
            gone: list[tuple[bytes, bytes | None]] = [
                (f"{DEFAULT}/0x00000000_0x00000001".encode(), some),
                (b"tenant:gone", some),  # whatever it holds: it is gone in the end
            ]
            units = [(key, some) for key, _ in rows if key.count(b"/") == 2 and b":" not in key]
            rows = [*gone, *units, *rows, *((key, None) for key, _ in gone)]
        batches = [rows[at : at + cut] for at in range(0, len(rows), cut)]
        self.view.load_snapshot(batches, lambda: taken.horizon)
        self.model.horizon = taken.horizon.next_offset
        self.changed.clear()

    @rule(back=st.integers(0, 20))
    def horizon(self, back: int) -> None:
        reached = max(0, self.model.next_offset - back)
        self.view.horizon_reached(reached)
        if reached > self.model.horizon:
            self.model.horizon = reached
            self.changed = {key: at for key, at in self.changed.items() if at >= reached}

    # --- and they agree -----------------------------------------------------------------

    @invariant()
    def the_view_is_the_replica(self) -> None:
        assert facts(self.view) == facts(self.model)

    @invariant()
    def the_changed_keys_are_known_with_their_values(self) -> None:
        dirty = self.view.freeze().changes()
        decoded = {key.decode(): value and decode_entity(value) for key, value in dirty}
        assert decoded == {key: self.model.entities.get(key) for key in self.changed}


ViewMachine.TestCase.settings = settings(
    max_examples=8,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# Each step asks the view everything: half a minute, and many where nine others want the machine.
TestViewMachine = pytest.mark.timeout(1_800)(ViewMachine.TestCase)
