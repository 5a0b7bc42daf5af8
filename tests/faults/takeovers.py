"""How soon a consumer of a stream is given what another one has just received.

A bucket's next consumer begins behind what the former one has committed. That is all that it had
acknowledged, unless it was killed or out of touch: then its session has to lapse first, which takes
longer than `SOON_S`, whatever it did last. So nobody receives so soon again what another one has
received and acknowledged. One message may be: its process was paused in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from faults.promises import Line, Promise, Violation

SOON_S: Final = 1.0  # a controller waits for 1.2 sessions, of which a consumer serves one


def judged(lines: Sequence[Line]) -> Iterator[Violation]:
    """Two messages of a bucket, or more, that two consumers received at about the same time."""
    last: dict[tuple[int, int, int], tuple[float, str]] = {}  # by place: when, and who
    repeated: Counter[tuple[int, int, str, str]] = Counter()
    streams = {each["subscription"] for each in lines if each.get("kind") == "stream"}
    for line in lines:
        if line["what"] != "received" or line["subscription"] not in streams:
            continue
        segment_id, bucket, offset = line["place"]
        at, consumer = line["at"], line["consumer"]
        before, other = last.get((segment_id, bucket, offset), (float("-inf"), consumer))
        last[segment_id, bucket, offset] = at, consumer
        if consumer == other or at - before >= SOON_S:
            continue
        pair = segment_id, bucket, other, consumer
        repeated[pair] += 1
        if repeated[pair] == 2:
            what = (
                f"bucket {(segment_id, bucket)}: {consumer} received {offset} "
                f"{at - before:.3f} s after {other} had"
            )
            yield Violation(Promise.SERVED_TWICE, what, at)
