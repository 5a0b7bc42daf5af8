"""The checker finds what is planted, and nothing in a history in which all is well."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from faults.checker import VERDICT, say_verdict, violations
from faults.history import read
from faults.promises import Promise

Line = dict[str, Any]

BUNDLE = "0x00000000_0xffffffff"


def line(at: float, what: str, **more: Any) -> Line:
    return {"at": at, "what": what, **more}


def sent(at: float, number: int) -> list[Line]:
    """A message, and that Kafka has it."""
    place = [0, 0, number]
    return [
        line(at, "send", key="a", number=number),
        line(at + 0.5, "acknowledged", key="a", number=number, place=place),
        line(90, "stored", key="a", number=number, place=["t", 0, number]),
    ]


def received(at: float, number: int, of: str = "stream", by: str = "one") -> list[Line]:
    """A message came to a subscription, with all that follows."""
    told: Line = {"subscription": of, "key": "a", "number": number, "place": [0, 0, number]}
    lines = [line(at, "received", consumer=by, **told)]
    if of == "queue":
        lines.append(line(at, "finished", **told))
    if of == "checkpoint":
        lines.append(line(91, "applied", stored_at=at, **told))
    return lines


def sound() -> list[Line]:
    """Two messages, cause and effect, received by a subscription of each kind; one not sent."""
    return [
        *sent(1, 0),
        *sent(2, 1),
        line(3, "send", key="a", number=2),
        line(4, "unsent", key="a", number=2, why="time is up"),
        *(line(0, "opened", subscription=kind, kind=kind, consumer="one") for kind in KINDS),
        *(each for kind in KINDS for at in (0, 1) for each in received(7 + at, at, kind)),
        line(100, "read"),
    ]


KINDS = ("stream", "queue", "checkpoint")


def without(what: str, of: str = "") -> Callable[[list[Line]], list[Line]]:
    """All but the last message's line of this kind."""

    def changed(lines: list[Line]) -> list[Line]:
        return [
            each
            for each in lines
            if (each["what"], each.get("number", 1)) != (what, 1)
            or each.get("subscription", "") != of
        ]

    return changed


def plus(*more: Line) -> Callable[[list[Line]], list[Line]]:
    return lambda lines: [*lines, *more]


def turned(what: str, of: str, when: str = "at") -> Callable[[list[Line]], list[Line]]:
    """The effect comes to a subscription before its cause."""

    def changed(lines: list[Line]) -> list[Line]:
        for each in lines:
            if (each["what"], each.get("subscription"), each.get("number")) == (what, of, 1):
                each[when] = 6
        return lines

    return changed


def served(*receipts: tuple[str, int]) -> list[Line]:
    """One consumer after the other has a bucket, from 20 s on."""
    lines = [each for number in range(2, 9) for each in sent(10 + number / 10, number)]
    for at, (consumer, number) in enumerate(receipts):
        lines += received(20 + at, number, "stream", consumer)
    for kind in ("queue", "checkpoint"):
        lines += [each for number in range(2, 9) for each in received(50 + number, number, kind)]
    return lines


def told(at: float, *bundles: tuple[str, int, str, str], node: str = "n1") -> Line:
    return line(at, "ownership", node=node, asked=at, stale=False, bundles=list(bundles))


def asked(at: float, what: str, node: str, *, stale: bool = False, **more: str) -> Line:
    topic = "topic://public/default/orders"
    return line(at + 0.1, what, node=node, asked=at, stale=stale, topic=topic, **more)


def moved() -> list[Line]:
    """A bundle is n1's, and from 20 s on n2's."""
    return [
        told(1, (BUNDLE, 2, "OWNED", "n1")),
        told(20, (BUNDLE, 3, "RELEASING", "n1")),
        told(20.1, (BUNDLE, 4, "ASSIGNING", "n1"), node="n2"),
        told(20.2, (BUNDLE, 5, "OWNED", "n2"), node="n2"),
    ]


def view(node: str, offset: int, digest: str, mode: str = "serving") -> Line:
    return line(9, "view", node=node, asked=9, stale=False, mode=mode, offset=offset, digest=digest)


def claimed(node: str, status: int, tenant: str = "r1") -> Line:
    return line(9, "claimed", node=node, status=status, tenant=tenant)


