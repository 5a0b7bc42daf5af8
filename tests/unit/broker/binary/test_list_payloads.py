"""Payloads of lists: made once at one state of a list, and kept within bounds."""

from __future__ import annotations

import pytest

from anabranch.broker.binary import list_payloads
from anabranch.broker.binary.list_payloads import Form, Payloads
from anabranch.broker.topics.kept_list import KeptList
from anabranch.core.names import parse_namespace
from anabranch.core.topic_lists.selection import ALL, by_pattern
from anabranch.core.topic_lists.topic_list import TopicList
from anabranch.wire.memory.limiter import LimitType
from anabranch.wire.memory.shared import SharedPayload
from support.limiter import limiter_of

HOME = parse_namespace("public/default")
NAME_BYTES = 100


def kept_list(count: int, pattern: str = "") -> KeptList:
    kept = KeptList(HOME, by_pattern(pattern) if pattern else ALL)
    kept.list = TopicList(
        f"topic://public/default/{number:0{NAME_BYTES}d}" for number in range(count)
    )
    return kept


async def sent(payload: SharedPayload) -> bytes:
    async with payload.used() as data:
        return data


async def test_who_asks_for_an_unchanged_list_is_sent_the_same_bytes() -> None:
    limiter = limiter_of(1 << 30)
    payloads, kept = Payloads(limiter), kept_list(3_000)
    first = await sent(payloads.names(kept, Form.RESPONSE))
    assert await sent(payloads.names(kept, Form.RESPONSE)) is first
    assert await sent(payloads.names(kept, Form.SUCCESS)) != first
    kept.list.note("topic://public/default/new", True)
    assert await sent(payloads.names(kept, Form.RESPONSE)) != first
    assert [limiter.side(each).acquired for each in LimitType] == [0, 0]


async def test_what_nobody_is_sent_takes_only_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1_000_000
    monkeypatch.setattr(list_payloads, "_IDLE_BYTES_MAX", most)

    payloads = Payloads(limiter_of(1 << 30))
    lists = [kept_list(3_000, f"a{number}") for number in range(5)]  # three fit
    for kept in lists:
        await sent(payloads.names(kept, Form.RESPONSE))
        assert payloads.idle_bytes <= most
    newest = payloads.names(lists[-1], Form.RESPONSE)
    assert await sent(newest) is await sent(newest)
    for number in range(50):  # what has changed is not kept twice
        lists[-1].list.note(f"topic://public/default/{number}", True)
        await sent(payloads.names(lists[-1], Form.RESPONSE))
        assert payloads.idle_bytes <= most
    long = payloads.names(kept_list(20_000), Form.RESPONSE)
    assert await sent(long) is not await sent(long)  # alone it is too much
    assert payloads.idle_bytes <= most


async def test_what_is_being_sent_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_payloads, "_IDLE_BYTES_MAX", 400_000)

    payloads = Payloads(limiter_of(1 << 30))
    one, other = kept_list(3_000, "one"), kept_list(3_000, "other")
    used = payloads.names(one, Form.RESPONSE)
    await sent(used)
    async with used.used() as data:
        await sent(payloads.names(other, Form.RESPONSE))  # takes its place among the idle
        assert await sent(payloads.names(one, Form.RESPONSE)) is data
    assert payloads.idle_bytes <= 400_000
