"""What `anabranch segments` asks, and tells, with a node that says what the test wants."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from anabranch.cli.main import cli
from support.answering import Answer, node

TOPIC = "public/default/orders"
_HANGS = "no coordinator of Kafka knows it, so it hangs"


def open_by(producer_id: int | None, unknown: str = "", **known: object) -> dict[str, object]:
    nothing = dict.fromkeys(("producerEpoch", "lastWriteMs", "startedMs", "timeoutMs"), 0)
    told = {"bucket": 1, "startOffset": 17, "transactionalId": "", "state": "", **nothing}
    return {**told, "producerId": producer_id, "unknown": unknown, **known}


def detail(*transactions: dict[str, object], unknown: str = "") -> dict[str, object]:
    texts = {"name": "s", "state": "SEALED", "kafkaTopic": "k"}
    names = ("kafkaLeaders", "kafkaReplicas", "parentIds", "findings")
    lists: dict[str, object] = {each: [] for each in names}
    return {
        **texts,
        **lists,
        "hashRange": {"start": 0, "end": 1},
        "entryBuckets": 2,
        "load": None,
        "segmentId": 0,
        "childIds": [],
        "subscriptions": {},
        "openTransactions": list(transactions),
        "openTransactionsUnknown": unknown,
    }


@pytest.mark.parametrize(
    ("found", "words", "status", "said"),
    [
        (detail(open_by(7)), ["--yes"], 0, "the open transaction of producer 7 is aborted"),
        (detail(open_by(7), open_by(7)), ["--yes"], 0, "transaction of producer 7 is"),
        (
            detail(open_by(7), open_by(8)),
            ["--yes", "--producer", "8"],
            0,
            "transaction of producer 8 is",
        ),
        (detail(open_by(7), open_by(8)), ["--yes"], 2, "--producer of 7, 8?"),
        (detail(open_by(7)), [], 2, "nobody can be asked here: say --yes"),
        (detail(open_by(None, "SASL")), ["--yes"], 1, f"topic://{TOPIC}: SASL"),
        (detail(), ["--yes"], 1, "no transaction holds it back"),
        (detail(unknown="no answer"), ["--yes"], 1, f"topic://{TOPIC}: no answer"),
    ],
)
def test_a_transaction_is_aborted_whose_producer_is_clear(
    found: dict[str, object], words: list[str], status: int, said: str
) -> None:
    asked: list[str] = []

    def answer(verb: str, path: str) -> Answer:
        asked.append(verb)
        return (204, {}, None) if verb == "POST" else (200, {}, found)

    with node(answer) as url:
        done = CliRunner().invoke(
            cli, ["segments", "abort-transaction", TOPIC, "0", "--url", url, *words]
        )
    assert (done.exit_code, said in done.output) == (status, True), done.output
    assert asked == ["GET"] + ["POST"] * (status == 0)


@pytest.mark.parametrize(
    ("words", "given", "status", "asked"),
    [
        (["--yes"], None, 0, ["GET", "POST"]),
        ([], None, 2, ["GET"]),
        ([], "y\n", 0, ["GET", "POST"]),
        ([], "n\n", 1, ["GET"]),
    ],
)
def test_a_segment_is_restored_by_who_knows_what_is_lost(
    words: list[str],
    given: str | None,
    status: int,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = "Kafka has no such topic: what it held, 40 messages at most, is lost"
    monkeypatch.setattr("anabranch.cli.topics.segments.can_be_asked", lambda: given is not None)
    seen: list[str] = []

    def answer(verb: str, path: str) -> Answer:
        seen.append(verb)
        return (204, {}, None) if verb == "POST" else (200, {}, {**detail(), "findings": [told]})

    with node(answer) as url:
        command = ["segments", "restore", TOPIC, "0", "--url", url, *words]
        done = CliRunner().invoke(cli, command, input=given)
    assert (done.exit_code, seen) == (status, asked), done.output
    assert f"segment 0 of topic://{TOPIC}: {told}" in done.output
    assert ("goes on without its messages" in done.output) is (status == 0)


def test_whoever_is_asked_sees_whose_transaction_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, Any] = {"transactionalId": "etl", "state": "Ongoing", "timeoutMs": 60_000}
    found = detail(open_by(7, **known), open_by(8), open_by(None, "SASL"))
    monkeypatch.setattr("anabranch.cli.topics.segments.can_be_asked", lambda: True)
    with node(lambda *_: (200, {}, found)) as url:
        words = ["segments", "abort-transaction", TOPIC, "0", "--producer", "7", "--url", url]
        done = CliRunner().invoke(cli, words, input="n\n")
    where = "segment 0, bucket 1: read up to 17 only; "
    at = "1970-01-01 00:00:00Z"
    first = f"producer 7 (epoch 0, transactional id etl) has a transaction open since {at}, "
    assert done.stderr.splitlines()[:3] == [
        f"{where}{first}Ongoing, which Kafka ends after 60 s",
        f"{where}producer 8 (epoch 0) has a transaction open, wrote last {at}; {_HANGS}",
        f"{where}a transaction is open there; SASL",
    ]
    assert done.exit_code == 1
