"""What is open does not come along to a forked child, nor to another event loop; real Kafka."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.topic_cluster import TopicCluster

_PROGRAM_S_MAX = 120


@pytest.mark.parametrize("way", ["fork", "multiprocessing", "second_run"])
def test_each_call_is_refused_with_what_to_do_and_the_parent_goes_on(
    cluster: TopicCluster, topic: str, way: str
) -> None:
    where = (cluster.url, cluster.nodes[0].url, f"topic://{topic}")
    program = subprocess.run(
        [sys.executable, "-m", "support.forking", way, *where],
        capture_output=True,
        text=True,
        timeout=_PROGRAM_S_MAX,
        cwd="tests",
    )
    assert program.stdout.split("\n") == ["refused", "unharmed", ""], program.stderr
