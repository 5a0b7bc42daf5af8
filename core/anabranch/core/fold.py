"""`evolve`: the one rule by which a log becomes a state (seed 004, "Conflict State Resolution").

First valid wins: a record is accepted when its version is the next one and its move is an arrow of
the machine whose guards hold. Anything else changes nothing and gets a named reason. The answer
depends on the state and the record alone: the record's offset and log timestamp are part of it, a
local clock or setting never is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.core.autoscale_policy import is_override_form
from anabranch.core.guards import GUARDS, child_names, leads, source_settled
from anabranch.core.names import (
    Namespace,
    broker_id,
    is_valid,
    namespace,
    parse_namespace,
    tenant,
    tenant_of,
)
from anabranch.core.outcome import (
    REJECTED,
    Outcome,
    first_version,
    may_propose,
    unfit_version,
    wrong_version,
)
from anabranch.core.records import (
    CLUSTER_KEY,
    ClusterSettings,
    NamespaceChange,
    PolicyOp,
    Record,
    SessionChange,
    SessionOp,
    SubscriptionChange,
    TenantChange,
    TopicChange,
    UnitMove,
    namespace_key,
    tenant_key,
)
from anabranch.core.ring import BUNDLES_MAX, bundle_name, even_ranges
from anabranch.core.state import (
    Change,
    Cluster,
    NamespaceInfo,
    Session,
    StateReader,
    Tenant,
    leader_of,
)
from anabranch.core.topic_fold import fold_subscription, fold_topic
from anabranch.core.units import (
    BUNDLE_TABLE,
    LEADERSHIP,
    LEADERSHIP_TABLE,
    Arrow,
    Move,
    Take,
    Unit,
    UnitState,
)
from anabranch.core.verdicts import Verdict

FIRST_NAMESPACE: Final = ("public", "default")  # every cluster starts with it


UNREADABLE: Final = REJECTED[Verdict.UNREADABLE]
_GUARDS_OF: Final = {
    id(arrow): tuple(GUARDS[guard] for guard in arrow.guards)
    for table in (BUNDLE_TABLE, LEADERSHIP_TABLE)
    for arrow in table.values()
}


def evolve(state: StateReader, record: Record, offset: int, timestamp_ms: int) -> Outcome:
    """Judges one record, given the log's offset and timestamp. The caller applies `changes`."""
    if type(record) is UnitMove:
        return _unit(state, record, offset, timestamp_ms)
    if type(record) is ClusterSettings:
        return _cluster(state, record, offset, timestamp_ms)
    if state.cluster() is None:
        return REJECTED[Verdict.NO_CLUSTER]
    if type(record) is SessionChange:
        return _session(state, record, offset, timestamp_ms)
    if type(record) is TenantChange:
        return _tenant(state, record, offset, timestamp_ms)
    if type(record) is NamespaceChange:
        return _namespace(state, record, offset, timestamp_ms)
    if type(record) is TopicChange:
        return fold_topic(state, record, offset, timestamp_ms)
    if type(record) is SubscriptionChange:
        return fold_subscription(state, record, offset, timestamp_ms)
    raise TypeError(f"{type(record).__name__} is not a record of the log")


# --- service units --------------------------------------------------------------------------


def _unit(state: StateReader, record: UnitMove, offset: int, timestamp_ms: int) -> Outcome:
    if state.cluster() is None:
        return REJECTED[Verdict.NO_CLUSTER]
    name = record.unit
    unit = state.unit(name)
    table = BUNDLE_TABLE
    if name == LEADERSHIP:
        table = LEADERSHIP_TABLE
        unit = unit or _NO_LEADER
    elif unit is None:
        return REJECTED[Verdict.UNKNOWN_UNIT]
    if record.version != unit.version + 1:
        repeated = record.proposal_id == unit.proposal_id
        return REJECTED[unfit_version(unit.version, record.version, repeated)]
    arrow = table.get((unit.state, record.move))
    if arrow is None:
        return REJECTED[Verdict.ILLEGAL_MOVE]
    if not may_propose(state, record.actor, record.session):
        return REJECTED[Verdict.SESSION_OVER]
    for holds, reason in _GUARDS_OF[id(arrow)]:
        if not holds(state, unit, record):
            return REJECTED[reason]
    after = _moved(unit, arrow, record, offset, timestamp_ms)
    if record.move is _SPLIT_COMMIT:
        born = _born(UnitState.OWNED, unit.broker, record.proposal_id, offset, timestamp_ms)
        children: tuple[Change, ...] = tuple(
            (child, born) for child in child_names(name, unit.children)
        )
        return Outcome(_ACCEPTED, ((name, after), *children))
    return Outcome(_ACCEPTED, ((name, after),))


