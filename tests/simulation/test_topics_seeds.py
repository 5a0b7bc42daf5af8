"""The promises of scalable topics, under faults of nodes, clients and Kafka, for fixed seeds."""

from __future__ import annotations

from collections import Counter

import pytest

from anabranch.core.subscriptions.subscription import SubscriptionOp
from anabranch.core.topics.topic import TopicMove
from simulation.run import simulate

SEEDS = 400
SEEDS_PER_TEST = 20
# Each found something at its time; the bugs of the product among it are planted in the harness.
ONCE_FOUND = (448, 1360, 1400, 4211, 10704, 10980)

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_no_fault_loses_repeats_or_disorders_messages_and_all_operations_end(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        report = simulate(seed, topics=True)
        if report.violation:
            pytest.fail(report.explain(), pytrace=False)


@pytest.mark.parametrize("seed", ONCE_FOUND)
def test_a_seed_that_once_found_something_finds_nothing_now(seed: int) -> None:
    report = simulate(seed, topics=True)
    if report.violation:
        pytest.fail(report.explain(), pytrace=False)


def test_a_seed_with_topics_repeats_its_run_exactly() -> None:
    for seed in (3, 4):
        assert simulate(seed, topics=True) == simulate(seed, topics=True)


def test_the_runs_with_topics_see_what_they_are_made_to_see() -> None:
    reports = [simulate(seed, topics=True) for seed in range(50)]
    moves = {kind for report in reports for kind in report.accepted}
    assert moves >= {f"TopicChange.{move.name}" for move in TopicMove if move.name != "UPDATE"}
    # Nobody deletes a subscription here, and no queue has dead letters.
    absent = (SubscriptionOp.DELETE, SubscriptionOp.DEAD_LETTER)
    assert moves >= {f"SubscriptionChange.{op.name}" for op in SubscriptionOp if op not in absent}
    refused = {reason for report in reports for reason in report.rejected}
    assert refused >= {"TOPIC_BUSY", "STALE_VERSION", "SESSION_OVER"}
    seen: Counter[str] = Counter()
    for report in reports:
        seen.update(report.seen)
    common = ("stored", "redelivered", "handed_on", "settled_in_doubt", "lapses")
    for what in (*common, "seeks", "checkpoints", "queued"):
        assert seen[what] > 20, what
    # A seek is one record, positions included, so fewer fail on the way than are made; and Kafka
    # forgets only what the log has had for longer than a session.
    for what in (
        "failed_seeks",
        "auto_split",
        "auto_merge",
        "auto_rebucket",
        "auto_after_fail_over",
    ):
        assert seen[what] > 10, what
    reasons = ("CONSUMER_COUNT", "MSG_RATE_IN", "COLD", "BUCKET_SURPLUS", "BELOW_SPLIT_RATE_FLOOR")
    assert all(seen[reason] for reason in reasons), seen
