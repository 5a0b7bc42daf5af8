"""What `anabranch segments` asks, and tells, with a node that says what the test wants."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from anabranch.cli.main import cli
from support.answering import Answer, node

TOPIC = "public/default/orders"


def detail(*transactions: dict[str, object], unknown: str = "") -> dict[str, object]:
    texts = {"name": "s", "state": "SEALED", "kafkaTopic": "k"}
    lists: dict[str, object] = {"parentIds": [], "findings": []}
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