def promises(history: Iterable[Line]) -> set[Promise]:
    return {each.promise for each in violations(sorted(history, key=lambda each: each["at"]))}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], id="nothing more"),
        pytest.param(received(11, 0), id="received again later"),
        pytest.param(
            received(7.5, 0, "stream", "two"), id="received again, by one that was paused"
        ),
        pytest.param(
            [each for n in (0, 1) for each in received(9.5 + n, n, "stream", "two")],
            id="received again when a session had lapsed",
        ),
        pytest.param(
            [
                *sent(10, 5),
                *(each for kind in KINDS for each in received(80, 5, kind)),
                line(40, "begin", fault=1, kind="KILL", target="n1"),
                line(45, "end", fault=1, kind="KILL", target="n1"),
            ],
            id="waited while something failed",
        ),
        pytest.param(
            [
                *sent(10, 5),
                *(each for kind in KINDS for each in received(120, 5, kind)),
                line(60, "ownership", node="n1", asked=59, stale=True, bundles=[]),
                line(70, "unanswered", node="n1", of="view", why="ReadTimeout"),
            ],
            id="waited while a node was out of touch without a fault",
        ),
        pytest.param(
            served(("x", 2), ("x", 3), ("y", 4), ("y", 5), ("x", 6), ("x", 7), ("x", 8)),
            id="a bucket went to another consumer, and back",
        ),
        pytest.param(
            served(*(("x", n) for n in (2, 3, 4, 5)), ("y", 3), ("x", 6), ("x", 7), ("x", 8)),
            id="one receipt was under way when its process was paused",
        ),
        pytest.param(
            [
                *moved(),
                asked(10, "controlled", "n1"),
                asked(20.3, "controlled", "n1"),
                asked(30, "controlled", "n2"),
                asked(22, "lookup", "n3", owner="n1"),
                asked(30, "lookup", "n3", owner="n2"),
                asked(30, "lookup", "n1", stale=True, owner="n1"),
            ],
            id="who moved, who was a moment late, and who was cut off",
        ),
        pytest.param(
            [*moved(), told(40, (BUNDLE, 9, "OWNED", "n2")), asked(39, "controlled", "n1")],
            id="what happened between two facts is not known",
        ),
        pytest.param(
            [
                view("n1", 7, "x"),
                view("n2", 7, "x"),
                view("n3", 8, "y"),
                view("n3", 7, "", "joining"),
            ],
            id="views that agree",
        ),
        pytest.param(
            [claimed("n1", 204), claimed("n2", 409), claimed("n3", 0), claimed("n2", 204, "r2")],
            id="one of those who asked for the same has won",
        ),
        pytest.param([line(101, "audit", status=0, why="")], id="the audit found nothing"),
    ],
)
def test_nothing_is_found_where_all_is_well(more: list[Line]) -> None:
    assert promises([*sound(), *more]) == set()


def test_messages_under_way_together_may_come_in_any_order() -> None:
    history = sound()
    for each in history:
        if each["what"] == "send" and each["number"] == 1:
            each["at"] = 1.2
    assert promises(turned("received", "stream")(history)) == set()


