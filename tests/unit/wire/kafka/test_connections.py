"""Several Kafka brokers are asked at the same time, by connections that are kept."""

from __future__ import annotations

import socket
import struct
from contextlib import closing, suppress
from threading import Barrier, BrokenBarrierError, Thread

from anabranch.wire.kafka.protocol import Address, BrokerConnections, ResponseReader
from support.waiting import WAIT_S

_SILENT_S = 2.0  # long enough for the thread of one that does answer
_ANSWER = struct.pack(">i", 4 + 1 + 4) + bytes(5)  # the length, a correlation id, no tags


class Broker:
    """Answers each question with its own number, once `together` is passed. Serves in a thread."""

    def __init__(self, number: int, together: Barrier) -> None:
        self.connections = 0
        self.line: socket.socket | None = None
        self._answer = _ANSWER + number.to_bytes(4, "big")
        self._together = together
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._door.getsockname()
        Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._together.abort()
        self.hang_up()
        self._door.close()

    def hang_up(self) -> None:
        """Ends the connection, as Kafka does with one that nobody uses for long."""
        if self.line is not None:
            self.line.shutdown(socket.SHUT_RDWR)
            self.line.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                self.line, _ = self._door.accept()
                self.connections += 1
                with suppress(OSError, BrokenBarrierError):
                    while self.line.recv(1024):
                        self._together.wait(WAIT_S)
                        self.line.sendall(self._answer)


def number(reader: ResponseReader) -> int:
    return reader.unpack(">i")[0]


def test_every_broker_has_the_question_before_an_answer_is_waited_for() -> None:
    together = Barrier(2)
    with closing(Broker(1, together)) as one, closing(Broker(2, together)) as two:
        with closing(BrokerConnections({}, WAIT_S)) as brokers:
            for _ in range(2):  # the second time by the same connections
                told = brokers.ask_each([one.address, two.address], 1, 1, b"", number)
                assert told == {one.address: 1, two.address: 2}
        assert (one.connections, two.connections) == (1, 1)


def test_silent_and_absent_brokers_are_left_out_and_keep_nobody_elses_answer_back() -> None:
    with (
        closing(Broker(1, Barrier(1))) as one,
        closing(Broker(2, Barrier(2))) as silent,
        socket.create_server(("127.0.0.1", 0)) as door,
        closing(BrokerConnections({}, _SILENT_S)) as brokers,
    ):
        absent = door.getsockname()
        door.close()
        asked = [silent.address, absent, one.address]
        assert brokers.ask_each(asked, 1, 1, b"", number) == {one.address: 1}


def test_a_broker_that_has_closed_a_connection_meanwhile_is_asked_by_a_new_one() -> None:
    with closing(Broker(1, Barrier(1))) as one, closing(BrokerConnections({}, WAIT_S)) as brokers:
        assert brokers.ask_each([one.address], 1, 1, b"", number) == {one.address: 1}
        one.hang_up()
        assert brokers.ask_each([one.address], 1, 1, b"", number) == {one.address: 1}
        assert one.connections == 2
