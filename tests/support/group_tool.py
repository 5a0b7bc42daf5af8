"""Kafka's own `kafka-consumer-groups.sh`, run from its jars."""

from __future__ import annotations

import asyncio
import os

from anabranch.jars.cache import resolve
from anabranch.jars.java import find_java
from support.waiting import WAIT_S

_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


async def group_tool(servers: str, *arguments: str) -> str:
    """What it prints once it has done as it was told."""
    jars = os.pathsep.join(str(jar) for jar in (*resolve("tools"), *resolve("kafka")))
    process = await asyncio.create_subprocess_exec(
        *(find_java(), "-XX:TieredStopAtLevel=1", "-cp", jars, _COMMAND),
        *("--bootstrap-server", servers, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        told, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
    finally:
        if process.returncode is None:
            process.kill()
    said = told.decode(errors="replace")
    assert process.returncode == 0, said
    return said
