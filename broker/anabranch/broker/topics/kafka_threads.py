"""`KafkaThreads`: threads that ask Kafka, since its clients block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from confluent_kafka import KafkaException

from anabranch.broker.errors import KafkaFailedError, UnavailableError
from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError

_T = TypeVar("_T")


class _Closable(Protocol):
    def close(self) -> None: ...


_KeeperT = TypeVar("_KeeperT", bound=_Closable)


class KafkaThreads(Generic[_KeeperT]):
    """Some threads and their bounded queue. Each uses one keeper at a time, which it opens itself.

    `what`: what is asked, in the plural. A thread starts with the first job.
    """

    def __init__(
        self, what: str, open_keeper: Callable[[], _KeeperT], jobs_max: int, threads: int = 1
    ) -> None:
        self._full = f"{jobs_max} {what} wait already; try again later"
        self._open = open_keeper
        self._idle: list[_KeeperT] = []
        self._threads = ThreadPoolExecutor(threads, what)
        self._room = threading.Semaphore(jobs_max)

    def submit(self, job: Callable[[_KeeperT], _T]) -> Future[_T]:
        """Has a thread do the job. Raises UnavailableError if too many wait, and after `close`."""
        if not self._room.acquire(blocking=False):
            raise UnavailableError(self._full)
        try:
            future = self._threads.submit(self._done, job)
        except RuntimeError:
            self._room.release()
            raise UnavailableError(
                "this node is stopping, or has no thread to spare; ask another one"
            ) from None
        future.add_done_callback(lambda _: self._room.release())
        return future

    def abandon(self) -> None:
        """Drops jobs that have not begun, and begins none any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Stops and waits for jobs that have begun, each until its deadline; never in the loop."""
        self._threads.shutdown(cancel_futures=True)
        for keeper in self._idle:
            keeper.close()

    def _done(self, job: Callable[[_KeeperT], _T]) -> _T:
        try:
            keeper = self._idle.pop()
        except IndexError:
            keeper = self._open()
        try:
            return job(keeper)
        finally:
            self._idle.append(keeper)


@contextmanager
def kafka_errors() -> Iterator[None]:
    """Raises KafkaFailedError or UnavailableError for Kafka's errors, and those of its client."""
    try:
        yield
    except KafkaRefusedError as error:
        raise KafkaFailedError(str(error)) from None
    except (KafkaUnreachableError, KafkaException) as error:
        raise UnavailableError(str(error)) from None


async def told(future: Future[_T]) -> _T:
    """Returns a job's outcome. Raises as `kafka_errors`."""
    with kafka_errors():
        return await asyncio.wrap_future(future)
