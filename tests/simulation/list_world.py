"""Lists of topics in a simulated cluster, and settings that change while it runs.

Topics come and go, clients take lists and follow watches, some of them never read, operators change
the limits of the memory that lists may take, and nodes, clients and connections fail meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from anabranch.broker.settings import Settings, load_settings
from anabranch.core.bundles import propose
from anabranch.core.bundles.unit import UnitState
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import PolicyOp, SettingChange
from anabranch.core.topics.guards import controller_of
from anabranch.core.topics.layout import initial_segments
from anabranch.core.topics.topic import TopicMove, TopicState
from anabranch.wire import client as wire_client
from anabranch.wire.client import ClientConnection
from simulation.cluster import Cluster
from simulation.event_loop import SimulatedLoop, simulated_loop
from simulation.list_checks import Answering, ListChecks, selection_of
from simulation.list_clients import SLACK_S, Follower, ListClient, Lister, Mute
from simulation.list_host import UNREAD_S, WIRE_LIMITS, ListHost, in_use
from simulation.list_plan import CHANGES, HOME, LIMITS, SELECTIONS, ListPlan
from simulation.list_proxy import PORT, PROXY, ListProxy, behind_proxy
from simulation.process import Process
from simulation.repeatable import Faults
from simulation.scheduler import ViolationError
from simulation.wires import End, Wire
from support.world import successor

LOOK_S = 0.5
TURN_S_MAX, LATE_S_MAX = 0.0004, 0.1  # until the next turn of an event loop
_TIMEOUT_MS_MAX = 6_000


class ListWorld:
    """Everything about lists and settings in one run."""

    def __init__(self, cluster: Cluster, plan: ListPlan, faults: Faults) -> None:
        self.faults = faults
        self.cluster = cluster
        self.sched = cluster.sched
        self.plan = plan
        self.checks = ListChecks(self)
        self.hosts: dict[str, ListHost] = {}
        self.by_name = [each for each in SELECTIONS if not each.properties]
        self.names = [
            f"{HOME}/{('orders', 'bills')[number % 2]}-{number}" for number in range(plan.topics)
        ]
        hosts = [each.name.partition(":")[0] for each in cluster.processes]
        self.url = "pulsar://" + ",".join(f"{host}:{PORT}" for host in hosts)
        # Two waits for heap and one for direct memory, behind who does not read.
        self.answered_within_s = 3 * _TIMEOUT_MS_MAX / 1000 + UNREAD_S + SLACK_S
        self.overridden = self.refused = self.turned_away = 0
        self._wires: dict[Wire, tuple[ListClient, Process | ListProxy, int]] = {}
        self._own: dict[str, Settings] = {}
        self._clock = 0.0
        self._wrong: list[str] = []
        self._numbers = iter(range(1, 250))
        self.followers = [
            Follower(self, next(self._numbers), SELECTIONS[each % len(SELECTIONS)], self.url)
            for each in range(plan.followers)
        ]
        self.clients: list[ListClient] = [
            *self.followers,
            *(Lister(self, next(self._numbers)) for _ in range(plan.listers)),
            *(Mute(self, next(self._numbers)) for _ in range(plan.mute)),
        ]
        self.proxies: list[ListProxy] = []
        if plan.proxied:
            proxy, followers, others = behind_proxy(self, self._numbers)
            self.proxies.append(proxy)
            self.followers += followers
            self.clients += [proxy, *followers, *others]
        self._paused_until: dict[str, float] = {}
        cluster.world = self

    @property
    def faults_over(self) -> bool:
        return self.cluster.faults_over

    # --- nodes --------------------------------------------------------------------------

    def own_settings(self, process: Process) -> Settings:
        """Those in the node's own file: nodes differ in some."""
        known = self._own.get(process.name)
        if known is None:
            host, _, port = process.name.partition(":")
            own: dict[str, object] = {"advertisedAddress": host, "webServicePort": int(port)}
            for kind in ("Heap", "Direct"):
                size = f"maxTopicListInFlight{kind}MemSize"
                own[f"{size}MB"] = self.plan.memory
                own[f"{size}PermitsAcquireTimeoutMillis"] = _TIMEOUT_MS_MAX
            if process is self.cluster.processes[0]:
                own["scalableTopicMaxSegments"] = 9
            known = load_settings(None, {}, own)
            self._own[process.name] = known
        return known

    def node_loop(self, process: Process) -> SimulatedLoop:
        """For one life of a process."""
        return simulated_loop(
            process.local_now, process.later_local, self._turn_s, partial(self._connect, None)
        )

    def _turn_s(self) -> float:
        late = not self.faults_over and self.sched.chance(self.plan.busy)
        return self.sched.rng.uniform(0.0, LATE_S_MAX if late else TURN_S_MAX)

    def slices(self) -> float:
        """A clock for slices of work, on which each look takes as long as the plan says."""
        self._clock += self.plan.slice_s
        return self._clock

    def host(self, process: Process) -> ListHost:
        """For a process that starts."""
        self.hosts[process.name] = ListHost(self, process)
        return self.hosts[process.name]

    def process_ended(self, process: Process | ListProxy) -> None:
        """Connections to it break."""
        for wire, (_, node, _) in list(self._wires.items()):
            if node is process:
                wire.node_died()
                del self._wires[wire]

    def folded(self, folded: Folded) -> None:
        """A record was judged; the truth has it."""
        self.checks.folded(folded)

    # --- clients ------------------------------------------------------------------------

    def client_loop(self, client: ListClient) -> SimulatedLoop:
        """For one life of a client."""
        life = client.life

        def later(delay_s: float, action: object) -> None:
            assert callable(action)
            self.sched.after(delay_s, partial(client.run_in, life, action))

        return simulated_loop(client.local_now, later, self._turn_s, partial(self._connect, client))

    async def _connect(
        self, client: ListClient | None, loop: SimulatedLoop, make: object, host: str, port: int
    ) -> object:
        if client is None:
            raise ConnectionRefusedError("nodes connect to nobody here")
        process = self._called(host)
        rng = self.sched.rng
        await asyncio.sleep(max(0.0, client.cut_until - self.sched.now) + rng.uniform(0.001, 0.01))
        node = process if isinstance(process, ListProxy) else self.hosts.get(process.name)
        is_joined = isinstance(process, ListProxy) or process.joined
        if not process.alive or node is None or process.paused or not is_joined:
            raise ConnectionRefusedError(f"{process.name} does not listen")
        assert callable(make)
        wire = Wire(self.sched, self.cluster.quick_s, lambda: client.cut_until)
        theirs = End(wire, node.loop, partial(process.run_in, process.life), client.address)
        ours = End(wire, loop, client.in_life(), host)
        wire.join(ours, theirs)
        self._wires[wire] = (client, process, client.life)
        ours.protocol = make()
        theirs._in_life(partial(node.loop.call, partial(self._accept, node, theirs)))
        ours.protocol.connection_made(ours)
        return ours.protocol

    def _called(self, host: str) -> Process | ListProxy:
        return next(each for each in self._servers() if each.name.partition(":")[0] == host)

    def _servers(self) -> list[Process | ListProxy]:
        return [*self.cluster.processes, *self.proxies]

    def _accept(self, node: ListHost | ListProxy, end: End) -> None:
        end.protocol = node.server.peer()
        end.protocol.connection_made(end)
        end._read()

    async def connected(self, client: ListClient) -> ClientConnection:
        """A connection to some node, or to the client's proxy. Raises ConnectError."""
        process = self.sched.rng.choice(self.cluster.processes)
        host = PROXY if client.is_proxied else process.name.partition(":")[0]
        return await wire_client.connect(host, PORT, timeout_s=5.0, limits=WIRE_LIMITS)

    def answering(self, address: str) -> Answering:
        """Who may answer there: a node, or any of those behind the proxy."""
        found = self._called(address.partition(":")[0])
        return Answering(self.cluster.processes if isinstance(found, ListProxy) else [found])

    def stop_reading(self, client: ListClient) -> None:
        """Its connections take nothing any more."""
        for wire, (owner, _, life) in self._wires.items():
            if owner is client and life == client.life:
                wire.ends[0].reads = False

    def client_ended(self, client: ListClient) -> None:
        """Its process is gone."""
        for wire, (owner, _, _) in list(self._wires.items()):
            if owner is client:
                wire.client_died()
                del self._wires[wire]

    def wrong(self, what: str) -> None:
        """A client found a violation: in a coroutine, so that it is told by the next look."""
        self._wrong.append(what)

    def judged(self, check: Callable[[], None]) -> None:
        """For a client's coroutine: looks at what it was told."""
        try:
            check()
        except ViolationError as found:
            self.wrong(str(found))

    def was_calm(self, client: ListClient, since: float) -> bool:
        """Whether nothing but other clients kept this one waiting."""
        return client.disturbed_at < since and all(
            until < since for until in self._paused_until.values()
        )

    # --- the run ------------------------------------------------------------------------

    def start(self) -> None:
        """Everybody begins."""
        self._every(self.plan.operation_interval_s, self._operate)
        self._every(self.plan.change_interval_s, self._change)
        self._every(self.plan.fault_interval_s, self._strike)
        self.sched.after(LOOK_S, self._look)
        for client in self.clients:
            self.sched.after(self.sched.rng.uniform(2.0, 6.0), client.start)
        self.sched.at(self.cluster.plan.faults_end_s, self._clear)

    def _every(self, mean_s: float, action: object) -> None:
        assert callable(action)

        def again() -> None:
            action()
            self.sched.after(self.sched.rng.expovariate(1.0 / mean_s), again)

        self.sched.after(mean_s, again)

    # --- operators ----------------------------------------------------------------------

    def _operate(self) -> None:
        if self.faults_over:
            return
        name = self.sched.rng.choice(self.names)
        for process in self.cluster.processes:
            process.call(partial(self._ask, process, name))

    def _ask(self, process: Process, name: str) -> None:
        core, now = process.core, process.local_now()
        unit_name, _ = controller_of(core.state, name)
        unit = core.state.unit(unit_name)
        if unit is not None and unit.state is UnitState.FREE and core.lease.holds(now):
            found = propose.assign(
                core.actor(), unit_name, unit, core.candidates(now), process.new_id()
            )
            if found is not None:
                process.append(found)
        host = self.hosts[process.name]
        if not host.controls(name):
            return
        topic = core.state.topic(name)
        if topic is None:
            properties = ("team", "blue") if self.sched.chance(0.5) else ("team", "red")
            first = initial_segments(1, 1)
            host.propose(name, TopicMove.CREATE, segments=first, properties=properties)
        elif topic.state is TopicState.STABLE:
            if self.sched.chance(0.3):
                properties = ("team", self.sched.rng.choice(("blue", "red")))
                host.propose(name, TopicMove.UPDATE, properties=properties)
            else:
                host.propose(name, TopicMove.DELETE)

    def _change(self) -> None:
        rng = self.sched.rng
        process = rng.choice(self.cluster.processes)
        is_strange = self.sched.chance(self.plan.strange_changes) and not self.faults_over
        others, limits = CHANGES[len(LIMITS) :], CHANGES[: len(LIMITS)]
        name, values = rng.choice(others if is_strange or self.sched.chance(0.2) else limits)
        value = rng.choice(("", *values))
        if self.faults_over:
            if process.alive:
                self._take_back_all(process)
        elif is_strange:
            process.call(partial(self._write_strange, process, name, value))
        elif process.alive:
            process.call(partial(self._override, process, name, value))

    def _take_back_all(self, process: Process) -> None:
        """In the end lists have room."""
        for name in LIMITS:
            if self.cluster.checks.truth.override(name):
                process.call(partial(self._override, process, name, ""))

    def _override(self, process: Process, name: str, value: str) -> None:
        host = self.hosts[process.name]
        host.loop.spawn(host.override(name, value))

    def _write_strange(self, process: Process, name: str, value: str) -> None:
        """As a node of another release would, which finds other values right."""
        if not process.core.lease.holds(process.local_now()):
            return
        known, new_id = process.core.state.override(name), process.new_id()
        op = PolicyOp.CREATE if known is None else PolicyOp.UPDATE
        strange = value or self.sched.rng.choice(("many", "-1", "1e9"))
        fields = {"name": name, "op": op, "value": strange}
        process.append(successor(SettingChange, known, process.core.actor(), new_id, **fields))

    # --- what goes wrong ----------------------------------------------------------------

    def _strike(self) -> None:
        if self.faults_over or not self.plan.fault_kinds:
            return
        rng = self.sched.rng
        kind, client = rng.choice(self.plan.fault_kinds), rng.choice(self.clients)
        duration_s = rng.choice((0.3, 2.0, 5.0, 9.0)) + rng.random()
        self.sched.note(f"fault {kind} {client} for {duration_s:.1f} s")
        match kind:
            case "break":
                self._break(client)
            case "cut":
                client.cut(duration_s)
            case "pause":
                client.pause(duration_s)
            case _ if client.alive:
                client.crash()
                self.sched.after(duration_s, client.start)

    def _break(self, client: ListClient) -> None:
        for wire, (owner, _, _) in list(self._wires.items()):
            if owner is client:
                wire.break_off()
                del self._wires[wire]

    def _clear(self) -> None:
        for client in self.clients:
            client.cut_until = 0.0
            client.resume()
            client.start()

    # --- what must hold -----------------------------------------------------------------

    def _look(self) -> None:
        self.sched.after(LOOK_S, self._look)
        now = self.sched.now
        for process in self._servers():
            if process.paused or not process.alive:
                self._paused_until[process.name] = now + LOOK_S
        if self.faults.found:
            raise ViolationError(f"a fault in the product: {self.faults.found[0]}")
        if self._wrong:
            raise ViolationError(self._wrong[0])
        for client in self.clients:
            failures = client.loop.failures if client.life else []
            if failures:
                raise ViolationError(f"{client} met a fault: {failures[0]}")
        self._look_at_servers()
        self._look_at_wires(now)

    def _look_at_servers(self) -> None:
        for process in self._servers():
            host = process if isinstance(process, ListProxy) else self.hosts.get(process.name)
            if host is None or not process.alive:
                continue
            if host.loop.failures:
                raise ViolationError(f"{process.name} met a fault: {host.loop.failures[0]}")

    def _look_at_wires(self, now: float) -> None:
        for wire, (client, process, _) in list(self._wires.items()):
            end = wire.ends[1]
            if end.is_over:
                del self._wires[wire]
            elif (
                end.buffer
                and end.protocol._marks
                and now - max(end.moved_at, self._paused_until.get(process.name, 0.0))
                > UNREAD_S + SLACK_S
            ):
                raise ViolationError(f"{process.name} keeps {client}, who does not read")

    def unsettled(self) -> list[str]:
        """What still keeps lists from being at rest, in words."""
        truth = self.cluster.checks.truth
        found = [f"{name} is on its way" for name in self.names if _on_way(truth.topic(name))]
        found += [f"{each} is still overridden" for each in LIMITS if truth.override(each)]
        for follower in self.followers:
            if follower.known != self.checks.selected(selection_of(follower.selection)):
                found.append(f"{follower} does not have the list of {follower.selection}")
        for name, host in self.hosts.items():
            held = in_use(host.limiter)
            if any(held):
                found.append(f"{name} still gives lists: {held}")
        for proxy in self.proxies:
            held = in_use(proxy.limiter)
            if any(held) or len(proxy.lists):
                found.append(f"{proxy} still gives lists: {held}, {len(proxy.lists)}")
        return found

    def judge(self) -> None:
        """At rest: a watch and a list taken now agree, on each node."""
        for process in self.cluster.processes:
            if not process.alive:
                continue
            for selection, kept in self.hosts[process.name].kept():
                if kept != self.checks.selected(selection):
                    raise ViolationError(f"{process.name} keeps another list of {selection}")

    def seen(self) -> dict[str, int]:
        """What the run has put its clients through."""
        return {
            "changes": sum(each.changes for each in self.followers),
            "proxied": sum(each.changes for each in self.followers if each.is_proxied),
            "lists": self.checks.taken,
            "turned_away": self.turned_away,
            "overridden": self.overridden,
            "refused": self.refused,
            "mute": sum(each.put_off for each in self.clients if isinstance(each, Mute)),
        }


def _on_way(topic: object) -> bool:
    return topic is not None and getattr(topic, "state", None) is not TopicState.STABLE
