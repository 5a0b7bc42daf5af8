"""How the commands ask nodes, with nodes that say what the test wants."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from anabranch.admin import NoNodeError, UnreachableError
from anabranch.cli.main import cli
from anabranch.cli.shared.api import connect
from support.answering import Answer, node
from support.nobody import nobody

TOPIC = "public/default/orders"


def sent_on(url: str) -> Callable[[str, str], Answer]:
    return lambda _verb, path: (307, {"Location": url + path}, None)


def ran(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, words, env={"ANABRANCH_URL": None, **environment})


def _segment(number: int, *children: int) -> dict[str, object]:
    return {
        "segmentId": number,
        "hashRange": {"start": 0, "end": 0xFFFF},
        "state": "SEALED" if children else "ACTIVE",
        "parentIds": [],
        "childIds": list(children),
        "entryBucketSplits": [],
        "endOffsets": [],
        **dict.fromkeys(("createdAtEpoch", "sealedAtEpoch", "createdAtMs", "sealedAtMs"), 0),
        **dict.fromkeys(("sealed", "active", "root", "leaf", "legacy"), False),
    }


def _layout(*children: int) -> dict[str, object]:
    segments = {str(n): _segment(n) for n in children}
    known = {"0": _segment(0, *children), **segments}
    return {"epoch": 1, "nextSegmentId": 3, "segments": known, "properties": {}}


def _stats(
    subscriptions: dict[str, object], *, enabled: bool = False, fault: str = ""
) -> dict[str, object]:
    policy = {"enabled": {"value": enabled, "level": "broker"}}
    now = {"atMs": 0, "trigger": None, "action": "none", "reason": None, "why": ""}
    return {
        **dict.fromkeys(("epoch", "totalSegments", "activeSegments", "sealedSegments"), 1),
        "segments": {},
        "subscriptions": subscriptions,
        "operation": "NONE",
        "lastFailure": "",
        "autoScale": {"policy": policy, "fault": fault, "now": now, "decisions": []},
    }


def _subscription(kind: str) -> dict[str, object]:
    lists: dict[str, object] = {"consumers": [], "drainedSegments": [], "segments": {}}
    texts = {"type": kind, "backlogUnknown": "", "groupId": "g"}
    return {**lists, **texts, "consumerCount": 0, "msgBacklog": 0}


def _scaling(*, enabled: bool, fault: str = "") -> Answer:
    return 200, {}, _stats({}, enabled=enabled, fault=fault)


def test_what_came_of_a_split_is_asked_of_the_node_that_did_it() -> None:
    def controller(verb: str, path: str) -> Answer:
        if path.endswith("/stats"):
            return _scaling(enabled=False)
        return (200, {}, _layout(1, 2)) if verb == "GET" else (204, {}, None)

    with node(controller) as did:

        def behind(verb: str, path: str) -> Answer:
            if verb == "GET":
                return 200, {}, _layout()
            return sent_on(did)(verb, path)

        with node(behind) as asked:
            said = ran("topics", "split", TOPIC, "0", "--url", asked)
            shown = ran("topics", "split", TOPIC, "0", "--url", asked, "--json")
    assert said.output == "segment 0 is split: 1 [0000-ffff], 2 [0000-ffff]\n"
    found = json.loads(shown.output)
    assert (found["parents"], [child["segmentId"] for child in found["children"]]) == ([0], [1, 2])


@pytest.mark.parametrize(
    ("words", "reason", "hinted"),
    [
        (("split", TOPIC, "7"), "Segment not found: 7", True),
        (("merge", TOPIC, "1", "7"), "Segments are not adjacent: [0000, 0fff]", True),
        (("rebucket", TOPIC, "1", "2000"), "bucketCount must be in 1..1024", False),
        (("split", TOPIC, "7"), f"Scalable topic not found: topic://{TOPIC}", False),
    ],
)
def test_a_refusal_is_a_line_that_says_where_to_look_if_segments_are_not_as_thought(
    words: tuple[str, ...], reason: str, hinted: bool
) -> None:
    with node(lambda _verb, _path: (412, {}, {"reason": reason})) as asked:
        said = ran("topics", *words, "--url", asked)
    look = f"; `anabranch topics show {TOPIC}` has the segments" if hinted else ""
    assert (said.exit_code, said.stderr) == (1, f"anabranch: 412: {reason}{look}\n")


@pytest.mark.parametrize(
    ("stats", "hinted"),
    [
        (_scaling(enabled=True), True),
        (_scaling(enabled=False), False),
        (_scaling(enabled=True, fault="invalid_policy"), False),
        ((503, {}, {"reason": "try again"}), False),
    ],
)
def test_who_makes_segments_by_hand_is_told_of_auto_scaling(stats: Answer, hinted: bool) -> None:
    def answer(verb: str, path: str) -> Answer:
        if path.endswith("/stats"):
            return stats
        return (200, {}, _layout(1, 2)) if verb == "GET" else (204, {}, None)

    with node(answer) as asked:
        for words in (("create", TOPIC), ("split", TOPIC, "0")):
            said = ran("topics", *words, "--url", asked)
            assert (said.exit_code, len(said.stdout.splitlines())) == (0, 1)
            assert said.stderr.count("\n") == int(hinted)
            assert (f"anabranch policy set {TOPIC} enabled=false" in said.stderr) == hinted
            shown = ran("topics", *words, "--url", asked, "--json")
            assert (shown.exit_code, shown.stderr) == (0, "")
            json.loads(shown.stdout)


def test_the_node_to_ask_is_that_of_the_flag_or_else_of_the_environment() -> None:
    def named(topic: str) -> Callable[[str, str], Answer]:
        return lambda _verb, _path: (200, {}, [topic])

    with node(named("topic://a/b/flag")) as flag, node(named("topic://a/b/variable")) as variable:
        listed = ran("topics", "list", ANABRANCH_URL=variable)
        assert listed.stdout == "topic://a/b/variable\n"
        listed = ran("topics", "list", "--url", flag, ANABRANCH_URL=variable)
        assert listed.stdout == "topic://a/b/flag\n"
    with nobody() as gone, pytest.raises(NoNodeError, match=f"{gone} .*or ANABRANCH_URL"):
        CliRunner().invoke(cli, ("brokers",), env={"ANABRANCH_URL": gone}, catch_exceptions=False)
    assert "env var: ANABRANCH_URL; default: http://127.0.0.1:8080" in " ".join(
        ran("brokers", "--help").stdout.split()
    )


def test_a_subscription_is_created_or_was_there_and_one_of_another_type_is_refused() -> None:
    there: dict[str, object] = {}

    def answer(verb: str, path: str) -> Answer:
        if verb == "GET":
            return 200, {}, _stats(there)
        there.setdefault("billing", _subscription(parse_qs(urlsplit(path).query)["type"][0]))
        return 204, {}, None

    with node(answer) as asked:
        words = ("topics", "subscriptions", "create", TOPIC, "billing", "--url", asked, "--type")
        said = [ran(*words, kind) for kind in ("stream", "stream", "queue")]
    full = f"subscription billing of topic://{TOPIC}"
    assert [each.output for each in said[:2]] == [f"{full} is created\n", f"{full} was there\n"]
    assert (said[2].exit_code, "with the type stream" in said[2].output) == (1, True)
    assert "delete it first" in said[2].output


def test_a_port_that_does_not_speak_http_is_said_to_be_the_wrong_one() -> None:
    def hang_up(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            server.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        closing = threading.Thread(target=hang_up, args=(server,))
        closing.start()
        with (
            connect(f"http://127.0.0.1:{server.getsockname()[1]}") as admin,
            pytest.raises(UnreachableError, match=r"does not speak HTTP.*webServicePort"),
        ):
            admin.tenants.get_tenants()
        closing.join()


def test_deleting_a_topic_asks_or_wants_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[str] = []

    def answer(verb: str, path: str) -> Answer:
        asked_for.append(verb)
        return (204, {}, None) if verb == "DELETE" else (200, {}, _stats({}))

    with node(answer) as asked:
        words = ("topics", "delete", TOPIC, "--url", asked)
        alone = ran(*words)
        assert (alone.exit_code, asked_for) == (2, [])
        assert f"deleting topic://{TOPIC} loses all its messages" in alone.stderr
        assert "--yes" in alone.stderr
        monkeypatch.setattr("anabranch.cli.topics.commands.can_be_asked", lambda: True)
        no = CliRunner().invoke(cli, words, input="n\n")
        assert (no.exit_code, asked_for) == (1, ["GET"])
        assert f"Delete topic://{TOPIC} with its 0 subscriptions, 1 segment" in no.stderr
        yes = CliRunner().invoke(cli, words, input="y\n")
        assert (yes.exit_code, asked_for[-1]) == (0, "DELETE")
        told = ran(*words, "--yes")
    assert (told.exit_code, told.stdout) == (0, f"topic://{TOPIC} is deleted\n")
    assert asked_for == ["GET", "GET", "DELETE", "DELETE"]


def test_a_look_up_without_a_domain_means_a_scalable_topic_and_says_if_there_is_none() -> None:
    owner = dict.fromkeys(("brokerUrl", "brokerUrlTls", "httpUrlTls", "nativeUrl"))
    paths: list[str] = []

    def answer(_verb: str, path: str) -> Answer:
        paths.append(path)
        if path.endswith("/absent"):
            return 404, {}, {"reason": "Scalable topic not found: topic://public/default/absent"}
        if path.startswith("/admin"):
            return 200, {}, _layout()
        if path.endswith("/bundle"):
            return 200, {}, b"0x00000000_0x40000000"
        return 200, {}, {**owner, "httpUrl": "http://b1:8080"}

    with node(answer) as asked:
        assert ran("lookup", TOPIC, "--url", asked).stdout == (
            f"topic://{TOPIC} is served by http://b1:8080 (bundle 0x00000000_0x40000000)\n"
        )
        assert paths[1] == f"/lookup/v2/topic/topic/{TOPIC}"
        gone = ran("lookup", "public/default/absent", "--url", asked)
        assert (gone.exit_code, gone.stdout) == (1, "")
        assert "404: Scalable topic not found: topic://public/default/absent" in gone.stderr
        assert "`anabranch topics create topic://public/default/absent` makes it" in gone.stderr
        assert ran("lookup", "persistent://public/default/absent/", "--url", asked).exit_code == 0
    assert not any(path.startswith("/lookup") and path.endswith("absent") for path in paths)
