"""`ScaleDecisions`: the last decisions of controllers to split and merge, logged and counted."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from anabranch.broker.logging import get_logger
from anabranch.core.autoscale.decisions import Blocked, Merge, NoAction, Split, describe
from anabranch.core.autoscale.schedule import Evaluation
from anabranch.core.entities.topic import ScalableTopic, TopicMove

_TOPICS_MAX: Final = 1_000  # those looked at last are remembered
_DECISIONS_MAX: Final = 10
_DONE: Final[Mapping[object, str]] = {Split: "auto_splits", Merge: "auto_merges"}
_SUPPRESSED: Final[Mapping[object, str]] = {
    Blocked.MAX_SEGMENTS: "split_suppressed_max_segments",
    Blocked.MAX_DAG_DEPTH: "merge_suppressed_max_depth",
}


def is_rollover(change: object) -> bool:
    """Returns whether a topic has become this just now by a rollover that took over.

    Call it once for each change: a topic stays so until its next one.
    """
    return (
        isinstance(change, ScalableTopic)
        and change.move is TopicMove.COMMIT
        and change.rebucket_ms == change.since_ms
    )


class _Remembered:
    __slots__ = ("blocked", "counts", "decisions")

    def __init__(self) -> None:
        self.decisions: deque[Evaluation] = deque(maxlen=_DECISIONS_MAX)
        self.counts: Counter[str] = Counter()
        self.blocked: Blocked | None = None


class ScaleDecisions:
    """The last decisions on the topics of this node, and counts of them, for its event loop."""

    def __init__(self, broker: str) -> None:
        self._topics: OrderedDict[str, _Remembered] = OrderedDict()
        self._log = get_logger(broker=broker)

    def note(self, name: str, evaluation: Evaluation) -> None:
        """A controller has looked at its topic."""
        decision, done = evaluation.decision, evaluation.done
        blocked = decision.blocked if isinstance(decision, NoAction) else None
        acts = not isinstance(decision, NoAction)
        is_at_rest = not acts and blocked is None and done is None
        known = self._topics.get(name) if is_at_rest else self._remember(name)
        news = acts
        if known is not None:
            counted = (_DONE.get(type(done)), _SUPPRESSED.get(blocked))
            known.counts.update(each for each in counted if each is not None)
            news = acts or blocked not in (None, known.blocked)
            known.blocked = blocked
            if news:
                known.decisions.append(evaluation)
        self._explain(name, evaluation, blocked, news=news)

    def decisions(self, name: str) -> tuple[Evaluation, ...]:
        """The last ones on a topic that acted, or were kept from it."""
        known = self._topics.get(name)
        return tuple(known.decisions) if known is not None else ()

    def rolled(self, name: str) -> None:
        """A rollover of a topic that this node controls has taken over."""
        self._remember(name).counts["rebucket_rollovers"] += 1

    def _remember(self, name: str) -> _Remembered:
        known = self._topics.setdefault(name, _Remembered())
        self._topics.move_to_end(name)
        if len(self._topics) > _TOPICS_MAX:
            self._topics.popitem(last=False)
        return known

    def drop(self, gone: Callable[[str], bool]) -> None:
        """Forgets topics that are no more, or another node's."""
        for name in [name for name in self._topics if gone(name)]:
            del self._topics[name]

    @property
    def topics(self) -> Iterable[str]:
        """Those of which something is remembered."""
        return self._topics.keys()

    def count(self, name: str, counter: str) -> int:
        """Returns one of the counts of a topic."""
        known = self._topics.get(name)
        return known.counts[counter] if known is not None else 0

    def _explain(
        self, name: str, evaluation: Evaluation, blocked: Blocked | None, *, news: bool
    ) -> None:
        decision = evaluation.decision
        say = self._log.info if news else self._log.debug
        reason = blocked if isinstance(decision, NoAction) else decision.reason
        say(
            "topic.scaled" if not isinstance(decision, NoAction) else "topic.not_scaled",
            topic=name,
            action=describe(decision),
            trigger=evaluation.trigger.value,
            reason=reason.value if reason is not None else None,
            why=decision.why,
        )
