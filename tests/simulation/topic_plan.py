"""What a seed decides about scalable topics and those who use them."""

from __future__ import annotations

import math
import random

import msgspec

from anabranch.client import Backoff, Retry
from anabranch.core.autoscale.policy import AutoScalePolicy, Override
from anabranch.core.autoscale.schedule import AutoScaleSettings
from anabranch.core.subscriptions.timing import Timing
from anabranch.core.topics.controller import ControllerSettings
from simulation.plan import Plan
from simulation.topic_load import LoadShape, draw_shape

CLIENT_FAULTS = (
    "crash",
    "pause",
    "cut",
    "close",
    "restart",
    "twin",  # a second process comes up under a consumer's name
    "producer_crash",
    "producer_pause",
)

SETTINGS = ControllerSettings(
    timing=Timing(grace_s=8.0, session_timeout_s=4.0),
    retention_s=13.0,  # so that a topic can be given back before
    doubt_s=8.0,  # in which its producers settle
    retry_s=0.5,
    retry_s_max=4.0,
    prepare_s=5.0,
)


class RunPlan(msgspec.Struct, frozen=True):
    """Consumers that work on keys side by side, and what their handlers do."""

    share: float = 0.0  # of each stream's consumers
    concurrency: int = 4
    retry: Retry = Retry()
    queued_max: int = 40
    busy_s: float = 0.0  # how long a handler takes at most, beside slow ones
    fails: float = 0.0
    hangs: float = 0.0
    stubborn: float = 0.0  # take a while to end when they are cancelled
    letters_fail: float = 0.0
    drains: float = 0.5  # of those that close: what runs may end


class TopicPlan(msgspec.Struct, frozen=True):
    """Probabilities are per event, durations in seconds."""

    topics: int
    passing_topics: int  # are created and deleted again and again
    segments: int
    bucket_budget: int
    subscriptions: int
    consumers: int  # of each subscription
    producers: int  # of each topic
    keys: int  # of each producer
    sends_per_s: float
    operation_interval_s: float
    client_faults: tuple[str, ...]
    client_fault_interval_s: float
    kafka_fails: float
    kafka_refuses: float
    slow_work: float
    clock_rates: tuple[float, ...]
    operators: bool  # change the layout by hand
    overrides: bool  # of the auto-scale policy are set now and then
    auto_scale: AutoScaleSettings
    load: LoadShape
    hot_key: float  # the share of messages that one key of each producer has
    seeks: float = 0.0  # of what operators do
    kafka_brokers: int = 1
    kafka_copies: int = 1  # of each partition
    shared_keys: int = 0  # of each topic that lasts, written to by all its producers
    forgets: bool = False  # Kafka forgets positions that the log has
    checkpoints: bool = False  # the last subscription's consumers keep their positions
    slow_work_s: float = 4.0  # at most
    settle_s: float = math.inf  # that consumers have for it, once a bucket is to move
    late: bool = False  # a subscription of the first topic that comes and goes, and begins anywhere
    adopts: bool = False  # the first topic, and those that pass, are Kafka topics of others first
    removes: bool = False  # Kafka's retention takes messages that nobody has read
    running: RunPlan = RunPlan()


def draw_topics(rng: random.Random) -> TopicPlan:
    """A plan in which about half of all kinds of fault occur."""

    def some(probability: float) -> float:
        return probability if rng.random() < 0.6 else 0.0

    drawn = TopicPlan(
        topics=rng.choice((1, 1, 2)),
        passing_topics=rng.choice((0, 1)),
        segments=rng.choice((1, 2, 3)),
        bucket_budget=rng.choice((1, 4, 6)),
        subscriptions=rng.choice((1, 1, 2)),
        consumers=rng.choice((1, 2, 3, 4)),
        producers=rng.choice((1, 2, 3)),
        keys=rng.choice((2, 6)),
        sends_per_s=rng.choice((2.0, 6.0, 10.0)),
        operation_interval_s=rng.choice((0.5, 1.5, 4.0)),
        client_faults=tuple(kind for kind in CLIENT_FAULTS if rng.random() < 0.6),
        client_fault_interval_s=rng.choice((1.0, 3.0, 8.0)),
        kafka_fails=some(rng.choice((0.01, 0.1))),
        kafka_refuses=some(0.1),
        slow_work=some(0.05),
        clock_rates=tuple(rng.uniform(0.99, 1.01) for _ in range(16)),
        operators=rng.random() < 0.6,
        overrides=rng.random() < 0.5,
        auto_scale=AutoScaleSettings(draw_policy(rng), interval_s=rng.choice((0.5, 2.0))),
        load=draw_shape(rng),
        hot_key=rng.choice((0.0, 0.0, 0.8)),
    )
    # By chances of its own, so that the other seeds go on as ever.
    own = random.Random(drawn.clock_rates[0])
    drawn = msgspec.structs.replace(
        drawn,
        seeks=own.choice((0.0, 0.0, 0.3, 0.8)),
        checkpoints=own.random() < 0.3,
        kafka_brokers=own.choice((1, 1, 3)),
        forgets=own.random() < 0.4,
        shared_keys=own.choice((0, 1, 3)),
    )
    if drawn.kafka_brokers > 1:
        drawn = msgspec.structs.replace(drawn, kafka_copies=own.choice((1, 2)))
    drawn = msgspec.structs.replace(drawn, late=own.random() < 0.4)
    if drawn.forgets and not drawn.checkpoints:
        drawn = msgspec.structs.replace(drawn, removes=own.random() < 0.6)
    drawn = msgspec.structs.replace(
        drawn, settle_s=own.choice((2.0, math.inf)), slow_work_s=own.choice((4.0, 12.0))
    )
    drawn = msgspec.structs.replace(drawn, adopts=own.random() < 0.4)
    drawn = msgspec.structs.replace(drawn, running=draw_running(own))
    if drawn.shared_keys and drawn.producers == 1:
        return msgspec.structs.replace(drawn, producers=2)
    return drawn