PLANTED: dict[Promise, list[Callable[[list[Line]], list[Line]]]] = {
    Promise.LOST: [without("stored")],
    Promise.TWICE: [
        plus(line(90, "stored", key="a", number=1, place=["u", 0, 0])),
        plus(*(line(90, "stored", key="a", number=2, place=["t", 0, at]) for at in (2, 3))),
    ],
    Promise.INVENTED: [plus(line(90, "stored", key="a", number=7, place=["t", 0, 2]))],
    Promise.UNDELIVERED: [
        without("received", "stream"),
        lambda lines: without("received", "queue")(without("finished", "queue")(lines)),
        plus(line(0, "opened", subscription="fourth", consumer="one"), *received(9, 0, "fourth")),
    ],
    Promise.TURNED: [
        turned("received", "stream"),
        turned("received", "checkpoint"),
        turned("applied", "checkpoint", "stored_at"),
    ],
    Promise.UNSERVED: [
        *(
            plus(*sent(10, 5), *(each for at, kind in waits for each in received(at, 5, kind)))
            for waits in (
                [(107.0, "stream"), (60.4, "queue"), (11.0, "checkpoint")],
                [(106.4, "stream"), (60.6, "queue"), (106.4, "checkpoint")],
            )
        ),
        plus(
            *sent(10, 5),
            *(each for kind in KINDS for each in received(180, 5, kind)),
            line(20, "begin", fault=1, kind="KILL", target="n1"),
            line(45, "end", fault=1, kind="KILL", target="n1"),
        ),
    ],
    Promise.SERVED_TWICE: [
        plus(
            *served(
                *(("x", n) for n in (2, 3, 4, 5)), ("y", 3), ("y", 4), ("x", 6), ("x", 7), ("x", 8)
            )
        ),
        plus(*(each for n in (0, 1) for each in received(7.9 + n, n, "stream", "two"))),
    ],
    Promise.UNFINISHED: [without("finished", "queue")],
    Promise.UNAPPLIED: [without("applied", "checkpoint")],
    Promise.APPLIED_TWICE: [lambda lines: [*lines, *received(9, 0, "checkpoint")]],
    Promise.TWO_OWNERS: [
        plus(*moved(), asked(30, "controlled", "n1")),
        plus(*moved(), asked(30, "lookup", "n1", owner="n1")),
        plus(
            told(1, (BUNDLE, 2, "OWNED", "n1")),
            told(
                20,
                ("0x00000000_0x80000000", 1, "OWNED", "n2"),
                ("0x80000000_0xffffffff", 1, "OWNED", "n2"),
            ),
            asked(30, "controlled", "n1"),
        ),
    ],
    Promise.WRONG_LOOKUP: [plus(*moved(), asked(30, "lookup", "n3", owner="n1"))],
    Promise.GRANTED_TWICE: [plus(claimed("n1", 204), claimed("n2", 204))],
    Promise.VIEWS: [
        plus(view("n1", 7, "x"), view("n2", 7, "y")),
        plus(*moved(), told(30, (BUNDLE, 5, "OWNED", "n3"), node="n3")),
    ],
    Promise.AUDIT: [plus(line(101, "audit", status=1, why="leases: 1"))],
    Promise.FAULT: [
        plus(line(9, "fault", why="KeyError")),
        plus(line(92, "unread", place=["t", 0], why="time is up")),
    ],
    Promise.ENDED: [lambda lines: [each for each in lines if each["what"] != "read"]],
}


@pytest.mark.parametrize(
    ("promise", "planted"),
    [
        pytest.param(promise, each, id=f"{promise}-{at}")
        for promise, ways in PLANTED.items()
        for at, each in enumerate(ways)
    ],
)
def test_a_planted_violation_is_found_by_its_name(
    promise: Promise, planted: Callable[[list[Line]], list[Line]]
) -> None:
    assert promises(planted(sound())) == {promise}


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (0, set()),
        (1, {Promise.AUDIT}),
        pytest.param(2, {Promise.FAULT}, id="it could not run"),
        pytest.param(3, {Promise.FAULT}, id="the log has a gap"),
        pytest.param(None, {Promise.FAULT}, id="it did not end in time"),
    ],
)
def test_the_verdict_of_the_audit_is_judged_too(
    tmp_path: Path, status: int | None, found: set[Promise]
) -> None:
    checks = [
        {"name": "leases", "violated": status, "witnesses": [{"text": "two owners"}]},
        {"name": "seals", "violated": 0, "witnesses": []},
    ]
    (tmp_path / VERDICT).write_text(json.dumps({"checks": checks}))
    say_verdict(tmp_path, status, "Kafka is away")
    told = [dict(each) for each in read(tmp_path)]
    assert promises([*sound(), *told]) == found
    assert [each["why"] for each in told if each["what"] == "audit"] in (
        [["leases: two owners" if status else ""]] if status in (0, 1) else [[]]
    )


def test_each_promise_has_a_planted_violation() -> None:
    assert set(PLANTED) == set(Promise)


def test_each_promise_is_in_the_page_about_faults() -> None:
    page = (Path(__file__).parents[2] / "docs/faults.md").read_text()
    assert [each for each in Promise if f"`{each}`" not in page] == []


def test_the_checker_imports_nothing_of_the_product() -> None:
    here = Path(__file__).parent
    judges = (
        "checker",
        "deliveries",
        "history",
        "messages",
        "ownership",
        "promises",
        "rivals",
    )
    assert [name for name in judges if "anabranch" in (here / f"{name}.py").read_text()] == []
