"""A node's questions to groups' coordinators, on a Kafka that stands still for a while.

In a process of their own: what is looked for ends the process.
"""

from __future__ import annotations

from support.processes import run_python

_PROGRAM = """
import os
import time
from contextlib import suppress
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from support.mock_kafka import MockKafka

GROUPS = ["one", "other"]

def threads():
    return len(os.listdir("/proc/self/task"))

with MockKafka("orders") as kafka:
    connection = KafkaConnection(kafka.servers)
    asked = SegmentAdmin(connection, SegmentSettings())
    before = threads()
    kafka.stand_still()
    with suppress(KafkaUnreachableError):
        asked.delete_groups(GROUPS, 1.0)
    print("under way:", threads() > before)
    kafka.go_on()
    time.sleep(2.0)  # what was asked is answered
    print("alive")
"""


def test_an_answer_that_comes_too_late_ends_no_process_and_is_not_waited_for() -> None:
    found = run_python(_PROGRAM)
    assert found.stdout == "under way: False\nalive\n", found.stderr
