"""What Kafka's answer to an append means."""

from __future__ import annotations

import pytest

from anabranch.client._producer.outcomes import MOVED, AppendOutcome, outcome_of
from anabranch.wire.kafka.producing import KafkaCode


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (KafkaCode.NONE, AppendOutcome.STORED),
        (KafkaCode.DUPLICATE_SEQUENCE_NUMBER, AppendOutcome.STORED),
        (KafkaCode.MESSAGE_TOO_LARGE, AppendOutcome.SEALED),
        (KafkaCode.RECORD_LIST_TOO_LARGE, AppendOutcome.SEALED),
        (KafkaCode.NOT_ENOUGH_REPLICAS, AppendOutcome.NOT_YET),
        (KafkaCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, AppendOutcome.IN_DOUBT),
        (KafkaCode.NOT_LEADER_OR_FOLLOWER, AppendOutcome.IN_DOUBT),
        (KafkaCode.REQUEST_TIMED_OUT, AppendOutcome.IN_DOUBT),
        (KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER, AppendOutcome.STRANGER),
        (KafkaCode.UNKNOWN_PRODUCER_ID, AppendOutcome.STRANGER),
        (KafkaCode.INVALID_TIMESTAMP, AppendOutcome.REJECTED),
        (KafkaCode.TOPIC_AUTHORIZATION_FAILED, AppendOutcome.REJECTED),
        (120, AppendOutcome.IN_DOUBT),
    ],
)
def test_an_answer_says_whether_the_batch_is_there(code: int, outcome: AppendOutcome) -> None:
    assert outcome_of(code) is outcome


def test_what_a_new_leader_may_take_is_tried_again_and_never_given_up() -> None:
    assert {outcome_of(code) for code in MOVED} <= {AppendOutcome.NOT_YET, AppendOutcome.IN_DOUBT}
