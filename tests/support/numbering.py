"""A process with a producer's name: `numbering.py URL TOPIC FILE COUNT NAME`.

It sends numbers up to COUNT from where its predecessor stopped, and notes those that are stored.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from anabranch.client import Client, ClientError, DeliveryResult

PADDING = b" " * 500  # so that a process that stands still has something on its way


def key_of(number: int) -> bytes:
    return b"key-%d" % (number % 50)


async def main(url: str, topic: str, file: str, count: int, name: str) -> None:
    with Path(file).open("ab", buffering=0) as history:  # noqa: ASYNC230 - it takes no time
        async with Client(url) as client:
            producer = await client.create_producer(topic, name=name, deduplicate=True)
            history.write(b"from %d\n" % producer.sequence)
            for number in range(producer.sequence + 1, count):

                def told(
                    _: DeliveryResult | None, error: Exception | None, number: int = number
                ) -> None:
                    if error is None:
                        history.write(b"%d\n" % number)

                value = b"%d" % number + PADDING
                await producer.post(value, key_of(number), sequence=number, on_delivery=told)
            await producer.close()


if __name__ == "__main__":
    url, topic, file, count, name = sys.argv[1:]
    try:
        asyncio.run(main(url, topic, file, int(count), name))
    except ClientError as error:
        sys.stdout.write(f"{type(error).__name__}\n")
