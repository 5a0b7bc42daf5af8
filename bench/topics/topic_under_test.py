"""A scalable topic to measure with, handled over REST by the node that controls it."""

from __future__ import annotations

import re
import urllib.request
from types import TracebackType
from typing import Any

from bench.http.client import Client
from bench.place import Place

_PREFIX = "/admin/v2/scalable"
_NAMESPACE = "public/default"
_STEP = re.compile(r'^anabranch_topic_change_seconds_sum\{step="(\w+)"\} (\S+)$', re.MULTILINE)


class TopicUnderTest:
    """A fresh topic. Used as a context manager, which deletes it."""

    def __init__(self, place: Place, segments: int = 1) -> None:
        name = f"{_NAMESPACE}/bench-{place.number()}"
        self.name = f"topic://{name}"
        self.path = f"{_PREFIX}/{name}"
        any_node = Client(place.nodes[0])
        owner = any_node.lookup(name, "topic")
        any_node.close()
        self._owner = next(each for each in place.nodes if each.broker_id == owner)
        self._client = Client(self._owner)
        self._client.put(f"{self.path}?numInitialSegments={segments}")

    def __enter__(self) -> TopicUnderTest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._client.delete(self.path)
        finally:
            self._client.close()

    def active(self) -> dict[int, tuple[int, int]]:
        """Range of the ring, both ends inclusive, by id of the segment."""
        return {
            part["segmentId"]: (part["hashRange"]["start"], part["hashRange"]["end"])
            for part in self._get("")["segments"].values()
            if part["active"]
        }

    def kafka_topics(self) -> list[str]:
        """Where its messages are: the Kafka topics of all its segments."""
        return [part["kafkaTopic"] for part in self._get("/stats")["segments"].values()]

    def partitions(self, segment: int) -> int:
        """Kafka partitions of one of its segments."""
        return int(self._get("/stats")["segments"][str(segment)]["entryBuckets"])

    def split(self, segment: int) -> None:
        """Returns when the children have taken over."""
        self._client.post(f"{self.path}/split/{segment}")

    def merge(self, one: int, other: int) -> None:
        """Returns when their child has taken over."""
        self._client.post(f"{self.path}/merge/{one}/{other}")

    def prepare(self, segments: int) -> None:
        """Returns when so many equal segments have taken over."""
        self._client.post(f"{self.path}/prepare?segmentCount={segments}")

    def rebucket(self, segment: int, buckets: int) -> int:
        """Returns the segment that has taken over, with so many buckets."""
        self._client.post(f"{self.path}/rebucket/{segment}?bucketCount={buckets}")
        return max(self.active())

    def buckets(self) -> dict[tuple[int, int], tuple[str, int]]:
        """Kafka's topic and partition, by segment and bucket."""
        return {
            (int(number), bucket): (part["kafkaTopic"], bucket)
            for number, part in self._get("/stats")["segments"].items()
            for bucket in range(part["entryBuckets"])
        }

    def group(self, subscription: str) -> str:
        """The Kafka group that has its positions."""
        return str(self._get("/stats")["subscriptions"][subscription]["groupId"])

    def steps_ms(self) -> dict[str, float]:
        """What each step of all changes has taken so far at the node that controls the topic.

        The node logs the same of each change (`topic.changed`); the sums need no log.
        """
        with urllib.request.urlopen(f"{self._owner.url}/metrics") as answer:
            page = answer.read().decode()
        return {step: 1000 * float(seconds) for step, seconds in _STEP.findall(page)}

    def _get(self, what: str) -> Any:
        status, answer = self._client.get(self.path + what)
        if status != 200:
            raise RuntimeError(f"GET {self.path}{what}: {status} {answer}")
        return answer
