"""The back-test's result as one value, the same for every form of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.spark_replay.backtest.outcome import PolicyFigures, PolicyOutcome, TopicResult
from anabranch.spark_replay.report.charts import Bins
from anabranch.spark_replay.report.output import clock


class Comparison(msgspec.Struct, frozen=True):
    """Several policies on the same load. `topic_faults` and `policy_faults` have the reasons for
    what was left out.

    `scale` describes the scaling of the rates, in words. `model` has the assumptions, by name.
    """

    load: str
    scale: str
    model: Mapping[str, str | float]
    policies: Mapping[str, AutoScalePolicy]
    topics: Sequence[TopicResult]  # those that could be used
    topic_faults: Mapping[str, str]
    policy_faults: Mapping[str, str]
    bins: Bins
    seconds: float

    @property
    def topic_days(self) -> float:
        return sum(topic.end_ms - topic.begin_ms for topic in self.topics) / 86_400_000

    @property
    def span(self) -> tuple[int, int]:
        """Returns the begin and the end of the load, in ms."""
        return (
            min(topic.begin_ms for topic in self.topics),
            max(topic.end_ms for topic in self.topics),
        )

    def total(self, policy: str) -> PolicyFigures:
        """Adds up the figures of all topics."""
        return PolicyFigures.total(outcome_of(topic, policy).figures for topic in self.topics)

    def busiest(self, most: int) -> list[TopicResult]:
        """Returns the topics with the most actions, of all policies together."""

        def order(topic: TopicResult) -> tuple[int, str]:
            return (-sum(each.figures.operations for each in topic.outcomes), topic.topic)

        return sorted(self.topics, key=order)[:most]

    def json(self) -> str:
        """Returns the comparison as JSON, for programs."""
        begin_ms, end_ms = self.span
        found: dict[str, Any] = {
            "load": self.load,
            "scale": self.scale,
            "from": clock(begin_ms),
            "to": clock(end_ms),
            "topics": len(self.topics),
            "topic_days": round(self.topic_days, 3),
            "seconds": round(self.seconds, 2),
            "model": self.model,
            "left_out": {"topics": self.topic_faults, "policies": self.policy_faults},
            "policies": [
                {
                    "name": name,
                    "policy": policy,
                    "total": self.total(name).form(),
                    "topics": [_topic(topic, outcome_of(topic, name)) for topic in self.topics],
                }
                for name, policy in self.policies.items()
            ],
        }
        return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def outcome_of(topic: TopicResult, policy: str) -> PolicyOutcome:
    """Returns the outcome of that policy on the topic."""
    return next(each for each in topic.outcomes if each.policy == policy)


def _topic(topic: TopicResult, outcome: PolicyOutcome) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "from": clock(topic.begin_ms),
        "to": clock(topic.end_ms),
        **outcome.figures.form(),
        "log": [
            {"at": clock(each.at_ms), "action": each.what, "reason": each.reason}
            | ({"undoes_after_s": each.undoes / 1000} if each.undoes >= 0 else {})
            for each in outcome.log
        ],
    }


def segments_over_time(topic: TopicResult, policy: str, bins: Bins) -> list[float]:
    """Returns the mean number of segments in each bin, 0 for a bin without load."""
    layouts = outcome_of(topic, policy).layouts
    found = [0.0] * bins.count
    ends = [begin_ms for begin_ms, _ in layouts[1:]] + [topic.end_ms]
    for (begin_ms, count), end_ms in zip(layouts, ends, strict=True):
        first = max(0, (begin_ms - bins.start_ms) // bins.width_ms)
        last = min(bins.count - 1, (end_ms - 1 - bins.start_ms) // bins.width_ms)
        for at in range(first, last + 1):
            low = bins.start_ms + at * bins.width_ms
            within = min(end_ms, low + bins.width_ms) - max(begin_ms, low)
            found[at] += count * max(0, within) / bins.width_ms
    return found