def draw_running(rng: random.Random) -> RunPlan:
    """What handlers do."""
    return RunPlan(
        share=rng.choice((0.0, 0.0, 0.5, 1.0)),
        concurrency=rng.choice((1, 3, 10)),
        retry=Retry(
            attempts_max=rng.choice((1, 2, 4)),
            delay_s=Backoff(first=0.05, most=rng.choice((0.1, 1.0))),
            then=rng.choice(("block", "dead_letter", "dead_letter", "stop")),
            letters_max=rng.choice((3, 100)),
            sealed_wait_s=rng.choice((0.5, 60.0)),
        ),
        queued_max=rng.choice((4, 40)),
        busy_s=rng.choice((0.0, 0.1, 0.5)),
        fails=rng.choice((0.0, 0.05, 0.2)),
        hangs=rng.choice((0.0, 0.01, 0.03)),
        stubborn=rng.choice((0.0, 0.3)),
        letters_fail=rng.choice((0.0, 0.3)),
        drains=rng.choice((0.0, 0.5, 1.0)),
    )


def draw_policy(rng: random.Random) -> AutoScalePolicy:
    """A policy for a topic whose minutes are seconds."""
    split = rng.choice((4.0, 10.0))
    merge = split * rng.choice((0.1, 0.4, 0.8))
    fewest = rng.choice((1, 1, 2))
    return AutoScalePolicy(
        enabled=rng.random() < 0.85,
        max_segments=rng.choice((2, 4, 6)),
        min_segments=fewest,
        max_dag_depth=rng.choice((1, 3, 10)),
        split_cooldown_seconds=rng.choice((0.5, 2.0)),
        rebucket_cooldown_seconds=rng.choice((1.0, 3.0)),
        merge_cooldown_seconds=rng.choice((0.5, 2.0)),
        merge_window_seconds=rng.choice((0.5, 2.0)),
        split_msg_rate_in_threshold=split,
        merge_msg_rate_in_threshold=merge,
        split_bytes_rate_in_threshold=200.0 * split,
        merge_bytes_rate_in_threshold=200.0 * merge,
        split_msg_rate_out_threshold=3.0 * split,
        merge_msg_rate_out_threshold=3.0 * merge,
        split_bytes_rate_out_threshold=300.0 * split,
        merge_bytes_rate_out_threshold=300.0 * merge,
        split_vs_rebucket_min_msg_rate_in_threshold=rng.choice((0.0, 3.0)),
        max_entry_buckets_per_segment=rng.choice((3, 4, 8)),
        entry_bucket_budget=rng.choice((1, 4)),
    )


def with_topics(plan: Plan, rng: random.Random) -> Plan:
    """The cluster's plan, with weather in which operations come to their ends at times."""
    return msgspec.structs.replace(
        plan,
        client_interval_s=rng.choice((0.3, 1.0, 3.0)),
        faults_end_s=rng.uniform(20.0, 40.0),
        exile=plan.exile if rng.random() < 0.3 else -1,
        namespaces=1,
    )


def draw_override(rng: random.Random) -> Override:
    """What an operator sets for a topic: some fields, or none, which removes what was set."""
    wanted: dict[str, tuple[bool | int | float, ...]] = {
        "enabled": (True, True, False),
        "maxSegments": (2, 3, 5),
        "minSegments": (1, 2),
        "splitCooldownSeconds": (0.5, 3.0),
    }
    return {name: rng.choice(values) for name, values in wanted.items() if rng.random() < 0.3}
