"""The commands of scalable topics against a cluster of real node processes."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes import COMMAND, START_S_MAX, STOP_S_MAX, Dev, dev, free_ports, run

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with dev(tmp_path_factory.mktemp("topics"), nodes=2) as running:
        running.await_line("ready")
        yield running


class Topics:
    """`anabranch topics`, asking each node in turn: one of them sends most requests on."""

    def __init__(self, cluster: Dev) -> None:
        self._cluster = cluster
        self._turn = 0

    def url(self) -> str:
        self._turn += 1
        return self._cluster.url(self._turn % 2)

    def __call__(self, *arguments: str) -> str:
        found = run("topics", *arguments, "--url", self.url())
        assert found.returncode == 0, found.stderr
        return found.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def refused(self, *arguments: str) -> str:
        found = run("topics", *arguments, "--url", self.url())
        assert (found.returncode, found.stdout) == (1, "")
        assert "Traceback" not in found.stderr
        assert len(found.stderr.splitlines()) == 1
        return found.stderr


@pytest.fixture(scope="module")
def topics(cluster: Dev) -> Topics:
    return Topics(cluster)


def test_a_topic_is_created_listed_shown_and_deleted_through_any_node(topics: Topics) -> None:
    name = "public/default/listed"
    said = topics("create", name, "--segments", "3", "--property", "team=shop")
    assert said == f"topic://{name} is created, with 3 segments\n"
    full = f"topic://{name}"
    assert full in topics("list").splitlines()
    assert topics.json("list", "--property", "team=shop") == [full]
    assert topics.json("list", "--property", "team=other") == []
    assert topics.json("show", full)["properties"] == {"team": "shop"}
    assert "team=shop" in topics("show", name)
    assert topics("delete", name, "--yes") == f"{full} is deleted\n"
    assert full not in topics("list").splitlines()
    assert "404" in topics.refused("show", name)


def test_split_merge_and_rebucket_say_what_came_of_them_and_show_draws_it(topics: Topics) -> None:
    name = "public/default/shaped"
    topics("create", name)
    assert topics("split", name, "0") == "segment 0 is split: 1 [0000-7fff], 2 [8000-ffff]\n"
    assert topics("split", name, "2").endswith("3 [8000-bfff], 4 [c000-ffff]\n")
    assert topics("merge", name, "3", "1") == "segments 3 and 1 are merged: 5 [0000-bfff]\n"
    assert topics("rebucket", name, "4", "3") == "segment 4 is replaced: 6 [c000-ffff]\n"
    lines = topics("show", name).splitlines()
    assert lines[0] == f"topic://{name}: epoch 4, 2 active segments, 5 sealed"
    assert max(map(len, lines)) <= 80
    foot = next(line for line in lines if line.startswith("  now  ╘"))
    assert (foot.count("╧"), foot[-1]) == (1, "╛")
    assert [line.split() for line in lines[-2:]] == [
        ["5", "0000-bfff", "ACTIVE", "3-", "3,1", "-", "3", "-"],
        ["6", "c000-ffff", "ACTIVE", "4-", "4", "-", "3", "-"],
    ]
    layout = topics.json("show", name)
    assert layout["segments"]["0"]["endOffsets"] == [0, 0, 0, 0]


def test_stats_name_the_kafka_topics_and_the_subscriptions(topics: Topics) -> None:
    name = "public/default/counted"
    topics("create", name)
    topics("subscriptions", "create", name, "billing", "--type", "queue")
    topics("split", name, "0")
    found = topics.json("stats", name)
    assert (found["activeSegments"], found["sealedSegments"]) == (2, 1)
    assert found["subscriptions"]["billing"]["type"] == "QUEUE"
    text = topics("stats", name)
    for segment in found["segments"].values():
        assert segment["kafkaTopic"] in text
    assert "billing" in text
    topics("subscriptions", "delete", name, "billing")
    assert topics.json("stats", name)["subscriptions"] == {}


def test_a_subscription_is_put_elsewhere_and_says_what_it_has_yet_to_read(
    topics: Topics, cluster: Dev
) -> None:
    name = "public/default/sought"
    topics("create", name)
    topics("subscriptions", "create", name, "billing")
    topics("subscriptions", "create", name, "pool", "--type", "queue")
    produce(cluster, name, "".join(f"k\t{number}\n" for number in range(5)))

    def backlog() -> Any:
        return topics.json("subscriptions", "list", name)["billing"]["msgBacklog"]

    full = f"topic://{name}"
    peeked = topics("peek", name, "--from", "earliest", "--max", "2").splitlines()
    assert [line.split("\t")[1:] for line in peeked] == [["k", "0"], ["k", "1"]]
    assert topics("peek", name, "--max", "1").endswith("\tk\t4\n")
    assert set(topics.json("subscriptions", "list", name)) == {"billing", "pool"}
    said = topics("subscriptions", "skip-all", name, "billing")
    assert said == f"subscription billing of {full} has nothing left to read\n"
    assert backlog() == 0
    said = topics("subscriptions", "seek", name, "billing", "--to", "2020-01-01T00:00:00Z")
    assert said == f"subscription billing of {full} goes on at 2020-01-01T00:00:00Z\n"
    assert backlog() == 5
    topics("subscriptions", "seek", name, "billing", "--to", "latest")
    assert backlog() == 0
    topics("subscriptions", "seek", name, "billing", "--to", "earliest")
    text = topics("stats", name)
    rows = [line.split()[:4] for line in text.splitlines()]
    assert ["billing", "STREAM", "0", "5"] in rows
    assert ["pool", "QUEUE", "0", "5"] in rows
    said = topics("subscriptions", "skip-all", name, "pool")
    assert said == f"subscription pool of {full} has nothing left to read\n"
    assert topics.json("subscriptions", "list", name)["pool"]["msgBacklog"] == 0
    letters = ("subscriptions", "dead-letters")
    assert "412" in topics.refused(*letters, "set", name, "billing")
    aside = f"{full}-pool-DLQ"
    said = f"what subscription pool of {full} was given 3 times in vain goes to {aside}\n"
    assert topics(*letters, "set", name, "pool", "--deliveries", "3") == said
    assert topics.json(*letters, "show", name, "pool")["deadLetterTopic"] == aside
    none = f"subscription pool of {full} has no dead letters\n"
    assert (
        topics(*letters, "remove", name, "pool") == none == topics(*letters, "show", name, "pool")
    )
    assert "404" in topics.refused("subscriptions", "seek", name, "nobodys", "--to", "latest")


def test_properties_are_shown_after_they_are_changed(topics: Topics) -> None:
    name = "public/default/described"
    topics("create", name, "--property", "team=shop")
    assert topics("properties", name) == "team=shop\n"
    said = topics("properties", name, "--set", "tier=1", "--set", "a=b=c", "--remove", "team")
    assert said == "a=b=c\ntier=1\n"
    assert topics.json("properties", name) == {"a": "b=c", "tier": "1"}


def test_what_a_node_refuses_is_one_line_with_its_reason_and_status_1(topics: Topics) -> None:
    name = "public/default/refusing"
    topics("create", name, "--segments", "4")
    topics("split", name, "0")
    assert "409: Scalable topic already exists" in topics.refused("create", name)
    assert "numInitialSegments" in topics.refused(
        "create", "public/default/none", "--segments", "0"
    )
    assert "404: Segment not found: 99" in topics.refused("split", name, "99")
    assert "412: Cannot split non-active segment: 0" in topics.refused("split", name, "0")
    assert "not adjacent" in topics.refused("merge", name, "1", "3")
    assert "must be active" in topics.refused("merge", name, "0", "1")
    assert "bucketCount must be in" in topics.refused("rebucket", name, "1", "2000")
    assert "404" in topics.refused("split", "public/default/nowhere", "0")
    assert "404: Namespace nobody/default does not exist" in topics.refused(
        "list", "nobody/default"
    )
    assert "404" in topics.refused("subscriptions", "delete", name, "nobodys")


def test_the_log_tells_topics_in_words(cluster: Dev, topics: Topics) -> None:
    name = "public/default/logged"
    topics("create", name)
    topics("split", name, "0")
    kafka = ("--bootstrap-servers", cluster.kafka)
    told = run("log", "tail", *kafka, "--no-follow").stdout
    assert f"CREATE topic:{name} 0000-ffff-0  (" in told
    assert f"BEGIN topic:{name} SPLIT 0 into 0000-7fff-1, 8000-ffff-2  (" in told
    assert f"COMMIT topic:{name} with end offsets 0,0,0,0  (" in told
    entries = [
        json.loads(line)
        for line in run("log", "tail", *kafka, "--no-follow", "--json").stdout.splitlines()
    ]
    begun = next(
        entry["record"]
        for entry in entries
        if entry["key"] == f"topic:{name}" and entry["record"]["move"] == "BEGIN"
    )
    assert [part["state"] for part in begun["segments"]] == ["ACTIVE", "ACTIVE"]
    assert begun["operation"] == "SPLIT"


def produce(cluster: Dev, name: str, lines: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "topics", "produce", name, "--url", cluster.url(0), *more],
        input=lines,
        capture_output=True,
        text=True,
        timeout=START_S_MAX,
        check=False,
    )


def test_lines_are_produced_with_keys_headers_and_their_places(
    cluster: Dev, topics: Topics
) -> None:
    name = "public/default/produced"
    topics("create", name, "--segments", "2")
    told = produce(cluster, name, "eve\tone\nbob\ttwo\nthree\neve\tfour", "--verbose")
    assert told.returncode == 0, told.stderr
    assert sorted(line.split("  ")[1] for line in told.stdout.splitlines()) == [
        *("-", "bob", "eve", "eve"),
    ]
    told = produce(cluster, name, "a\tb\n", "--key", "eve", "--header", "x=y")
    assert told.stdout == "sent 1 message\n"
    found = topics("consume", name, "--subscription", "s", "--max", "5", "--json")
    messages = [json.loads(line) for line in found.splitlines()]
    of_eve = [message["value"] for message in messages if message["key"] == "eve"]
    assert of_eve == ["one", "four", "a\tb"]
    assert {message["value"] for message in messages if message["key"] is None} == {"three"}
    (headed,) = (message for message in messages if message["headers"])
    assert headed["headers"] == [["x", "y"]]


def test_a_line_too_large_is_told_by_its_number_and_the_others_are_sent(
    cluster: Dev, topics: Topics
) -> None:
    name = "public/default/large"
    topics("create", name)
    told = produce(cluster, name, f"a\n{'x' * 2_000_000}\nb\n")
    assert (told.returncode, told.stdout) == (1, "sent 2 messages\n")
    assert told.stderr.startswith("anabranch: line 2: a message of 2000256 bytes")
    assert len(told.stderr.splitlines()) == 1


def test_who_consumes_goes_on_where_the_last_one_ended_also_after_a_split(
    cluster: Dev, topics: Topics
) -> None:
    name = "public/default/continued"
    topics("create", name)
    keys = [f"k{number % 7}" for number in range(40)]
    lines = [f"{key}\t{number}\n" for number, key in enumerate(keys)]
    produce(cluster, name, "".join(lines[:20]))
    consume = ("consume", name, "--subscription", "s")
    first = topics(*consume, "--max", "15").splitlines()
    topics("split", name, "0")
    produce(cluster, name, "".join(lines[20:]))
    second = topics(*consume, "--max", "25").splitlines()
    found: dict[str, list[int]] = {}
    for line in first + second:
        _, key, value = line.split("\t")
        found.setdefault(key, []).append(int(value))
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(40))
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert {line.split("/")[0] for line in second} == {"0", "1", "2"}


def test_who_consumes_what_is_there_and_waits_for_no_more_has_a_status_of_its_own(
    cluster: Dev, topics: Topics
) -> None:
    name = "public/default/quiet"
    topics("create", name)
    produce(cluster, name, "k\t1\nk\t2\n")
    consume = ("consume", name, "--subscription", "s")
    assert len(topics(*consume, "--max", "2").splitlines()) == 2
    found = run("topics", *consume, "--timeout", "1", "--url", topics.url())
    assert (found.returncode, found.stdout) == (3, "")
    assert found.stderr == f"anabranch: no message of {name} came in 1 s\n"


def test_who_makes_segments_by_hand_is_told_of_auto_scaling_unless_it_is_off(
    topics: Topics,
) -> None:
    name = "public/default/hinted"
    made = run("topics", "create", name, "--url", topics.url())
    off = f"policy set {name} enabled=false"
    assert (made.returncode, off in made.stderr) == (0, True)
    assert run(*off.split(), "--url", topics.url()).returncode == 0
    split = run("topics", "split", name, "0", "--url", topics.url())
    assert (split.returncode, split.stderr) == (0, "")


def test_a_checkpoint_file_holds_the_place_for_the_next_run(
    cluster: Dev, topics: Topics, tmp_path: Path
) -> None:
    name = "public/default/kept"
    topics("create", name)
    produce(cluster, name, "".join(f"k\t{number}\n" for number in range(10)))
    file = tmp_path / "positions.json"
    consume = ("consume", name, "--subscription", "c", "--type", "checkpoint")
    runs = [topics(*consume, "--checkpoint", str(file), "--max", "5") for _ in range(2)]
    values = [line.split("\t")[2] for line in "".join(runs).splitlines()]
    assert values == [str(number) for number in range(10)]
    assert json.loads(file.read_text())["positions"]


def test_a_queue_gives_each_message_to_whoever_comes(cluster: Dev, topics: Topics) -> None:
    name = "public/default/queued"
    topics("create", name, "--segments", "2")
    topics("subscriptions", "create", name, "jobs", "--type", "queue")
    produce(cluster, name, "".join(f"k{number}\t{number}\n" for number in range(10)))
    consume = ("consume", name, "--subscription", "jobs", "--type", "queue", "--max", "5")
    runs = topics(*consume) + topics(*consume)
    values = sorted(int(line.split("\t")[2]) for line in runs.splitlines())
    assert values == list(range(10))
    assert "is of type QUEUE" in topics.refused(
        "consume", name, "--subscription", "jobs", "--type", "stream"
    )


def test_a_consumer_ends_cleanly_when_interrupted(
    cluster: Dev, topics: Topics, tmp_path: Path
) -> None:
    name = "public/default/interrupted"
    topics("create", name)
    produce(cluster, name, "k\t1\n")
    output = tmp_path / "out"
    with output.open("wb") as out:
        running = subprocess.Popen(
            [
                *(*COMMAND, "topics", "consume", name, "--subscription", "s"),
                *("--url", cluster.url(1)),
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + START_S_MAX
            while not output.read_text().endswith("\n"):
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.05)
            running.send_signal(signal.SIGINT)
            assert running.wait(STOP_S_MAX) == 0
        finally:
            running.kill()
            running.wait()
    assert output.read_text().split("\t")[1:] == ["k", "1\n"]
    produce(cluster, name, "k\t2\n")
    assert topics("consume", name, "--subscription", "s", "--max", "1").endswith("k\t2\n")


def test_a_topic_that_is_not_there_and_a_node_that_is_down_are_told_in_a_line(
    cluster: Dev, topics: Topics
) -> None:
    told = produce(cluster, "public/default/nowhere", "x\n")
    assert (told.returncode, told.stdout) == (1, "")
    missing = "Scalable topic not found: topic://public/default/nowhere; create it first\n"
    assert told.stderr == f"anabranch: {missing}"
    assert missing in topics.refused("consume", "public/default/nowhere", "--subscription", "s")
    port = free_ports(1)
    told = produce(
        cluster, "public/default/x", "x\n", "--service-url", f"pulsar://127.0.0.1:{port}"
    )
    assert told.returncode == 2
    assert f"no node of pulsar://127.0.0.1:{port} answers" in told.stderr
