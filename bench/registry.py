"""All figures, in the order in which they are measured: those that need quiet come first."""

from __future__ import annotations

from bench import cluster, folding, roundtrip, spark, starting
from bench.figure import Figure

FIGURES = (
    Figure(
        "replay",
        "replay of the log into a view",
        "at least half the speed of bare Avro decoding",
        "-",
        folding.replay,
    ),
    Figure(
        "bulk",
        "bulk load of 1,000,000 units from memory",
        "1.7 M units/s (our own)",
        "-",
        folding.bulk,
    ),
    Figure(
        "start",
        "start from a snapshot of 1,000,000 units",
        "at most 2 x just consuming it",
        "-",
        starting.start,
    ),
    Figure("start-memory", "its peak memory", "at most 400 MB", "-", starting.memory),
    Figure(
        "propose",
        "propose to verdict, p50",
        "at most 2 x a bare round trip",
        "-",
        roundtrip.propose,
    ),
    Figure(
        "idle-memory",
        "memory of an idle node",
        "at most 120 MB",
        "410 to 450 MB",
        cluster.idle_memory,
    ),
    Figure(
        "first-lookup",
        "first look-up of a free bundle, p50",
        "10 ms",
        "26 ms",
        cluster.first_lookup,
    ),
    Figure(
        "transfer",
        "transfer until every node answers so, p50",
        "15 ms",
        "44 to 62 ms",
        cluster.transfer,
    ),
    Figure(
        "http",
        "HTTP look-ups per second, 32 connections",
        "more than the peer",
        "11,400 to 12,600/s, p99 7 to 16 ms",
        cluster.http_few,
    ),
    Figure(
        "kill-owner",
        "SIGKILL of an owner of 1,000 bundles",
        "7 s (liveness time-out + 1 s)",
        "6.5 s with a 6 s session",
        cluster.kill_owner,
    ),
    Figure(
        "kill-leader",
        "SIGKILL of the leader",
        "8 s (liveness time-out + 2 s)",
        "7 to 14 s with a 6 s session, 52 to 88 s with 30 s",
        cluster.kill_leader,
    ),
    Figure(
        "assignments",
        "assignments per second, 10,000 bundles, 8 clients",
        "at least 1,000/s",
        "184/s",
        cluster.assignments,
    ),
    Figure(
        "http-many",
        "HTTP look-ups per second over 10,000 bundles",
        "more than the peer",
        "9,600/s",
        cluster.http_many,
    ),
    Figure(
        "start-to-lookup",
        "process start to first right look-up",
        "at most 3 s",
        "8.5 s",
        cluster.start_to_lookup,
    ),
    Figure(
        "audit",
        "Spark audit of 5,000,000 records",
        "at most 4 x Spark's read-and-checksum",
        "-",
        spark.audit,
    ),
)
