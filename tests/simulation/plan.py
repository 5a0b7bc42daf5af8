"""What a seed decides before its run: the cluster, its weather and its settings."""

from __future__ import annotations

import random

import msgspec

from anabranch.core.effects import NodeSettings

# Besides these there is "outage": the log is lost to all at once, which hides what others do.
FAULT_KINDS = (
    "crash",
    "pause",
    "cut_both",
    "cut_sends",
    "cut_reads",
    "cut_acks",
    "cut_log",
    "cut_log_sends",
    "cut_log_reads",
    "slow",
    "restart",
    "drain",
)
LOG_CUTS = ("log_sends", "log_reads")


class Plan(msgspec.Struct, frozen=True):
    """Probabilities are per event, durations in seconds."""

    nodes: int
    fragile: tuple[int, ...]  # the nodes that faults strike, by index
    fault_kinds: tuple[str, ...]
    fault_interval_s: float
    faults_end_s: float
    client_interval_s: float
    append_lost: float
    append_late: float
    slowness: float  # of reads, appends and acks alike: a tail of up to a second or two
    append_twice: float
    ack_lost: float
    delivered_twice: float
    close_slow: float
    close_stuck: float
    compact_interval_s: float
    clock_rates: tuple[float, ...]
    namespaces: int
    exile: int  # this node never gets the log back, though its heartbeats arrive; -1 for none
    exile_cuts: tuple[str, ...]


def draw(rng: random.Random) -> Plan:
    """A plan in which about half of all kinds of fault occur ("swarm testing")."""

    def some(probability: float) -> float:
        return probability if rng.random() < 0.6 else 0.0

    nodes = rng.choice((3, 3, 3, 4, 5, 5, 7))
    fragility = rng.choice((0.4, 0.7, 1.0))
    kinds = tuple(kind for kind in FAULT_KINDS if rng.random() < 0.6) or ("crash",)
    if rng.random() < 0.2:
        kinds += ("outage",)
    return Plan(
        nodes=nodes,
        fragile=tuple(i for i in range(nodes) if rng.random() < fragility) or (0,),
        fault_kinds=kinds,
        fault_interval_s=rng.choice((1.5, 3.0, 6.0)),
        faults_end_s=rng.uniform(40.0, 70.0),
        client_interval_s=rng.choice((0.04, 0.1, 0.3)),
        append_lost=some(0.02),
        append_late=some(0.05),
        slowness=some(rng.choice((0.01, 0.1))),
        append_twice=some(0.05),
        ack_lost=some(0.05),
        delivered_twice=some(0.05),
        close_slow=some(0.2),
        close_stuck=some(0.03),
        compact_interval_s=rng.choice((2.0, 5.0, 20.0)),
        clock_rates=tuple(rng.uniform(0.99, 1.01) for _ in range(nodes)),
        namespaces=rng.choice((1, 2, 3)),
        exile=rng.randrange(nodes) if rng.random() < 0.3 else -1,
        exile_cuts=rng.choice((LOG_CUTS, LOG_CUTS[:1], LOG_CUTS[1:], ("reads",))),
    )


def settings_of(number: int) -> NodeSettings:
    """The defaults, except that clean-up runs more often than a run is long."""
    return NodeSettings(
        broker=f"node{number}:8080",
        cluster="simulated",
        web_url=f"http://node{number}:8080",
        service_url=f"pulsar://node{number}:6650",
        stuck_after_s=6.0,
        monitor_interval_s=5.0,
        tombstone_delay_s=8.0,
    )
