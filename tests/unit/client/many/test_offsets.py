"""Offsets of many groups by few clients, on a Kafka that stands still for a while.

Each test runs in a process of its own: what it looks for ends the process.
"""

from __future__ import annotations

import pytest

from support.processes import run_python

_BEGIN = """
import asyncio
from confluent_kafka import KafkaException
from anabranch.client._consumer.group_offsets import Position
from anabranch.client._many.offsets import OffsetsClient
from support.mock_kafka import MockKafka

PLACE, SESSION_S = ("orders", 0), 2.0
FAR = float("inf")

def of(client, kafka, group, mark="m"):
    return client.of_group({"bootstrap.servers": kafka.servers, "group.id": group}, SESSION_S, mark)

async def failing(what):
    try:
        found = await what
    except KafkaException as error:
        return error.args[0].name()
    return found.found

async def main():
    with MockKafka("orders") as kafka:
        client = OffsetsClient()
        await test(client, kafka)
        await client.close()

"""


def told(test: str) -> list[str]:
    """What `test`, of `client` and `kafka`, prints in a process that comes to its end."""
    found = run_python(f"{_BEGIN}async def test(client, kafka):\n{test}\nasyncio.run(main())\n")
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


def test_what_is_committed_is_found_again_by_its_mark_and_a_group_without_any_has_none() -> None:
    assert told("""
    one, other = of(client, kafka, "one"), of(client, kafka, "other")
    print(*(await one.commit({PLACE: Position(7)}, FAR)).found.values())
    print((await one.committed([PLACE])).found[PLACE].offset)
    print((await other.committed([PLACE])).found)
    print((await of(client, kafka, "one", "other mark").committed([PLACE])).found)
    print((await one.ranges([PLACE])).found[PLACE])
    print((await one.commit({PLACE: Position(9)}, 0.0)).found)
    print((await one.committed([PLACE])).found[PLACE].offset)
    """) == ["7", "7", "{}", "{}", "(0,", "0)", "{}", "7"]


@pytest.mark.parametrize("warm", [False, True])
def test_kafka_that_answers_only_when_nobody_waits_any_more_ends_no_process(warm: bool) -> None:
    """Groups whose coordinator is asked for while Kafka stands still."""
    assert told(f"""
    if {warm}:
        await of(client, kafka, "warm").commit({{PLACE: Position(1)}}, FAR)
    kafka.stand_still()
    five = {{PLACE: Position(5)}}
    commits = [of(client, kafka, f"g{{each}}").commit(five, FAR) for each in range(40)]
    print(*set(await asyncio.gather(*map(failing, commits))))
    kafka.go_on()
    await asyncio.sleep(1.0)  # what was asked is answered
    late = [of(client, kafka, f"g{{each}}").committed([PLACE]) for each in range(40)]
    print(*(each.found[PLACE] for each in await asyncio.gather(*late) if each.found))
    print((await of(client, kafka, "again").commit({{PLACE: Position(3)}}, FAR)).found[PLACE])
    """) == ["_TIMED_OUT", "3"]
