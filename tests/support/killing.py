"""A process whose handler ends it at the message of one key: `killing.py URL TOPIC FILE`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from anabranch.client import Client, DeadLetterPolicy, Message, Retry, Work

SUBSCRIPTION = "killed"
KILLER = b"killer"


async def main(url: str, topic: str, file: str) -> None:
    """Notes the keys of what is done, until it ends by itself or is killed."""

    async def handle(message: Message, _: Work) -> None:
        if message.key == KILLER:
            os.kill(os.getpid(), signal.SIGKILL)
        history.write(message.key + b"\n")

    with Path(file).open("ab", buffering=0) as history:  # noqa: ASYNC230 - it takes no time
        async with Client(url) as client:
            policy = DeadLetterPolicy()
            consumer = await client.subscribe(topic, SUBSCRIPTION, "worker", dead_letter=policy)
            await consumer.run(handle, retry=Retry(then="dead_letter"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
