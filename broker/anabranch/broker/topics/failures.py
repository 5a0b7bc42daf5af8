"""`Failures`: why the last step of each topic failed in Kafka, for errors and statistics."""

from __future__ import annotations

from typing import Final

from anabranch.core.segment_tasks import DeleteSegments, Done, Failed, Task

_TOPICS_MAX: Final = 1_000  # those that failed last are remembered


class Failures:
    """Of the topics that this node controls. To be used in its event loop."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def note(self, task: Task, result: Done | Failed) -> None:
        """A task of a topic is over."""
        if not isinstance(task, DeleteSegments):  # those follow a failure and must not hide it
            self.forget(task.topic)
        if isinstance(result, Failed):
            self._reasons[task.topic] = result.reason
            if len(self._reasons) > _TOPICS_MAX:
                del self._reasons[next(iter(self._reasons))]

    def why(self, name: str) -> str:
        """What Kafka said; "" when the topic's last step did not fail, or long ago."""
        return self._reasons.get(name, "")

    def forget(self, name: str) -> None:
        """The topic begins anew."""
        self._reasons.pop(name, None)
