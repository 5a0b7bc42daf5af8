"""Whatever is put into a batch comes back out of it as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client._producer.batch import (
    CODECS,
    BatchLimits,
    PendingMessage,
    ProducerId,
    RecordBatch,
)

_CONTENT = st.none() | st.binary(max_size=40)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _CONTENT), max_size=3)
_TIMES = st.integers(1, 2**41)
_MESSAGES = st.builds(
    PendingMessage, _CONTENT, _CONTENT, _HEADERS, _TIMES, since=st.just(0.0) | st.floats(1, 9)
)


@given(
    sent=st.lists(st.tuples(_MESSAGES, st.booleans()), min_size=1, max_size=30),
    codec=st.sampled_from(sorted(CODECS.values())),
    is_numbered=st.booleans(),
)
def test_a_batch_gives_its_messages_back_and_those_that_somebody_waits_for_themselves(
    sent: list[tuple[PendingMessage, bool]], codec: int, is_numbered: bool
) -> None:
    batch = RecordBatch(BatchLimits(codec=codec))
    batch.since = 17.0
    since = [(waits and message.since) or batch.since for message, waits in sent]
    for message, is_waited_for in sent:
        key = message.key
        assert key is None or isinstance(key, bytes)
        assert batch.take(key, message.value, message.timestamp_ms, list(message.headers))
        if is_waited_for:
            batch.note(message)
    if is_numbered:
        batch.number(ProducerId(7, 0), 0)
    found = batch.messages()
    assert [(each.key, each.value, each.timestamp_ms, list(each.headers)) for each in found] == [
        (each.key, each.value, each.timestamp_ms, each.headers) for each, _ in sent
    ]
    assert [each.since for each in found] == since
    assert {each.on_delivery for each in found} == {None}
    for message, (given_message, is_waited_for) in zip(found, sent, strict=True):
        assert (message is given_message) == is_waited_for