_NO_LEADER: Final = Unit(UnitState.INIT, "", "", 0, Move.CREATE, 0, -1, "")


def _settled(unit: Unit) -> str:
    """Only a unit without a holder has a source that waits to be settled."""
    return "" if unit.holder else unit.source


_TAKES: Final[dict[Take, Callable[[Unit, UnitMove, str], str]]] = {
    Take.NOBODY: lambda unit, record, kept: "",
    Take.KEEP: lambda unit, record, kept: kept,
    Take.RECORD: lambda unit, record, kept: record.broker,
    Take.ACTOR: lambda unit, record, kept: record.actor,
    Take.BROKER: lambda unit, record, kept: unit.broker,
    Take.HOLDER: lambda unit, record, kept: unit.holder or _settled(unit),
    Take.UNSETTLED: lambda unit, record, kept: _settled(unit),
}
# An enum's member is looked up by a function before Python 3.12; the fold meets these each time.
_ACCEPTED: Final = Verdict.ACCEPTED
_SPLIT_COMMIT: Final = Move.SPLIT_COMMIT
_INIT, _SPLITTING, _DELETED = UnitState.INIT, UnitState.SPLITTING, UnitState.DELETED


def _moved(
    unit: Unit, arrow: Arrow, record: UnitMove, offset: int, timestamp_ms: int
) -> Unit | None:
    end = arrow.end
    if end is _INIT:
        return None
    children: tuple[str, ...] = ()
    if end is _SPLITTING:
        children = record.children
    elif end is _DELETED:
        children = unit.children
    return Unit(
        end,
        _TAKES[arrow.broker](unit, record, unit.broker),
        _TAKES[arrow.source](unit, record, unit.source),
        record.version,
        record.move,
        timestamp_ms,
        offset,
        record.proposal_id,
        children,
    )


def _born(state: UnitState, broker: str, proposal_id: str, offset: int, timestamp_ms: int) -> Unit:
    """A unit that did not exist."""
    version = first_version(offset)
    return Unit(state, broker, "", version, Move.CREATE, timestamp_ms, offset, proposal_id)


# --- sessions and the cluster ---------------------------------------------------------------


def _session(state: StateReader, record: SessionChange, offset: int, timestamp_ms: int) -> Outcome:
    before = state.session(record.broker)
    version = before.version if before else 0
    repeated = before is not None and before.proposal_id == record.proposal_id
    wrong = wrong_version(version, record.version, repeated)
    if wrong is not None:
        return REJECTED[wrong]
    if record.op is not SessionOp.OPEN and not (before and before.open):
        return REJECTED[Verdict.ILLEGAL_MOVE]
    if record.op is not SessionOp.OPEN and not may_propose(state, record.actor, record.session):
        return REJECTED[Verdict.SESSION_OVER]
    own = record.actor == record.broker
    if record.op is SessionOp.EXPIRE:
        fallen_leader = leader_of(state)[0] == record.broker and not own
        if not fallen_leader and not leads(state, record.actor, record.epoch):
            return REJECTED[Verdict.NOT_LEADER]
    elif not own:
        return REJECTED[Verdict.NOT_OWNER]
    if not is_valid(broker_id, record.broker):
        return REJECTED[Verdict.INVALID_VALUE]
    after = Session(
        record.version, record.op is SessionOp.OPEN, timestamp_ms, offset, record.proposal_id
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))


def _cluster(
    state: StateReader, record: ClusterSettings, offset: int, timestamp_ms: int
) -> Outcome:
    before = state.cluster()
    if before is not None:
        same = before.proposal_id == record.proposal_id
        return REJECTED[Verdict.REPEATED if same else Verdict.CLUSTER_EXISTS]
    if record.version != 1:
        return REJECTED[Verdict.VERSION_GAP]
    times_ordered = 0 < record.heartbeat_ms < record.lease_ms
    # The margin absorbs clocks that run at different rates; a tenth is far more than they do.
    margin = record.liveness_timeout_ms * 10 >= record.lease_ms * 11
    if not (times_ordered and margin and 1 <= record.default_bundles <= BUNDLES_MAX):
        return REJECTED[Verdict.INVALID_VALUE]
    after = Cluster(
        1,
        record.cluster,
        record.heartbeat_ms,
        record.lease_ms,
        record.liveness_timeout_ms,
        record.default_bundles,
        record.proposal_id,
    )
    version = first_version(offset)
    tenant_made = Tenant(version, (), (record.cluster,), timestamp_ms, record.proposal_id)
    home = namespace(*FIRST_NAMESPACE)
    made = _created(home, record.default_bundles, record.proposal_id, offset, timestamp_ms)
    first: tuple[Change, ...] = ((CLUSTER_KEY, after), (tenant_key(tenant_of(home)), tenant_made))
    return Outcome(Verdict.ACCEPTED, first + made)


