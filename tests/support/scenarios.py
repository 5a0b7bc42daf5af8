"""Scenarios as text: what happens, and what the rules make of it, to be read like a story.

A file of `tests/testdata` is a list of steps: a command, a line of dashes, and what came of it. The
commands of a scenario are those of its stage; a line that begins with `#` is a comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from anabranch.cli.cluster.log import sentence
from anabranch.core.effects import (
    AppendRecord,
    CloseUnit,
    Effect,
    Halt,
    NodeSettings,
    OpenUnit,
    SendHeartbeat,
)
from anabranch.core.entities.layout import SegmentLayout, initial_segments
from anabranch.core.entities.subscription import (
    NOBODY,
    Subscription,
    SubscriptionKind,
    SubscriptionOp,
)
from anabranch.core.entities.topic import Operation, TopicMove
from anabranch.core.entities.unit import LEADERSHIP, Move
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import Record, UnitMove
from anabranch.core.node import NodeCore
from anabranch.core.subscriptions.coordinator import ConsumerAssignment, SubscriptionCoordinator
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.subscriptions.propose import change_due
from anabranch.core.subscriptions.timing import Timing
from anabranch.core.topics.tasks import next_task
from support.world import TOPIC, UNIT, A, World

_DASHES = "----"
_TICK_S = 0.25
_SHORT = {UNIT: "the bundle", f"topic:{TOPIC}": "the topic", ":8080": ""}

Stage = Callable[[str], list[str]]


def replayed(text: str, stage: Stage) -> str:
    """The scenario with what comes of each command now."""
    told: list[str] = []
    for block in text.strip().split("\n\n"):
        asked, _, _ = block.partition(f"\n{_DASHES}")
        told.append(asked)
        commands = [line for line in asked.splitlines() if not line.startswith("#")]
        if commands:
            said = [line for command in commands for line in stage(command)]
            told[-1] = "\n".join([asked, _DASHES, *said])
    return "\n\n".join(told) + "\n"


def _asked(record: Record) -> str:
    return f"{sentence(record).partition('  (')[0]}, by {record.actor}"


def _in_words(text: str) -> str:
    for long, short in _SHORT.items():
        text = text.replace(long, short)
    return text


class Bundles:
    """Brokers' own decisions about one bundle, on a log that all of them read at once.

    `start A B`: brokers start. `A: MOVE [to B]`: A proposes a move of the bundle; after a `;` come
    others at the same time. `wait n`: seconds pass. `stop A`: A is not heard from and hears nothing
    any more. After each, everything that brokers propose is appended until they propose no more.
    """

    def __init__(self) -> None:
        self._world = World(settings=None)
        self._nodes: dict[str, NodeCore] = {}
        self._replicas: dict[str, MemoryReplica] = {}
        self._now = 0.0
        self._said: list[str] = []
        self._proposals: list[tuple[str, Record]] = []

    def __call__(self, command: str) -> list[str]:
        self._said = []
        first, _, rest = command.partition(" ")
        if first == "start":
            for name in rest.split():
                self._start(f"{name}:8080".lower())
        elif first == "wait":
            self._wait(float(rest))
        elif first == "stop":
            del self._nodes[f"{rest}:8080".lower()]
        else:
            for record in [self._asked_for(each.strip()) for each in command.split(";")]:
                self._append(record)
        self._settle()
        return [_in_words(line) for line in self._said]

    def _start(self, broker: str) -> None:
        settings = NodeSettings(broker, "test", f"http://{broker}", "", default_bundles=1)
        self._replicas[broker] = replica = MemoryReplica()
        for offset, (record, stamp) in enumerate(self._world.log):
            replica.read(record, offset, stamp)
        node = self._nodes[broker] = NodeCore(settings, replica, self._world.new_id)
        self._take(broker, node.joined(self._now))

    def _asked_for(self, words: str) -> Record:
        who, _, what = words.partition(": ")
        move, _, target = what.partition(" to ")
        to = f"{target}:8080".lower() if target else ""
        return self._world.move(Move[move], f"{who}:8080".lower(), broker=to)

    def _wait(self, seconds: float) -> None:
        for _ in range(round(seconds / _TICK_S)):
            self._now += _TICK_S
            self._settle()

    def _settle(self) -> None:
        """Until nobody has anything to propose: what is read may call for more at the next tick."""
        while True:
            for broker, node in list(self._nodes.items()):
                self._take(broker, node.tick(self._now))
            if not self._proposals:
                return
            due, self._proposals = self._proposals, []
            for broker, record in due:
                if broker in self._nodes:
                    self._append(record)

    def _append(self, record: Record) -> None:

        stamp = round(self._now * 1000)
        offset = len(self._world.log)
        folded = self._world.replica.read(record, offset, stamp)
        self._world.log.append((record, stamp))
        said = f"{folded.outcome.verdict.name}: {_asked(record)}"
        self._said.append(f"{self._now:>5.2f} s  {said}")
        if isinstance(record, UnitMove) and record.unit != LEADERSHIP:
            self._said.append(f"           the bundle is {self._unit()}")
        for broker, node in list(self._nodes.items()):
            read = self._replicas[broker].read(record, offset, stamp)
            self._take(broker, node.folded([read], self._now))

    def _unit(self) -> str:
        unit = self._world.replica.unit(UNIT)
        if unit is None:
            return "not there"
        names = ((" broker", unit.broker), (" source", unit.source))
        return unit.state.name + "".join(f"{what} {name}" for what, name in names if name)

    def _take(self, broker: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecord(record):
                    self._proposals.append((broker, record))
                case SendHeartbeat(beat):
                    self._nodes[broker].beat_acked(beat, self._now)
                    for node in self._nodes.values():
                        node.heard(beat, round(self._now * 1000), self._now)
                case OpenUnit(_):
                    self._said.append(f"           {broker} serves it")
                case CloseUnit(unit):
                    self._said.append(f"           {broker} serves it no more")
                    self._take(broker, self._nodes[broker].closed(unit, self._now))
                case Halt(reason, _):
                    self._said.append(f"           {broker} ends: {reason}")


class Layouts:
    """One topic's log, each record proposed by broker A, which holds the topic's bundle.

    `CREATE n`, `OPEN`, `SPLIT id`, `MERGE id id`, `REBUCKET id n`, `RESTORE id`, `SEALING`,
    `COMMIT offset...`, `ABORT`, `CLEAR id...`, `DELETE`, `REMOVE`; `by B` at the end: B proposes.
    """

    def __init__(self) -> None:
        self._world = World("a:8080", "b:8080")
        self._world.owned(A)

    def __call__(self, command: str) -> list[str]:
        words, _, by = command.partition(" by ")
        what, *given = words.split()
        record = self._record(what, [int(each) for each in given], f"{by or 'a'}:8080".lower())
        folded = self._world.fold(record)
        said = [f"{folded.outcome.verdict.name}: {_asked(record)}", *self._state()]
        return [_in_words(line) for line in said]

    def _record(self, what: str, given: list[int], by: str) -> Record:
        world = self._world
        if what == "CREATE":
            return world.topic(TopicMove.CREATE, by, segments=initial_segments(given[0]))
        if what in Operation.__members__:
            layout = world.scalable().layout
            match Operation[what]:
                case Operation.SPLIT:
                    children = layout.split_children(given[0])
                case Operation.MERGE:
                    children = layout.merge_children(given[0], given[1], 32)
                case Operation.RESTORE:
                    children = layout.restore_children(given[0])
                case _:
                    children = layout.rebucket_children(given[0], given[1])
            return world.begin(Operation[what], children, by)
        fields = {"COMMIT": "end_offsets", "CLEAR": "segment_ids", "PRUNE": "segment_ids"}
        named: dict[str, Any] = {fields[what]: tuple(given)} if what in fields else {}
        return world.topic(TopicMove[what], by, **named)

    def _state(self) -> Iterator[str]:
        topic = self._world.replica.topic(TOPIC)
        if topic is None:
            yield "  the topic is not there"
            return
        yield f"  the topic is {topic.state.name}, its layout at epoch {topic.epoch}"
        for part in topic.segments:
            ends = f", ended at {list(part.end_offsets)}" if part.end_offsets else ""
            yield f"    {part.descriptor} {part.state.name}, buckets: {part.buckets}{ends}"
        task = next_task(self._world.replica, TOPIC, topic)
        if task is not None:
            named = ", ".join(part.descriptor for part in task.segments)
            yield f"  in Kafka: {type(task).__name__} {named}"


class HandOvers:
    """One subscription's coordinator, and what its consumers are told they may serve.

    `segments n`: the topic has so many, of two buckets each. `NAME joins`, `NAME leaves`, `NAME is
    gone` (its connection broke), `NAME reports`, `NAME let go BUCKETS`, `NAME drained BUCKETS`,
    with buckets as `segment.bucket`; `split id`; `wait n`: seconds pass.
    """

    def __init__(self) -> None:
        self._layout = SegmentLayout.initial(1)
        self._known = Subscription(1, SubscriptionKind.STREAM, 0, (), (), (), 0, 0, "p")
        self._coordinator = SubscriptionCoordinator(Timing(grace_s=60, session_timeout_s=10))
        self._connections: dict[str, int] = {}
        self._joined = 0
        self._now = 0.0

    def __call__(self, command: str) -> list[str]:
        words = command.split()
        if words[0] == "segments":
            self._layout = SegmentLayout.initial(int(words[1]), bucket_budget=2 * int(words[1]))
        elif words[0] == "split":
            self._layout = self._layout.split_segment(int(words[1]))
        elif words[0] == "wait":
            for _ in range(int(words[1])):
                self._now += 1.0
                for name, number in self._connections.items():
                    self._coordinator.heard(name, number, (), (), self._now)
        else:
            self._consumer(words[0], words[1:])
        said = list(self._logged())
        said += [self._told(*each) for each in self._coordinator.assignments(self._now)]
        return said or ["nothing"]

    def _logged(self) -> Iterator[str]:
        """What the coordinator has to write down is folded at once."""
        self._coordinator.changed(self._layout, self._known, self._now)
        while (due := change_due(self._coordinator, self._now)) is not None:
            name, ids = due.fields.get("consumer", ""), due.fields.get("segment_ids", ())
            match due.op:
                case SubscriptionOp.DRAINED:
                    drained = tuple(sorted({*self._known.drained, *ids}))
                    self._known = msgspec.structs.replace(self._known, drained=drained)
                    yield f"the log has it that {', '.join(map(str, ids))} is drained"
                case SubscriptionOp.LAPSED:
                    self._known = self._known.with_consumer(name, NOBODY)
                    yield f"the log has it that the session of {name} has lapsed"
                case _:
                    self._known = self._known.without_consumer(name)
                    yield f"the log has it that {name} is a consumer no more"
            self._coordinator.changed(self._layout, self._known, self._now)

    def _consumer(self, name: str, words: list[str]) -> None:
        buckets: tuple[Bucket, ...] = tuple(
            (int(segment), int(bucket))
            for segment, _, bucket in (each.partition(".") for each in words[1:] if "." in each)
        )
        match words[0]:
            case "joins":
                self._known = self._known.with_consumer(name, 1)
                self._coordinator.changed(self._layout, self._known, self._now)
                self._joined += 1
                number = self._connections[name] = self._joined
                self._coordinator.opened(name, 1, number, (), (), self._now)
            case "leaves":
                self._coordinator.left(name)
                self._known = self._known.without_consumer(name)
            case "is":
                self._coordinator.closed(name, self._connections.pop(name), self._now)
            case "let":
                self._coordinator.heard(name, self._connections[name], buckets, (), self._now)
            case _:
                self._coordinator.heard(name, self._connections[name], (), buckets, self._now)

    def _told(self, connection: int, assignment: ConsumerAssignment) -> str:
        name = next(each for each, number in self._connections.items() if number == connection)
        served = [f"{segment}.{bucket}" for segment, each in assignment.shares for bucket in each]
        return f"{name} may serve {' '.join(served) or 'nothing'}"
