"""The commands of scalable topics against real nodes: in this process, but for an interruption."""

import itertools
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from support.channel import until
from support.commands import run_here
from support.processes import COMMAND, START_S_MAX, STOP_S_MAX
from support.topic_cluster import TopicCluster


class Topics:
    """`anabranch topics`, asking each node in turn: one of them sends most requests on."""

    def __init__(self, cluster: TopicCluster, folder: Path) -> None:
        self._nodes = itertools.cycle(cluster.nodes)
        self._lines = folder / "lines"

    def run(self, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """`said`: the lines to produce."""
        self._lines.write_text(said)
        file = ("--file", str(self._lines)) if said else ()
        return run_here("topics", *arguments, "--url", next(self._nodes).url, *file)

    def __call__(self, *arguments: str, said: str = "") -> str:
        found = self.run(*arguments, said=said)
        assert found.returncode == 0, found.stderr
        return found.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def refused(self, *arguments: str, said: str = "") -> str:
        found = self.run(*arguments, said=said)
        assert (found.returncode, found.stdout) == (1, "")
        assert len(found.stderr.splitlines()) == 1
        return found.stderr


@pytest.fixture(scope="module")
def topics(cluster: TopicCluster, tmp_path_factory: pytest.TempPathFactory) -> Topics:
    return Topics(cluster, tmp_path_factory.mktemp("topics"))


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
    assert topics.json("show", name)["segments"]["0"]["endOffsets"] == [0, 0, 0, 0]


def test_prepare_says_which_segments_are_new_and_which_were_replaced(topics: Topics) -> None:
    name = "public/default/prepared"
    topics("create", name)
    full = f"topic://{name}"
    assert topics("prepare", name, "--segments", "2") == (
        f"{full} has 2 active segments: 1 [0000-7fff], 2 [8000-ffff]\n"
    )
    assert topics("prepare", name, "--segments", "2") == (
        f"{full} has 2 active segments: nothing to do\n"
    )
    found = topics.json("prepare", name, "--segments", "1", "--buckets", "3")
    assert (found["parents"], [part["parentIds"] for part in found["children"]]) == (
        [1, 2],
        [[1, 2]],
    )
    many = topics("prepare", name, "--segments", "12")
    assert many.endswith("and 2 more\n")


def test_a_subscription_is_put_elsewhere_and_says_what_it_has_yet_to_read(topics: Topics) -> None:
    name = "public/default/sought"
    topics("create", name)
    topics("subscriptions", "create", name, "billing")
    topics("subscriptions", "create", name, "pool", "--type", "queue")
    topics("produce", name, said="".join(f"k\t{number}\n" for number in range(5)))

    def backlog() -> Any:
        return topics.json("subscriptions", "list", name)["billing"]["msgBacklog"]

    full = f"topic://{name}"

    def peeked(*how: str) -> list[str]:
        return [line.split("\t")[2] for line in topics("peek", name, *how).splitlines()]

    # Of a Kafka that does not answer in time, nothing is shown.
    until(lambda: peeked("--from", "earliest", "--max", "2") == ["0", "1"], "the first are shown")
    until(lambda: peeked("--max", "1") == ["4"], "the last one is shown")
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
    rows = [line.split()[:4] for line in topics("stats", name).splitlines()]
    assert ["billing", "STREAM", "0", "5"] in rows
    assert ["pool", "QUEUE", "0", "5"] in rows
    said = topics("subscriptions", "skip-all", name, "pool")
    assert said == f"subscription pool of {full} has nothing left to read\n"
    assert topics.json("subscriptions", "list", name)["pool"]["msgBacklog"] == 0
    letters = ("subscriptions", "dead-letters")
    assert "412" in topics.refused(*letters, "set", name, "billing", "--deliveries", "3")
    aside = f"topic://{name}-billing-DLQ"
    said = topics(*letters, "set", name, "billing")
    assert said == f"messages that subscription billing of {full} could not process go to {aside}\n"
    aside = f"{full}-pool-DLQ"
    said = f"messages that subscription pool of {full} was given 3 times in vain go to {aside}\n"
    assert topics(*letters, "set", name, "pool", "--deliveries", "3") == said
    assert topics.json(*letters, "show", name, "pool")["deadLetterTopic"] == aside
    none = f"subscription pool of {full} has no dead letters\n"
    assert (
        topics(*letters, "remove", name, "pool") == none == topics(*letters, "show", name, "pool")
    )
    assert "404" in topics.refused("subscriptions", "seek", name, "nobodys", "--to", "latest")


def test_the_log_tells_topics_in_words(cluster: TopicCluster, topics: Topics) -> None:
    name = "public/default/logged"
    topics("create", name)
    topics("split", name, "0")
    log = ("--bootstrap-servers", cluster.kafka, "--set", f"topicPrefix={cluster.prefix}")
    told = run_here("log", "tail", *log, "--no-follow").stdout
    assert f"CREATE topic:{name} 0000-ffff-0  (" in told
    assert f"BEGIN topic:{name} SPLIT 0 into 0000-7fff-1, 8000-ffff-2  (" in told
    assert f"COMMIT topic:{name} with end offsets 0,0,0,0  (" in told


def test_what_consume_prints_as_json_is_produced_as_it_was(topics: Topics) -> None:
    name = "public/default/copied"
    topics("create", name)
    exact = {
        "key": "eve",
        "value": None,
        "headers": [["none", None], ["empty", ""], ["raw", "\ufffd", "/w=="]],
        "eventTimeMs": round(time.time() * 1_000) - 60_000,
    }
    given = json.dumps(exact)
    for turn in ("one", "two"):
        assert topics("produce", name, "--from-json", said=given) == "sent 1 message\n"
        given = topics("consume", name, "--subscription", "s", "--max", "1", "--json")
        assert json.loads(given).items() >= exact.items(), turn


def test_a_consumer_ends_cleanly_when_interrupted(
    cluster: TopicCluster, topics: Topics, tmp_path: Path
) -> None:
    name = "public/default/interrupted"
    topics("create", name)
    topics("produce", name, said="k\t1\n")
    output = tmp_path / "out"
    consume = ("topics", "consume", name, "--subscription", "s", "--url", cluster.nodes[1].url)
    with output.open("wb") as out:
        running = subprocess.Popen([*COMMAND, *consume], stdout=out, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + START_S_MAX
            while not output.read_text().endswith("\n"):
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.05)
            running.send_signal(signal.SIGINT)
            assert running.wait(STOP_S_MAX) == 130
        finally:
            running.kill()
            running.wait()
    assert output.read_text().split("\t")[1:] == ["k", "1\n"]
    topics("produce", name, said="k\t2\n")
    assert topics("consume", name, "--subscription", "s", "--max", "1").endswith("k\t2\n")
