"""Makes the sample recording of the balancer's back-test out of the sample of topics' loads.

`python tests/support/balance_sample.py` writes it.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow.parquet as pq

from anabranch.core.balance.recording import BrokerLine, BundleLine, Line, RecordedLoad
from anabranch.core.names import Namespace, topic
from anabranch.core.ring import HashRange, bundle_name, even_ranges, topic_hash
from anabranch.spark_replay.backtest.traces import SAMPLE as LOADS
from anabranch.spark_replay.balance.run import SAMPLE

NAMESPACE: Final = Namespace("functions/day")
BUNDLES: Final = 32
BROKERS: Final = 5
OWNING: Final = 2  # of them have all bundles at first: the others have just joined
TOPIC_RATE: Final = 800.0  # messages a second of each topic, in the mean
MESSAGE_BYTES: Final = 1_000.0
MEAN_LOAD: Final = 0.4  # of all brokers, if all carried the same


def sample() -> bytes:
    """The lines: what brokers can carry, then the bundles' loads, minute by minute."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in _lines())


def _lines() -> Iterator[Line]:
    frame = pq.read_table(LOADS).to_pandas()
    frame = frame[frame["topic"].str.startswith("functions/")]
    parts = even_ranges(BUNDLES)
    homes = {name: _home(name, parts) for name in frame["topic"].unique()}
    frame = frame.assign(bundle=frame["topic"].map(homes))
    means = frame.groupby("topic")["msg_rate_in"].transform("mean")
    frame = frame.assign(rate=frame["msg_rate_in"] / means * TOPIC_RATE)
    rates = frame.groupby(["time_ms", "bundle"])["rate"].sum().unstack(fill_value=0.0)
    flow = 2 * TOPIC_RATE * MESSAGE_BYTES * len(homes)  # in and out
    capacity = float(round(flow / BROKERS / MEAN_LOAD))
    begin_ms = int(rates.index[0])
    for number in range(BROKERS):
        yield BrokerLine(begin_ms, _broker(number), capacity, 0.05)
    before: dict[int, float] = {}
    for time_ms, row in rates.iterrows():
        for number, rate in row.items():
            shown = float(f"{rate:.3g}")
            if before.get(number) != shown:
                before[number] = shown
                flow = shown * MESSAGE_BYTES
                topics = sum(home == number for home in homes.values())
                load = RecordedLoad(shown, shown, flow, flow, topics)
                name = bundle_name(NAMESPACE, parts[number])
                yield BundleLine(int(time_ms), name, _broker(number % OWNING), load)


def _home(name: str, parts: tuple[HashRange, ...]) -> int:
    at = topic_hash(topic(NAMESPACE, name.rpartition("/")[2]))
    return next(number for number, part in enumerate(parts) if at in part)


def _broker(number: int) -> str:
    return f"b{number}:8080"


if __name__ == "__main__":
    SAMPLE.write_bytes(gzip.compress(sample(), mtime=0))
