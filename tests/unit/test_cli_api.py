"""How the commands ask nodes, with nodes that say what the test wants."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from anabranch.broker.cli.api import Api, UnreachableError
from anabranch.broker.cli.main import cli
from anabranch.core.errors import InvalidInputError
from support.answering import Answer, node
from support.nobody import nobody

TOPIC = "public/default/orders"


def sent_on(url: str) -> Callable[[str, str], Answer]:
    return lambda _verb, path: (307, {"Location": url + path}, None)


def ran(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, words, env={"ANABRANCH_URL": None, **environment})


def _segments(*children: int) -> dict[str, object]:
    ring = {"start": 0, "end": 0xFFFF}
    parent = {"segmentId": 0, "hashRange": ring, "childIds": list(children)}
    return {
        "0": parent,
        **{str(n): {"segmentId": n, "hashRange": ring, "childIds": []} for n in children},
    }


def _scaling(*, enabled: bool, fault: str = "") -> Answer:
    policy = {"enabled": {"value": enabled, "level": "broker"}}
    return 200, {}, {"autoScale": {"policy": policy, "fault": fault}}


def test_what_came_of_a_split_is_asked_of_the_node_that_did_it() -> None:
    def controller(verb: str, path: str) -> Answer:
        if path.endswith("/stats"):
            return _scaling(enabled=False)
        return (200, {}, {"segments": _segments(1, 2)}) if verb == "GET" else (204, {}, None)

    with node(controller) as did:

        def behind(verb: str, path: str) -> Answer:
            if verb == "GET":
                return 200, {}, {"segments": _segments()}
            return sent_on(did)(verb, path)

        with node(behind) as asked:
            said = ran("topics", "split", TOPIC, "0", "--url", asked)
            shown = ran("topics", "split", TOPIC, "0", "--url", asked, "--json")
    assert said.output == "segment 0 is split: 1 [0000-ffff], 2 [0000-ffff]\n"
    found = json.loads(shown.output)
    assert found["parents"] == [0]
    assert [child["segmentId"] for child in found["children"]] == [1, 2]


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
def test_who_makes_segments_by_hand_is_told_where_auto_scaling_may_change_them(
    stats: Answer, hinted: bool
) -> None:
    def answer(verb: str, path: str) -> Answer:
        if path.endswith("/stats"):
            return stats
        return (200, {}, {"segments": _segments(1, 2)}) if verb == "GET" else (204, {}, None)

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
    with nobody() as gone, pytest.raises(UnreachableError, match=f"{gone} .*or ANABRANCH_URL"):
        CliRunner().invoke(cli, ("brokers",), env={"ANABRANCH_URL": gone}, catch_exceptions=False)
    assert "env var: ANABRANCH_URL; default: http://127.0.0.1:8080" in " ".join(
        ran("brokers", "--help").stdout.split()
    )


def test_a_subscription_is_created_or_was_there_and_one_of_another_type_is_refused() -> None:
    there: dict[str, object] = {}

    def answer(verb: str, path: str) -> Answer:
        if verb == "GET":
            return 200, {}, {"subscriptions": there}
        there.setdefault("billing", {"type": path.rpartition("=")[2]})
        return 204, {}, None

    with node(answer) as asked:
        words = ("topics", "subscriptions", "create", TOPIC, "billing", "--url", asked, "--type")
        said = [ran(*words, kind) for kind in ("stream", "stream", "queue")]
    full = f"subscription billing of topic://{TOPIC}"
    assert [each.output for each in said[:2]] == [f"{full} is created\n", f"{full} was there\n"]
    assert (said[2].exit_code, "with the type stream" in said[2].output) == (1, True)
    assert "delete it first" in said[2].output


def test_a_node_that_is_gone_and_was_not_named_is_said_to_be_in_charge() -> None:
    with nobody() as address:
        gone = f"http://{address}"
        with node(sent_on(gone)) as asked, pytest.raises(UnreachableError) as refused:
            Api(asked).send("POST", "/admin/v2/anything")
    assert str(refused.value).startswith(f"{gone} is in charge of this by the log")
    assert "try again" in str(refused.value)
    assert "start one" not in str(refused.value)


def test_an_address_may_leave_out_its_scheme_and_have_no_other() -> None:
    with node(lambda _verb, _path: (200, {}, {"here": 1})) as asked:
        assert Api(asked.removeprefix("http://") + "/").get("/") == {"here": 1}
    for wrong in ("pulsar://localhost:6650", "", "http://"):
        with pytest.raises(InvalidInputError, match=r"http://host:port.*webServicePort"):
            Api(wrong)


def test_a_port_that_does_not_speak_http_is_said_to_be_the_wrong_one() -> None:
    def hang_up(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            server.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        closing = threading.Thread(target=hang_up, args=(server,))
        closing.start()
        with pytest.raises(UnreachableError, match=r"does not speak HTTP.*webServicePort"):
            Api(f"http://127.0.0.1:{server.getsockname()[1]}").get("/")
        closing.join()
