"""What a seed decides about lists of topics, those who follow them, and settings that change."""

from __future__ import annotations

import random

import msgspec

from anabranch.client._topics.topic_list import TopicSelection
from simulation.plan import Plan

HOME = "public/default"
SELECTIONS = (
    TopicSelection(HOME),
    TopicSelection(HOME, pattern="orders-.*"),
    TopicSelection(HOME, pattern=".*-[0-4]+"),
    TopicSelection(HOME, properties={"team": "blue"}),
)
FAULTS = ("break", "cut", "crash", "pause")
_HEAP = "maxTopicListInFlightHeapMemSize"
_DIRECT = "maxTopicListInFlightDirectMemSize"
# Names, and values that bite; the contradictory and the unknown among them.
CHANGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (f"{_HEAP}MB", ("1", "2", "2", "3", "8", "0")),
    (f"{_DIRECT}MB", ("1", "2", "2", "3", "8", "0")),
    (f"{_HEAP}PermitsAcquireTimeoutMillis", ("300", "2000", "6000")),
    (f"{_DIRECT}PermitsAcquireTimeoutMillis", ("300", "2000", "6000")),
    (f"{_HEAP}PermitsAcquireQueueSize", ("1", "3", "0")),
    (f"{_DIRECT}PermitsAcquireQueueSize", ("1", "3", "0")),
    ("loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds", ("40", "4000")),
    ("loadBalancerInFlightServiceUnitStateWaitingTimeInMillis", ("9000", "60000")),
    ("scalableTopicMaxSegments", ("4", "none", "8")),
    ("aSettingOfAnotherRelease", ("1", "2")),
    ("scalableTopicMergeWindow", ("300", "5m")),  # as people may write it, and no log has it
)
LIMITS = tuple(name for name, _ in CHANGES[:6])


class ListPlan(msgspec.Struct, frozen=True):
    """Durations in seconds."""

    topics: int  # that come and go
    followers: int
    listers: int
    mute: int  # clients that never read
    operation_interval_s: float  # of each topic's coming and going
    change_interval_s: float  # of settings
    strange_changes: float  # the share of changes that no operator would get past a node
    fault_kinds: tuple[str, ...]
    fault_interval_s: float
    memory: int  # that each node's own file allows lists, of both kinds; 0: any
    slice_s: float  # what a look at a topic takes, of a slice of 5 ms
    busy: float  # the share of turns of an event loop that come late
    clock_rates: tuple[float, ...]
    proxied: int  # followers behind a proxy, and with them who takes lists, and who never reads


def draw_lists(rng: random.Random) -> ListPlan:
    """A plan in which about half of all kinds of fault occur."""
    return ListPlan(
        topics=rng.choice((12, 30, 60)),
        followers=rng.choice((2, 4, 6)),
        listers=rng.choice((1, 3, 5)),
        mute=rng.choice((0, 1, 3)),
        operation_interval_s=rng.choice((0.05, 0.2, 1.0)),
        change_interval_s=rng.choice((0.5, 2.0, 6.0)),
        strange_changes=rng.choice((0.0, 0.2)),
        fault_kinds=tuple(kind for kind in FAULTS if rng.random() < 0.6),
        fault_interval_s=rng.choice((0.5, 1.5, 5.0)),
        memory=rng.choice((4, 6, 100, 0)),
        slice_s=rng.choice((0.0, 0.001, 0.004)),
        busy=rng.choice((0.0, 0.02, 0.2)),
        clock_rates=tuple(rng.uniform(0.99, 1.01) for _ in range(16)),
        proxied=rng.choice((0, 0, 3, 6)),
    )


def with_lists(plan: Plan, rng: random.Random) -> Plan:
    """The cluster's plan, with weather in which lists are followed at times."""
    return msgspec.structs.replace(
        plan,
        client_interval_s=rng.choice((1.0, 3.0)),
        faults_end_s=rng.uniform(20.0, 35.0),
        fault_interval_s=rng.choice((3.0, 6.0, 15.0)),
        exile=-1,
        namespaces=1,
    )
