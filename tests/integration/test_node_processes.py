import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.channel.kafka.topics import Topics
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import NodeProcess, await_ready, stop_all
from anabranch.devkit.ports import free_port
from support.channel import archive_to
from support.kafka_cluster import EVENLY, TIMES, first_offset
from support.waiting import WAIT_S, await_

HOST = "127.0.0.1"
STATUS = "/admin/v2/brokers/status"
BROKERS = "/admin/v2/brokers/standalone"
TOPICS = 60

Start = Callable[..., NodeProcess]


@pytest.fixture
def start(kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path) -> Iterator[Start]:
    """Starts node processes, on one topic prefix; ends those that still run."""
    started: list[NodeProcess] = []

    def node(*settings: str) -> NodeProcess:
        number = free_port(HOST)
        process = NodeProcess(
            f"node-{number}",
            number,
            kafka.bootstrap_servers,
            tmp_path,
            f"topicPrefix={topic_prefix}",
            *(f"{name}={value}" for name, value in (TIMES | EVENLY).items()),
            *settings,
        )
        process.start()
        started.append(process)
        return process

    yield node
    stop_all(started)


def ask(node: NodeProcess, path: str, method: str = "GET") -> Any:
    """Asks until there is an answer: there may be no owner, or no leader, for a moment."""
    request = urllib.request.Request(f"{node.url}{path}", method=method)
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            if time.monotonic() > deadline:
                raise AssertionError(f"{path}: {error}") from None
            time.sleep(0.05)
        else:
            return json.loads(body) if body else None


def owners(node: NodeProcess) -> dict[str, str]:
    """The broker of each topic, by look-ups at this node."""
    found = {}
    for number in range(TOPICS):
        data = ask(node, f"/lookup/v2/topic/persistent/public/default/t{number}")
        found[f"t{number}"] = data["httpUrl"].removeprefix("http://")
    return found


def leader(node: NodeProcess) -> str:
    return str(ask(node, "/admin/v2/brokers/leaderBroker")["brokerId"])


def agreed(nodes: list[NodeProcess]) -> None:
    """Waits until all know each other and one leader."""
    ids = {node.broker_id for node in nodes}
    for node in nodes:
        await_(lambda node=node: set(ask(node, "/admin/v2/brokers/standalone")) == ids)  # type: ignore[misc]
        await_(lambda node=node: leader(node) in ids)  # type: ignore[misc]


def test_sigterm_hands_everything_over_and_ends_with_status_0(start: Start) -> None:
    nodes = [start() for _ in range(2)]
    await_ready(nodes)
    agreed(nodes)
    owners(nodes[0])
    nodes[0].terminate()
    assert nodes[0].wait(WAIT_S)
    assert nodes[0].exit_status == 0
    assert set(owners(nodes[1]).values()) == {nodes[1].broker_id}


@pytest.mark.long
def test_a_node_that_slept_while_the_log_was_trimmed_builds_its_view_anew(
    start: Start, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    awake = start("snapshotIntervalSeconds=0.3")
    await_ready([awake])
    sleeper = start()
    await_ready([sleeper])
    agreed([awake, sleeper])
    owners(sleeper)
    assert sleeper.pid is not None
    os.kill(sleeper.pid, signal.SIGSTOP)
    try:
        slept_at = ask(awake, STATUS)["nextOffset"]
        await_(lambda: ask(awake, BROKERS) == [awake.broker_id])
        # All of them again, so that the log goes on without the sleeper.
        await_(lambda: set(owners(awake).values()) == {awake.broker_id})
        archive_to(kafka, Topics(topic_prefix), ask(awake, STATUS)["nextOffset"])
        ask(awake, "/admin/v2/namespaces/public/default/unload", "PUT")
        await_(lambda: first_offset(kafka, topic_prefix) > slept_at + 1)
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
    agreed([awake, sleeper])
    assert owners(sleeper) == owners(awake)
    await_(lambda: ask(sleeper, STATUS)["digest"] == ask(awake, STATUS)["digest"])
    assert "view.too_old" in sleeper.log_file.read_text()
