"""Roles, simulated: they grant, revoke and ask for changes at brokers that ask who may do what; now
and then by a proxy, to which something is granted or revoked likewise.

What each may do by the log is followed here in other words than core's, from the accepted records
alone, and held against every verdict. Half of the requests are made at brokers that do not look at
all before they propose, so that the log alone refuses.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import (
    NamespaceChange,
    PermissionChange,
    PolicyOp,
    Record,
    SettingChange,
    TenantChange,
    TopicChange,
)
from anabranch.core.log.verdicts import Verdict
from anabranch.core.security.changes import is_permitted
from anabranch.core.topics.guards import controller_of
from anabranch.core.topics.layout import initial_segments
from anabranch.core.topics.propose import topic_change
from anabranch.core.topics.topic import TopicMove, TopicState
from simulation.process import Process
from simulation.scheduler import ViolationError
from support.world import successor

if TYPE_CHECKING:
    from simulation.cluster import Cluster

FIRST: Final = "public/default"
HOMES: Final = (FIRST, "public/n1")  # clients make and delete the second
TOPIC: Final = f"{FIRST}/orders"
ROOT: Final = "root"
PEOPLE: Final = (ROOT, "ada", "bob", "eve")
GATE: Final = "gate"  # a proxy, by which they ask
INTERVAL_S: Final = 0.12


class RoleWorld:
    """Requests of some roles until the weather is over."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._sched = cluster.sched
        self._rng = random.Random(seed)
        self._looked: dict[str, bool] = {}  # proposal: whether its broker saw the right to it
        self._admins: tuple[str, ...] = ()  # of the tenant
        self._granted: dict[tuple[str, str], set[str]] = {}
        self._seen: Counter[str] = Counter()
        cluster.world = self

    def start(self) -> None:
        self._sched.after(INTERVAL_S, self._request)

    def host(self, _: Process) -> None:
        """Brokers serve bundles alone."""

    def process_ended(self, process: Process) -> None:
        """Nobody waits for it."""

    def unsettled(self) -> list[str]:
        """Nothing is under way that does not end by itself."""
        return []

    def judge(self) -> None:
        """Every verdict was judged when it was given."""

    def seen(self) -> dict[str, int]:
        """What became of what was asked for."""
        return dict(self._seen)

    def _request(self) -> None:
        if self._cluster.faults_over:
            return
        for process in self._cluster.processes:
            process.call(partial(self._controls, process))
        process = self._rng.choice(self._cluster.processes)
        process.call(partial(self._ask, process))
        self._sched.after(self._rng.expovariate(1.0 / INTERVAL_S), self._request)

    # --- requests -----------------------------------------------------------------------------

    def _controls(self, process: Process) -> None:
        """The topic's controller goes on with what somebody has begun; it acts for itself."""
        core = process.core
        topic = core.state.topic(TOPIC)
        if topic is None or controller_of(core.state, TOPIC)[1] != core.me:
            return
        steps = {TopicState.CREATING: TopicMove.OPEN, TopicState.DELETING: TopicMove.REMOVE}
        step = steps.get(topic.state)
        if step is not None and self._rng.random() < 0.3:
            process.append(topic_change(core.actor(), TOPIC, topic, step, process.new_id()))

    def _ask(self, process: Process) -> None:
        if not process.core.lease.holds(process.local_now()):
            return
        role = self._rng.choice(PEOPLE)
        record = self._wanted(process, role)
        if record is None:
            return
        by = GATE if self._rng.random() < 0.4 else ""
        asked = msgspec.structs.replace(record, principal=role, proxied_by=by)
        may = is_permitted(process.core.state, asked)
        if may or self._rng.random() < 0.5:
            self._looked[asked.proposal_id] = may
            process.append(asked)

    def _wanted(
        self, process: Process, role: str
    ) -> PermissionChange | TenantChange | SettingChange | TopicChange | None:
        what = self._rng.random()
        if what < 0.4:
            return self._permission(process)
        if what < 0.5:
            return self._administrators(process)
        if what < 0.55:
            return self._setting(process)
        return self._of_topic(process, role)

    def _permission(self, process: Process) -> PermissionChange:
        scope = self._rng.choice((*HOMES, TOPIC, TOPIC))
        role = self._rng.choice((*PEOPLE[1:], GATE))
        before = process.core.state.permission(scope, role)
        revokes = before is not None and self._rng.random() < 0.6
        op = PolicyOp.DELETE if revokes else PolicyOp.UPDATE if before else PolicyOp.CREATE
        actions = () if revokes else self._rng.choice((("scale",), ("consume",), ("view",)))
        fields = {"scope": scope, "role": role, "op": op, "actions": actions}
        return successor(PermissionChange, before, process.core.actor(), process.new_id(), **fields)

    def _administrators(self, process: Process) -> TenantChange | None:
        before = process.core.state.tenant("public")
        if before is None:
            return None
        roles = self._rng.choice(((), ("ada",), ("ada", "bob"), ("ada", GATE)))
        fields = {"tenant": "public", "op": PolicyOp.UPDATE, "admin_roles": roles}
        return successor(TenantChange, before, process.core.actor(), process.new_id(), **fields)

    def _setting(self, process: Process) -> SettingChange:
        before, new_id = process.core.state.override("wait"), process.new_id()
        op = PolicyOp.UPDATE if before else PolicyOp.CREATE
        fields = {"name": "wait", "op": op, "value": new_id}
        return successor(SettingChange, before, process.core.actor(), new_id, **fields)

    def _of_topic(self, process: Process, role: str) -> TopicChange | None:
        core = process.core
        if controller_of(core.state, TOPIC)[1] != core.me:
            return None
        topic, actor, new_id = core.state.topic(TOPIC), core.actor(), process.new_id()
        if topic is None:
            first = initial_segments(1)
            return topic_change(actor, TOPIC, None, TopicMove.CREATE, new_id, segments=first)
        if topic.state is not TopicState.STABLE:
            return None
        if self._rng.random() < 0.15:
            return topic_change(actor, TOPIC, topic, TopicMove.DELETE, new_id)
        flat = ("maxSegments", str(1 + self._rng.randrange(9)))
        return topic_change(actor, TOPIC, topic, TopicMove.POLICY, new_id, auto_scale=flat)

    # --- what must hold -------------------------------------------------------------------------

    def folded(self, folded: Folded) -> None:
        """A record was judged; `_may` knows what was so before it."""
        record, verdict = folded.record, folded.outcome.verdict
        if record is None:
            return
        role: str = getattr(record, "principal", "")
        by: str = getattr(record, "proxied_by", "")
        if verdict is Verdict.ACCEPTED and role:
            for each in filter(None, (role, by)):
                if not self._may(each, record):
                    raise ViolationError(f"{each} had no right to {record}")
            self._seen["let through" if not by else "let through by a proxy"] += 1
        elif verdict is Verdict.NOT_PERMITTED:
            may = self._may(role, record)
            if may and (not by or self._may(by, record)):
                raise ViolationError(f"{role} was refused, with the right to {record}")
            late = self._looked.get(record.proposal_id, False)
            self._seen["revoked meanwhile" if late else "refused"] += 1
            if may:
                self._seen["refused, or revoked, for the proxy"] += 1
        if verdict is Verdict.ACCEPTED:
            self._follow(record)

    def _may(self, role: str, record: Record) -> bool:
        if role == ROOT:
            return True
        if isinstance(record, TenantChange | SettingChange):
            return False
        if role in self._admins:
            return True
        if not isinstance(record, TopicChange) or record.move is not TopicMove.POLICY:
            return False
        here = (self._granted.get((scope, role), set()) for scope in (FIRST, TOPIC))
        return any("scale" in actions for actions in here)

    def _follow(self, record: Record) -> None:
        truth = self._cluster.checks.truth
        if isinstance(record, TenantChange) and record.tenant == "public":
            self._admins = record.admin_roles
        elif isinstance(record, PermissionChange):
            self._granted[record.scope, record.role] = set(record.actions)
            self._seen["granted" if record.actions else "revoked"] += 1
        gone = ""
        if isinstance(record, TopicChange) and record.move is TopicMove.REMOVE:
            gone = record.topic
        elif isinstance(record, NamespaceChange) and record.op is PolicyOp.DELETE:
            gone = record.namespace
        if gone:
            for scope, role in list(self._granted):
                if scope == gone and self._granted.pop((scope, role)):
                    self._seen["gone with what it was on"] += 1
            left = [role for role, _ in truth.permissions(gone)]
            if left:
                raise ViolationError(f"{gone} is gone, and something is still granted to {left}")
