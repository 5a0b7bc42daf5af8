"""`anabranch`, which kills itself at a point of its work in Kafka: `doomed_node.py POINT node ...`.

A point is a method of what does the work, before or after its first call.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from anabranch.channel.segments.admin import SegmentAdmin
from anabranch.channel.segments.sealing import Sealer
from anabranch.cli.main import main


class Point(Enum):
    """What is logged or done in Kafka when the node ends."""

    TOPICS_WANTED = (SegmentAdmin, "create", False)
    SEALING_LOGGED = (SegmentAdmin, "seal", False)
    LIMIT_SET = (Sealer, "_await_copies", False)
    ONE_PARTITION_REFUSES = (Sealer, "_probe", True)
    SEALED = (SegmentAdmin, "seal", True)
    OPENED = (SegmentAdmin, "open_again", True)
    TOPICS_DELETED = (SegmentAdmin, "delete", True)


def doom(point: Point) -> None:
    """Makes this process end there."""
    owner, name, after = point.value
    real: Callable[..., Any] = getattr(owner, name)

    def doomed(self: object, what: str | Iterable[Any], *rest: Any) -> Any:
        given = what if isinstance(what, str) else list(what)
        if not after:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, given, *rest)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, doomed)


if __name__ == "__main__":
    doom(Point[sys.argv.pop(1)])
    main()
