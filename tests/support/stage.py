"""Nodes on one log without delays: effects are carried out when a test says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.core.bundles import propose
from anabranch.core.effects import (
    AppendRecord,
    CloseUnit,
    Effect,
    Halt,
    NodeSettings,
    OpenUnit,
    SendHeartbeat,
)
from anabranch.core.entities.unit import Move, UnitState
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Cause, Record
from anabranch.core.node import NodeCore
from anabranch.core.sessions.lease import Heartbeat
from support.world import UNIT, A, B

STEP_S = 0.25


def settings_for(broker: str, **changes: object) -> NodeSettings:
    """A node's settings as most tests want them: one bundle, quick clean-up."""
    wanted: dict[str, object] = {
        "cluster": "test",
        "web_url": f"http://{broker}",
        "service_url": "",
        "default_bundles": 1,
        "stuck_after_s": 10.0,
        "monitor_interval_s": 5.0,
        "tombstone_delay_s": 20.0,
    }
    return NodeSettings(broker=broker, **{**wanted, **changes})  # type: ignore[arg-type]


class Actor:
    """One node and what it did."""

    def __init__(self, stage: Stage, broker: str, **changes: object) -> None:
        self.stage = stage
        self.replica = MemoryReplica()
        self.core = NodeCore(settings_for(broker, **changes), self.replica, stage.new_id)
        self.connected = True
        self.log_reads = self.log_appends = True  # of the log alone; heartbeats go on
        self.closes = True  # whether it closes units as soon as it is told to
        self.halted: Halt | None = None
        self.opened: list[str] = []
        self.closing: list[str] = []
        self.proposed: list[Record] = []
        self.beats: list[Heartbeat] = []
        self._heard = 0

    def do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecord(record):
                    self.proposed.append(record)
                    if self.connected and self.log_appends:
                        self.stage.log.append((record, self.stage.now_ms))
                case SendHeartbeat(beat):
                    self.beats.append(beat)
                    if self.connected:
                        self.stage.beats.append((beat, self.stage.now_ms))
                        self.core.beat_acked(beat, self.stage.now)
                case OpenUnit(unit):
                    self.opened.append(unit)
                case CloseUnit(unit):
                    self.closing.append(unit)
                    if self.closes:
                        self.close(unit)
                case Halt():
                    self.halted = effect

    def close(self, unit: str) -> None:
        self.closing.remove(unit)
        self.do(self.core.closed(unit, self.stage.now))

    def read(self) -> list[Folded]:
        """Folds what is new on the log, then hears what is new among the heartbeats."""
        now, start = self.stage.now, self.replica.next_offset
        log = self.stage.log if self.log_reads else []
        folded = [
            self.replica.read(record, offset, stamp)
            for offset, (record, stamp) in enumerate(log[start:], start=start)
        ]
        if folded:
            self.do(self.core.folded(folded, now))
        for beat, stamp in self.stage.beats[self._heard :]:
            self.core.heard(beat, stamp, now)
        self._heard = len(self.stage.beats)
        return folded

    def acts_on(self, unit: str) -> bool:
        return self.halted is None and self.core.may_act(unit, self.stage.now)


class Stage:
    """The log, the heartbeats, one clock for all, and the nodes that were started."""

    def __init__(self) -> None:
        self.log: list[tuple[Record | None, int]] = []
        self.beats: list[tuple[Heartbeat, int]] = []
        self.nodes: list[Actor] = []
        self.now = 100.0
        self._ids = 0

    @property
    def now_ms(self) -> int:
        return round(self.now * 1000)

    def new_id(self) -> str:
        self._ids += 1
        return f"p{self._ids}"

    def start(self, broker: str, **changes: object) -> Actor:
        node = Actor(self, broker, **changes)
        self.nodes.append(node)
        node.read()
        node.do(node.core.joined(self.now))
        self.settle()
        return node

    def settle(self) -> None:
        """Every connected node reads until nothing new is written; no time passes."""
        for _ in range(1_000):
            before = len(self.log), len(self.beats)
            for node in self.nodes:
                if node.connected and node.halted is None:
                    node.read()
            if before == (len(self.log), len(self.beats)):
                return
        raise AssertionError("the nodes go on writing without any time passing")

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += STEP_S
            for node in self.nodes:
                if node.halted is None:
                    node.do(node.core.tick(self.now))
            self.settle()

    def write(self, record: Record) -> None:
        """Somebody's proposal reaches the log."""
        self.log.append((record, self.now_ms))
        self.settle()

    def kill(self, node: Actor) -> None:
        self.nodes.remove(node)


def request(stage: Stage, node: Actor, what: Move, unit: str = UNIT, **fields: Any) -> None:
    """An operator's proposal, made at `node`."""
    found = node.replica.unit(unit)
    actor, new_id = node.core.actor(), stage.new_id()
    stage.write(propose.move(actor, unit, found, what, new_id, Cause.OPERATOR, **fields))


def state_of(node: Actor, unit: str = UNIT) -> tuple[UnitState, str, str]:
    found = node.replica.unit(unit)
    assert found is not None
    return found.state, found.broker, found.source


def two_nodes() -> tuple[Stage, Actor, Actor]:
    """A leads; B owns the only unit."""
    stage = Stage()
    first = stage.start(A)
    stage.pass_time(0.5)
    second = stage.start(B)
    stage.pass_time(0.5)
    request(stage, first, Move.ASSIGN, broker=B)
    assert second.acts_on(UNIT)
    return stage, first, second
