"""Each bug that is planted in real processes can be planted, and changes what the product does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from confluent_kafka import Message

from anabranch.broker.bundle_owners import Routes
from anabranch.broker.errors import DeadlineExceededError
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.proposals import Proposals
from anabranch.broker.runtime import Runtime
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.client._consumer import assignment
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._queue.messages import Delivery
from anabranch.core.entities.tenant import NamespaceInfo
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import PolicyOp, Record, SessionOp
from anabranch.core.log.state import leader_of
from anabranch.core.names import Namespace
from anabranch.core.ring import bundle_name, even_ranges
from anabranch.core.sessions.lease import Lease
from faults import planted
from faults.planted import BUGS, Part, Replacement
from support.sealable_kafka import Partition, SealableKafka
from support.world import A, B, C, World

PLACE: Final = assignment.SegmentBucket(1, 0)


def lapsed() -> Lease:
    lease = Lease(4.0)
    lease.begin(0.0)
    lease.end()
    return lease


def routed() -> str:
    home = Namespace("public/default")
    (name,) = (bundle_name(home, part) for part in even_ranges(1))
    owned = Unit(UnitState.OWNED, "a:1", "", 1, Move.CREATE, 0, 0, "")
    state = MemoryReplica()
    state.apply([(f"namespace:{home}", NamespaceInfo(1, 1, 0, "")), (name, owned)])
    routes = Routes(state)
    topic = "persistent://public/default/t"
    routes.owner(topic, home)
    routes.changed([(name, Unit(UnitState.OWNED, "b:1", "", 2, Move.CREATE, 0, 0, ""))])
    return routes.owner(topic, home)


async def answered() -> str:
    """What a request learns whose record is sent, and never read back."""
    loop = asyncio.get_running_loop()
    core = SimpleNamespace(state=SimpleNamespace(next_offset=0), me="a")
    ended = loop.create_future()
    asked = Proposals(cast(Any, core), lambda records: None, cast(Any, None), ended, Metrics())
    record = SimpleNamespace(proposal_id="p", key="tenant:acme")
    try:
        found = await asked.propose(cast(Record, record), loop.time())
    except DeadlineExceededError:
        return "unknown"
    return found.outcome.verdict.name


def made_twice() -> str:
    world = World()
    for broker in (A, B):
        world.tell(world.session(broker, SessionOp.OPEN))
    world.tell(world.tenant("acme", PolicyOp.CREATE))
    return world.tell(world.tenant("acme", PolicyOp.CREATE, by=B, version=1)).name


def told_late() -> str:
    """What becomes of a session that a former leader ends, in a cluster that another one leads."""
    world = World(A, B, C)
    world.elect(A)
    _, epoch = leader_of(world.replica)
    world.must(world.move(Move.RESIGN, A, LEADERSHIP))
    world.elect(B)
    return world.tell(world.session(C, SessionOp.EXPIRE, by=A, epoch=epoch)).name


def sealed() -> dict[str, tuple[int, ...]]:
    kafka = SealableKafka(a=[Partition(5, 3)])
    deadline = Deadline(cast(KafkaConnection, kafka), 120.0, lambda: None)
    return kafka.sealer().seal([SegmentTopic("a", 1)], deadline)


def committed() -> list[int]:
    core = ConsumerCore(1.0)
    order = core.begin_subscribe(0.0)
    segment = assignment.AssignedSegment(PLACE.segment_id, "t", (PLACE.bucket,))
    core.on_subscribed(order.number, assignment.Assignment(1, 1, 1, "group", 10.0, (segment,)), 0.0)
    holding = core.holdings[PLACE]
    holding.begin(0)
    holding.deliver(2)
    core.acknowledge(holding, 2, 0.0)
    return [end for _, end in core.commits(0.0)]


EXAMPLES: Final[dict[str, Callable[[], object]]] = {
    "lease-not-looked-at": lambda: lapsed().holds(100.0),
    "stale-unmarked": lambda: Runtime.has_lease.fget(  # type: ignore[attr-defined]
        SimpleNamespace(core=SimpleNamespace(lease=Lease(4.0)))
    ),
    "routes-kept": routed,
    "acknowledged-unfolded": lambda: asyncio.run(answered()),
    "last-wins": made_twice,
    "stale-leader-not-fenced": told_late,
    "seal-not-probed": sealed,
    "committed-ahead": committed,
    "unsettled-accepted": lambda: Delivery([Message()]).end()[0],
}
"""By bug: what the function that it replaces does, in a case in which the bug shows."""
TESTS: Final = Path(__file__).parents[1]
FINDERS: Final = (
    *(TESTS / "simulation").glob("test_*_harness.py"),
    TESTS / "property/client/producer/test_sender.py",
)
"""These tests plant bugs, and fail where none is found."""


def test_each_bug_has_an_example_or_is_found_elsewhere() -> None:
    found = "".join(each.read_text() for each in FINDERS)
    assert [name for name in BUGS if name not in EXAMPLES and f'"{name}"' not in found] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_planted_bug_changes_what_is_done(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = EXAMPLES[name]()
    with monkeypatch.context() as until_then:
        BUGS[name].plant(until_then.setattr)
        assert EXAMPLES[name]() != sound
    assert EXAMPLES[name]() == sound, "what was planted is gone again"


def test_a_bug_whose_place_is_gone_is_not_planted_in_silence() -> None:
    bug = BUGS["routes-kept"]
    moved = replace(bug, replaced=(Replacement(Routes, "changed_since", lambda sound: sound),))
    with pytest.raises(LookupError, match="Routes has no changed_since any more: find what does"):
        moved.plant()


def test_a_process_is_run_with_its_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planting: list[str] = []
    bug = replace(BUGS["routes-kept"], replaced=())
    monkeypatch.setitem(BUGS, "nothing", bug)
    monkeypatch.setattr(type(bug), "plant", lambda self, *_: planting.append(self.name))
    monkeypatch.setattr("sys.argv", ["planted.py"])
    with pytest.raises(SystemExit) as ended:
        planted.main("nothing", "anabranch.cli", "--version")
    assert (ended.value.code, planting) == (0, ["routes-kept"])
    assert "anabranch" in capsys.readouterr().out


def test_each_bug_is_in_the_page_about_faults() -> None:
    page = (Path(__file__).parents[2] / "docs/faults.md").read_text()
    assert [name for name in BUGS if f"`{name}`" not in page] == []


def test_each_part_has_bugs_and_each_bug_says_what_is_done_then() -> None:
    assert {bug.part for bug in BUGS.values()} == set(Part)
    assert all(bug.what.endswith(".") for bug in BUGS.values())
