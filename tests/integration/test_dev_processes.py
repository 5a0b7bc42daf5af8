import signal
import subprocess
from functools import partial
from pathlib import Path

import httpx
import pytest

from support.channel import until
from support.processes import (
    COMMAND,
    CTRL_C_S_MAX,
    START_S_MAX,
    await_gone,
    dev,
    free_ports,
    run,
)


def look_up(url: str, topic: str) -> str:
    """Asks again while a bundle has no owner: it may have been given to a node that was killed."""
    answers: list[httpx.Response] = []

    def is_found() -> bool:
        path = f"/lookup/v2/topic/persistent/public/default/{topic}"
        answers.append(httpx.get(url + path, timeout=START_S_MAX))
        return answers[-1].status_code not in (503, 504)

    until(is_found, "a bundle has an owner")
    assert answers[-1].status_code == 200, answers[-1].text
    return str(answers[-1].json()["httpUrl"])


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.long)]
)
def test_dev_serves_and_leaves_no_process_however_it_ends(
    how: signal.Signals, tmp_path: Path
) -> None:
    with dev(tmp_path, nodes=2) as running:
        assert "2 nodes" in running.await_line("ready")
        urls = [running.url(number) for number in range(2)]
        assert look_up(urls[0], "t") == look_up(urls[1], "t")
        had = running.end(how)
        assert len(had) >= 4  # two nodes, Kafka, and who watches Kafka
        await_gone(had)
        if how is not signal.SIGKILL:
            assert running.process.returncode == 130, running.text()
            assert "Traceback" not in running.text()


def test_dev_stopped_while_it_starts_leaves_no_process(tmp_path: Path) -> None:
    with dev(tmp_path, nodes=1) as running:
        running.await_line("starting Kafka")
        await_gone(running.end(signal.SIGTERM))
        assert "Traceback" not in running.text()


def test_a_node_without_kafka_says_what_to_check(tmp_path: Path) -> None:
    port = free_ports(2)
    found = run(
        *("node", "--bootstrap-servers", f"127.0.0.1:{port}", "--http-port", str(port + 1)),
        *("--service-port", "0", "--data-dir", str(tmp_path)),
    )
    assert found.returncode == 2
    assert f"Kafka at 127.0.0.1:{port} did not answer" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_node_that_waits_for_kafka_ends_by_a_ctrl_c_and_not_by_its_patience(
    tmp_path: Path,
) -> None:
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests may ignore it
    port, log = free_ports(2), tmp_path / "log"
    words = ("node", "--bootstrap-servers", f"127.0.0.1:{port}", "--http-port", str(port + 1))
    with log.open("wb") as told:
        node = subprocess.Popen(
            [*COMMAND, *words, "--data-dir", str(tmp_path)], stderr=told, preexec_fn=heard
        )
    try:
        until(lambda: "security.open" in log.read_text(), "the node waits for Kafka")
        node.send_signal(signal.SIGINT)
        assert node.wait(CTRL_C_S_MAX) == 130
    finally:
        node.kill()
        node.wait()


def test_dev_is_told_of_a_wrong_setting_before_kafka_is_started(tmp_path: Path) -> None:
    folder = tmp_path / "dev"
    found = run("dev", "--data-dir", str(folder), "--set", "nope=1")
    assert found.returncode == 2
    assert "nope" in found.stderr
    assert not folder.exists()
