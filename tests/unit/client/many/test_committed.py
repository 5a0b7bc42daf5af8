"""What the groups of many topics have committed, asked for together."""

from __future__ import annotations

import asyncio
import gc
import socket
from concurrent.futures import Future
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException

from anabranch.client._many import offsets
from anabranch.client._many.offsets import CommittedTogether, OffsetsClient
from support.group_coordinator import FETCH, FIND, NOT_COORDINATOR, GroupCoordinator
from support.waiting import WAIT_S

PLACE = ("orders", 0)
NOT_ALLOWED = 30
NOTE = "note"  # that is written with every position


async def test_all_who_wait_are_told_by_one_answer_each_of_its_own_group() -> None:
    with closing(GroupCoordinator(*({PLACE: number} for number in range(300)))) as kafka:
        groups = [f"g{number}" for number in range(300)]
        together = CommittedTogether(_servers(kafka))
        found = await asyncio.gather(*(together.committed(each, [PLACE], NOTE) for each in groups))
        assert found == [{PLACE: number} for number in range(300)]
        assert kafka.questions == [(FIND, 4), (FETCH, 8)]
        assert await together.committed("new", [PLACE], NOTE) == {}
        await together.close()


async def test_more_than_fit_one_request_are_asked_for_by_several() -> None:
    with closing(GroupCoordinator()) as kafka:
        together = CommittedTogether(_servers(kafka))
        asked = [together.committed(f"g{number}", [PLACE], NOTE) for number in range(1_200)]
        assert set(map(str, await asyncio.gather(*asked))) == {"{}"}
        assert kafka.questions == [(FIND, 4), (FETCH, 8)] * 3
        await together.close()


async def test_what_passes_is_tried_again_and_what_kafka_refuses_is_asked_for_by_itself() -> None:
    with closing(GroupCoordinator({PLACE: 1}, {PLACE: 2})) as kafka:
        together = CommittedTogether(_servers(kafka))
        kafka.errors = {"g0": NOT_ALLOWED, "g1": NOT_COORDINATOR}
        assert await together.committed("g0", [PLACE], NOTE) is None
        with pytest.raises(KafkaException, match="NOT_COORDINATOR"):
            await together.committed("g1", [PLACE], NOTE)
        kafka.errors = {}
        assert await together.committed("g1", [PLACE], NOTE) == {PLACE: 2}
        kafka.is_mute = True
        assert await together.committed("g1", [PLACE], NOTE) is None
        await together.close()


async def test_where_kafka_has_sasl_or_is_away_each_group_is_asked_for_by_itself() -> None:
    with closing(GroupCoordinator()) as kafka:
        guarded = CommittedTogether({"sasl.mechanism": "PLAIN", **_servers(kafka)})
        assert await guarded.committed("g0", [PLACE], NOTE) is None
        await guarded.close()
        kafka.close()
        together = CommittedTogether(_servers(kafka))
        assert (
            await asyncio.gather(*(together.committed("g0", [PLACE], NOTE) for _ in "ab"))
            == [None] * 2
        )
        await together.close()


async def test_a_slow_kafka_is_asked_again_by_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "_TOGETHER_S_MAX", 0.1)

    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        together = CommittedTogether({"bootstrap.servers": f"127.0.0.1:{port}"})
        with pytest.raises(KafkaException, match="COORDINATOR_NOT_AVAILABLE"):
            await together.committed("g0", [PLACE], NOTE)
        await together.close()


async def test_who_asks_in_the_very_moment_of_the_end_is_told_that_nothing_is_known() -> None:
    together = CommittedTogether({"bootstrap.servers": "127.0.0.1:1"})
    asking = asyncio.create_task(together.committed("g0", [PLACE], NOTE))
    await asyncio.sleep(0)  # what is to ask Kafka is made, and has not begun
    await together.close()
    assert await asyncio.wait_for(asking, WAIT_S) is None


async def test_an_error_that_comes_when_nobody_waits_any_more_is_not_told_of() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(str(what)))
    client, asked = OffsetsClient(), [Future[None]()]
    client.of_group({"bootstrap.servers": "127.0.0.1:1", "group.id": "any"}, 1.0, NOTE)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        await client.ask(lambda _: {"": asked[0]}, 0.01)
    asked.pop().set_exception(KafkaException(KafkaError(KafkaError._DESTROY)))
    await client.close()
    gc.collect()
    assert not told


def _servers(kafka: GroupCoordinator) -> dict[str, str]:
    host, port = kafka.address
    return {"bootstrap.servers": f"{host}:{port}"}
