"""librdkafka's mock of a Kafka broker, in a process of its own that can be made to stand still.

Its topics are those that it is given, with four partitions each.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Final, Self

_END_S_MAX: Final = 30.0
_BROKER: Final = """
import sys
from confluent_kafka import Producer
broker = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
for topic in sys.argv[1:]:
    found = broker.list_topics(topic, 30)
(at,) = found.brokers.values()
print(f"{at.host}:{at.port}", flush=True)
sys.stdin.read()
"""


class MockKafka:
    """Use as a context manager; `servers` is its address."""

    def __init__(self, *topics: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BROKER, *topics],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.servers: str = self._process.stdout.readline().strip()
        assert self.servers, "it did not start"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=_END_S_MAX)

    def stand_still(self) -> None:
        """From now on requests reach its machine, and nobody answers them."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # a thread of it may be at work until then

    def go_on(self) -> None:
        """It answers again, also what was asked meanwhile."""
        self._process.send_signal(signal.SIGCONT)
