"""Figures of `StreamConsumer.run`, which works on many keys at once."""

from __future__ import annotations

from bench.clients import working, working_changes, working_gaps, working_owners
from bench.figure import Figure

OF_WORK = (
    Figure(
        "run-noop",
        "run with a coroutine that returns at once, 1,000 wide, 100,000 keys by Zipf 1.0",
        "at least 40,000/s",
        "-",
        working.rate,
    ),
    Figure(
        "run-noop-cost",
        "its processor time a message",
        "at most 25 us",
        "-",
        working.cost,
    ),
    Figure(
        "run-noop-bare",
        "its rate beside a task for each message by hand",
        "at least 0.8 x the bare loop",
        "-",
        working.of_bare,
    ),
    Figure(
        "run-memory",
        "what the process grows by meanwhile",
        "at most 64 MiB and 50 MB",
        "-",
        working.memory,
    ),
    Figure(
        "run-10ms",
        "run with handlers that wait 10 ms, 100 wide, 100,000 even keys",
        "at least 95 % of 10,000/s",
        "-",
        working.waiting,
    ),
    Figure(
        "run-10ms-wide",
        "the same 1,000 wide",
        "at least 20,000/s",
        "-",
        working.waiting_wide,
    ),
    Figure(
        "run-threads",
        "run with plain functions that wait 10 ms, 256 threads",
        "at least 80 % of 25,600/s",
        "-",
        working.threads,
    ),
    Figure(
        "run-poison",
        "healthy keys beside 1,000 of 20,000 with a message that fails five times",
        "at least 95 % of the rate without",
        "-",
        working.poison,
    ),
    Figure(
        "run-slow-key",
        "99 keys of 1 ms at 2,000 msg/s beside one of 1 s, one bucket",
        "at least 95 % of the rate without it",
        "-",
        working_gaps.slow_rate,
    ),
    Figure(
        "run-slow-key-wait",
        "their wait from send to handler, p99",
        "at most 20 ms",
        "-",
        working_gaps.slow_wait,
    ),
    Figure(
        "run-slow-key-map",
        "the largest map of what is done above the slow key",
        "at most 64 bytes",
        "-",
        working_gaps.slow_map,
    ),
    Figure(
        "run-alternating",
        "the first 24,000 offsets, where every third message does not end",
        "at least 95 % of the rate without",
        "-",
        working_gaps.alternating_rate,
    ),
    Figure(
        "run-alternating-map",
        "the largest map of that, never left out",
        "at most 4,096 bytes",
        "-",
        working_gaps.alternating_map,
    ),
    Figure(
        "run-kill",
        "messages that begin again after SIGKILL of a process 1,000 wide, the worst round",
        "at most 1,000 and what is done in 0.1 s",
        "-",
        working_owners.kill,
    ),
    Figure(
        "run-move",
        "a bucket moves under load with handlers of 50 ms, until one runs at its new owner, p99",
        "0.3 s",
        "-",
        working_owners.move,
    ),
    Figure(
        "run-changes",
        "messages done once and in order: 100 clean ends, a split or merge each 2 s, at load",
        "all",
        "-",
        working_changes.changes,
    ),
)
