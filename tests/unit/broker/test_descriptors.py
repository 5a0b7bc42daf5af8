"""File descriptors: connections leave some for Kafka, and a want of them is called by its name."""

from __future__ import annotations

import resource

import pytest

from anabranch.broker.errors import StartError
from anabranch.broker.node.process import RESERVED, fitted
from anabranch.broker.settings import load_settings
from anabranch.channel.kafka.connection import KafkaConnection


def test_the_settings_stay_as_they_are_where_there_are_enough() -> None:
    settings = load_settings(None, {}, {})
    assert fitted(settings, RESERVED + 2_048 + 10_000) is settings


def test_both_ports_get_a_share_of_what_there_is() -> None:
    settings = load_settings(
        None, {}, {"maxHttpServerConnections": 1_000, "brokerMaxConnections": 3_000}
    )
    found = fitted(settings, RESERVED + 2_000)
    assert (found.max_http_server_connections, found.broker_max_connections) == (500, 1_500)
    assert found.http_limits.connections_max == 500
    assert found.wire_limits.account.connections == 1_500


@pytest.mark.parametrize("most", [3, RESERVED, RESERVED + 20])
def test_a_node_that_could_serve_nobody_does_not_start_and_says_why(most: int) -> None:
    with pytest.raises(StartError, match=f"{most} file descriptors.*ulimit -n"):
        fitted(load_settings(None, {}, {}), most)


def test_without_descriptors_kafka_is_not_said_to_be_silent() -> None:
    connection = KafkaConnection("127.0.0.1:1")
    admin = connection.admin()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # those above stay open
    try:
        while not connection.refusals.starved:
            admin.poll(0.1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    said = str(connection.unreachable("reading the log"))
    assert "no file descriptor left to ask Kafka with (reading the log)" in said
    assert "did not answer" not in said
    assert "did not answer" in str(KafkaConnection("127.0.0.1:1").unreachable("x"))
