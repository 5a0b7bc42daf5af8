"""For how long an append is known to have been tried only once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client._producer.segment_writer import retry_backoff

_JITTER: float = (
    0.8  # librdkafka waits that share of the backoff at least, and then cuts at the max
)


@given(linger_ms=st.floats(0, 60_000) | st.integers(0, 60_000))
def test_nothing_is_called_certain_that_librdkafka_may_have_tried_again(linger_ms: float) -> None:
    properties, certain_s = retry_backoff(linger_ms)
    backoff_ms, most_ms = properties["retry.backoff.ms"], properties["retry.backoff.max.ms"]
    assert 0 < certain_s * 1_000 < min(_JITTER * backoff_ms, most_ms)
    assert 1 <= backoff_ms <= most_ms, "librdkafka would wait for less than it was told to"