# --- tenants and namespaces -----------------------------------------------------------------


def _policy_op(op: PolicyOp, exists: bool, unknown: Verdict) -> Verdict | None:
    if op is PolicyOp.CREATE:
        return Verdict.STALE_VERSION if exists else None
    return None if exists else unknown


def _tenant(state: StateReader, record: TenantChange, offset: int, timestamp_ms: int) -> Outcome:
    before = state.tenant(record.tenant)
    repeated = before is not None and before.proposal_id == record.proposal_id
    wrong = (
        (Verdict.REPEATED if repeated else None)
        or _policy_op(record.op, before is not None, Verdict.UNKNOWN_TENANT)
        or wrong_version(before.version if before else 0, record.version, repeated)
    )
    if wrong is not None:
        return REJECTED[wrong]
    if not may_propose(state, record.actor, record.session):
        return REJECTED[Verdict.SESSION_OVER]
    if record.op is PolicyOp.DELETE:
        if any(True for _ in state.namespaces(record.tenant)):
            return REJECTED[Verdict.TENANT_BUSY]
        return Outcome(Verdict.ACCEPTED, ((record.key, None),))
    if not is_valid(tenant, record.tenant):
        return REJECTED[Verdict.INVALID_VALUE]
    after = Tenant(
        record.version if before else first_version(offset),
        record.admin_roles,
        record.allowed_clusters,
        timestamp_ms,
        record.proposal_id,
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))


def _namespace(
    state: StateReader, record: NamespaceChange, offset: int, timestamp_ms: int
) -> Outcome:
    before = state.namespace(record.namespace)
    repeated = before is not None and before.proposal_id == record.proposal_id
    home = Namespace(record.namespace)
    wrong = (
        (Verdict.REPEATED if repeated else None)
        or (Verdict.UNKNOWN_TENANT if state.tenant(tenant_of(home)) is None else None)
        or _policy_op(record.op, before is not None, Verdict.UNKNOWN_NAMESPACE)
        or wrong_version(before.version if before else 0, record.version, repeated)
    )
    if wrong is not None:
        return REJECTED[wrong]
    if not may_propose(state, record.actor, record.session):
        return REJECTED[Verdict.SESSION_OVER]
    if record.op is PolicyOp.DELETE:
        units = list(state.bundles(home))
        in_use = any(_busy(state, unit) for _, unit in units)
        if in_use or any(True for _ in state.topics(home)):
            return REJECTED[Verdict.NAMESPACE_BUSY]
        gone: list[Change] = [(name, None) for name, _ in units]
        return Outcome(Verdict.ACCEPTED, ((record.key, None), *gone))
    if before is not None and record.op is PolicyOp.UPDATE:
        if not is_override_form(record.auto_scale):
            return REJECTED[Verdict.INVALID_VALUE]
        after = NamespaceInfo(
            record.version, before.bundles, timestamp_ms, record.proposal_id, record.auto_scale
        )
        return Outcome(Verdict.ACCEPTED, ((record.key, after),))
    countable = record.op is PolicyOp.CREATE and 1 <= record.bundles <= BUNDLES_MAX
    if not countable or not is_valid(parse_namespace, record.namespace):
        return REJECTED[Verdict.INVALID_VALUE]
    made = _created(home, record.bundles, record.proposal_id, offset, timestamp_ms)
    return Outcome(Verdict.ACCEPTED, made)


def _busy(state: StateReader, unit: Unit) -> bool:
    """Whether somebody may act as the unit's owner, or is about to."""
    idle = unit.state in (UnitState.FREE, UnitState.DELETED)
    return not idle or not source_settled(state, unit, evidence=0)


def _created(
    home: Namespace, bundles: int, proposal_id: str, offset: int, timestamp_ms: int
) -> tuple[Change, ...]:
    """A new namespace and the free bundles that tile its ring."""
    info = NamespaceInfo(first_version(offset), bundles, timestamp_ms, proposal_id)
    born = _born(UnitState.FREE, "", proposal_id, offset, timestamp_ms)
    units: list[Change] = [(bundle_name(home, part), born) for part in even_ranges(bundles)]
    return ((namespace_key(home), info), *units)
