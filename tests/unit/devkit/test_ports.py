"""Free ports for servers that are started one after the other."""

from __future__ import annotations

from anabranch.devkit.ports import free_port

HOST = "127.0.0.1"
COUNT = 1_000  # of 20,000: by chance alone some would come again


def test_a_port_that_was_given_out_is_not_given_out_again_soon() -> None:
    assert len({free_port(HOST) for _ in range(COUNT)}) == COUNT
