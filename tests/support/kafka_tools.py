"""Kafka's own command-line tools, which its scripts run."""

from __future__ import annotations

import asyncio
import os

from anabranch.jars.cache import resolve
from anabranch.jars.java import find_java
from support.waiting import WAIT_S


def kafka_tool(class_name: str) -> list[str]:
    """The words of a command, before its own arguments."""
    jars = os.pathsep.join(str(jar) for jar in (*resolve("tools"), *resolve("kafka")))
    return [str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", jars, class_name]


async def group_tool(servers: str, *arguments: str) -> str:
    """What it prints once it has done as it was told."""
    process = await asyncio.create_subprocess_exec(
        *kafka_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
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
