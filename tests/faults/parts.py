"""Which processes the workload is made of: each in a container of its own, by its name."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Role(Enum):
    """What a process of the workload does; its name is a role, with a number where it has peers."""

    PRODUCERS = "producers"
    STREAM = "stream"
    QUEUE = "queue"
    CHECKPOINT = "checkpoint"
    OPERATOR = "operator"
    OBSERVER = "observer"
    READER = "reader"  # when all is over


PRODUCERS: Final = ("producers-1", "producers-2")
CONSUMERS: Final = ("stream-1", "stream-2", "queue-1", "queue-2", "checkpoint-1", "checkpoint-2")
OPERATORS: Final = ("operator", "observer")
PARTS: Final = (*OPERATORS, *PRODUCERS, *CONSUMERS)  # which may be killed, paused and cut off, too
READER: Final = "reader"
AUDITOR: Final = "auditor"  # Spark, in the end

NAMESPACE: Final = "public/default"
TOPIC: Final = f"{NAMESPACE}/orders"
# The subscriptions.
STREAM: Final = "billing"
QUEUE: Final = "jobs"
CHECKPOINTED: Final = "ledger"


def role(name: str) -> Role:
    """Whose name that is.

    >>> role("stream-2")
    <Role.STREAM: 'stream'>
    """
    return Role(name.partition("-")[0])
