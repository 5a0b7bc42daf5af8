"""What people and clients ask for: the same decisions that a broker's admin interface makes."""

from __future__ import annotations

from functools import partial

from anabranch.core.bundles import propose
from anabranch.core.entities.unit import LEADERSHIP, Unit, UnitState
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.records import Cause, NamespaceChange, PolicyOp, Record, TenantChange
from anabranch.core.log.state import live_bundles
from anabranch.core.names import Namespace
from simulation.cluster import Cluster
from simulation.process import Process
from support.world import successor

FIRST = "public/default"
BUNDLES_MAX = 24  # of one namespace, so that splits do not go on for ever


class Clients:
    """Random requests at random brokers until the weather is over, then only look-ups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sched = cluster.sched
        self._namespaces = [FIRST, *(f"public/n{i}" for i in range(1, cluster.plan.namespaces))]

    def start(self) -> None:
        self._sched.after(self._cluster.plan.client_interval_s, self._request)

    def _request(self) -> None:
        if self._cluster.faults_over:
            self._look_up_all()
            self._evacuate()
            self._sched.after(1.0, self._request)
            return
        process = self._sched.rng.choice(self._cluster.processes)
        process.call(partial(self._ask, process))
        if self._sched.chance(0.01):
            self._cluster.scribble()
        self._sched.after(
            self._sched.rng.expovariate(1.0 / self._cluster.plan.client_interval_s), self._request
        )

    def _ask(self, process: Process) -> None:
        core = process.core
        if not core.lease.holds(process.local_now()):
            return
        rng = self._sched.rng
        home = rng.choice(self._namespaces)
        if core.state.namespace(home) is None or rng.random() < 0.02:
            self._policy(process, home)
            return
        found = core.state.bundle_at(home, rng.getrandbits(32))
        if found is None:
            return
        name, unit = found
        if unit.state is UnitState.FREE:
            process.look_up(name)
            return
        record = self._unit_request(process, name, unit)
        if record is not None:
            process.append(record)

    def _unit_request(self, process: Process, name: str, unit: Unit) -> Record | None:
        core, rng = process.core, self._sched.rng
        what = rng.random()
        if what < 0.15:
            home = name.rpartition("/")[0]
            if len(live_bundles(core.state, home)) >= BUNDLES_MAX:
                return None
            try:
                return propose.split(core.actor(), name, unit, (), process.new_id())
            except InvalidInputError:
                return None
        if what < 0.6:
            target = "" if what < 0.3 else rng.choice(self._cluster.processes).name
            new_id = process.new_id()
            return propose.release(core.actor(), name, unit, target, new_id, Cause.OPERATOR)
        return None

    def _policy(self, process: Process, home: str) -> None:
        if home == FIRST:
            self._tenant(process)
        elif process.core.state.namespace(home) is None:
            self._namespace(process, home, PolicyOp.CREATE)
        else:
            for name, unit in live_bundles(process.core.state, Namespace(home)):
                actor, new_id = process.core.actor(), process.new_id()
                record = propose.release(actor, name, unit, "", new_id, Cause.OPERATOR)
                if record is not None:
                    process.append(record)
            delete = partial(self._delete, process, home)
            self._sched.after(self._sched.rng.uniform(0.05, 0.5), partial(process.call, delete))

    def _delete(self, process: Process, home: str) -> None:
        if process.core.state.namespace(home) is not None:
            self._namespace(process, home, PolicyOp.DELETE)

    def _namespace(self, process: Process, home: str, op: PolicyOp) -> None:
        actor, found = process.core.actor(), process.core.state.namespace(home)
        count, new_id = self._sched.rng.choice((1, 3, 4)), process.new_id()
        fields = {"namespace": home, "op": op, "bundles": count}
        process.append(successor(NamespaceChange, found, actor, new_id, **fields))

    def _tenant(self, process: Process) -> None:
        actor, found = process.core.actor(), process.core.state.tenant("acme")
        op, new_id = PolicyOp.DELETE if found else PolicyOp.CREATE, process.new_id()
        process.append(successor(TenantChange, found, actor, new_id, tenant="acme", op=op))

    def _look_up_all(self) -> None:
        """Every free unit is asked for, somewhere."""
        for home in self._namespaces:
            for name, unit in live_bundles(self._cluster.checks.truth, Namespace(home)):
                if unit.state is UnitState.FREE:
                    process = self._sched.rng.choice(self._cluster.processes)
                    process.call(partial(process.look_up, name))

    def _evacuate(self) -> None:
        """What answers to a broker that has lost the log is unloaded, at one that has not."""
        exiled = {process.name for process in self._cluster.processes if process.exiled}
        for name, entity in list(self._cluster.checks.truth.entities.items()):
            if isinstance(entity, Unit) and entity.broker in exiled and name != LEADERSHIP:
                process = self._sched.rng.choice(self._cluster.processes)
                process.call(partial(self._unload, process, name))

    def _unload(self, process: Process, name: str) -> None:
        core = process.core
        unit = core.state.unit(name)
        if unit is not None and core.lease.holds(process.local_now()):
            actor, new_id = core.actor(), process.new_id()
            record = propose.release(actor, name, unit, "", new_id, Cause.OPERATOR)
            if record is not None:
                process.append(record)
