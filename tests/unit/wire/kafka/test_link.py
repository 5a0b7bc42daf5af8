"""A connection to a broker with many questions under way, and what becomes of them when it ends."""

from __future__ import annotations

import asyncio
import gc
import ssl
import struct
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from anabranch.devkit import ports
from anabranch.wire.kafka import link as links
from anabranch.wire.kafka.link import KafkaLink, LinkLostError, LinkSecurity
from anabranch.wire.kafka.producing import Buffer
from anabranch.wire.kafka.protocol import KafkaProtocolError, ResponseReader, ssl_context
from support import steady
from support.authority import Authority
from support.frame_broker import HOST, Asked, Caller, echo, frame, frame_broker
from support.waiting import WAIT_S, until
from support.wire import on_both_loops

pytestmark = on_both_loops


def text(reader: ResponseReader) -> bytes:
    return reader.take(len(reader._data) - reader._at)


async def asked(link: KafkaLink, body: bytes, timeout_s: float = WAIT_S) -> bytes:
    return text(await link.send(3, 12, body, timeout_s))


async def lost(answer: Awaitable[object]) -> LinkLostError:
    with pytest.raises(LinkLostError) as told:
        await answer
    return told.value


def tasks() -> int:
    return len(asyncio.all_tasks())


async def test_a_question_goes_out_to_the_byte_and_its_body_is_not_copied() -> None:
    seen: list[Asked] = []

    async def serve(caller: Caller) -> None:
        seen.append(await caller.asked())
        caller.answer(seen[-1], b"yes")

    async with frame_broker(serve) as broker:
        link = KafkaLink(broker.address, LinkSecurity({"client.id": "me"}))
        parts: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"three")]
        answer = await link.send(0, 9, parts, WAIT_S)
        assert text(answer) == b"yes"
        assert seen == [(0, 9, 1, "me", b"\0onetwothree")]
        assert link.last_trouble == ""
        link.close()


async def test_answers_go_to_who_asked_in_whatever_order_and_pieces_they_come() -> None:
    async def serve(caller: Caller) -> None:
        came = [await caller.asked() for _ in range(5)]
        data = b"".join(frame(each.number, b"\0" + each.body[1:]) for each in reversed(came))
        for at in range(len(data)):
            caller.write(data[at : at + 1])
            await asyncio.sleep(0)

    async with frame_broker(serve) as broker:
        link = KafkaLink(broker.address, LinkSecurity({}))
        found = await asyncio.gather(*(asked(link, b"%d" % number) for number in range(5)))
        assert found == [b"0", b"1", b"2", b"3", b"4"]
        assert len(broker.callers) == 1  # they shared it from the first one on
        link.close()


async def test_questions_go_out_in_the_order_in_which_they_were_asked() -> None:
    seen: list[bytes] = []

    async def serve(caller: Caller) -> None:
        while True:
            came = await caller.asked()
            seen.append(came.body[1:])
            caller.answer(came)

    async with frame_broker(serve) as broker:
        link = KafkaLink(broker.address, LinkSecurity({}))
        early = [link.send(0, 9, b"%d" % number, WAIT_S) for number in range(3)]
        early[0].add_done_callback(lambda _: link.send(0, 9, b"later", WAIT_S))
        while link._pipeline is None:
            early.append(link.send(0, 9, b"%d" % len(early), WAIT_S))
            await asyncio.sleep(0)
        await asyncio.gather(*early)
        await until(lambda: b"later" in seen)
        seen.remove(b"later")
        assert seen == [b"%d" % number for number in range(len(early))]
        link.close()


async def _cut(caller: Caller) -> None:
    caller.hang_up()


async def _cut_short(caller: Caller) -> None:
    caller.write(frame(1, bytes(100))[:50])
    caller.hang_up()


async def _reset(caller: Caller) -> None:
    caller.write(frame(1, bytes(100))[:50])
    caller.reset()


def _writes(data: bytes) -> Callable[[Caller], Awaitable[None]]:
    async def write(caller: Caller) -> None:
        caller.write(data)

    return write


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (_cut, "Kafka closed the connection"),
        (_cut_short, "Kafka closed the connection"),
        (_reset, ""),  # by the system's word for it, or as a mere end
        (_writes(b"HTTP/1.1 400 Bad Request"), "does not speak Kafka's protocol"),
        (_writes(struct.pack(">i", -1)), "does not speak Kafka's protocol"),
        (_writes(struct.pack(">i", 3) + bytes(3)), "does not speak Kafka's protocol"),
        (_writes(frame(77, b"\0")), "does not speak Kafka's protocol"),  # nobody asked that
        (_writes(frame(1, b"")), "cut short"),
        (_writes(frame(1, b"\x01\x05\x7f")), "cut short"),
    ],
)
async def test_when_a_connection_ends_all_hear_of_it_and_the_next_question_makes_another(
    end: Callable[[Caller], Awaitable[None]], why: str
) -> None:
    async def serve(caller: Caller) -> None:
        for _ in range(2):
            await caller.asked()
        await end(caller)

    async with frame_broker(serve) as broker:
        link = KafkaLink(broker.address, LinkSecurity({}))
        both = [lost(asked(link, b"one")), lost(asked(link, b"two"))]
        for error in await asyncio.gather(*both):
            assert error.was_written
            assert str(error) == link.last_trouble
            assert str(error).startswith(f"{HOST}:{broker.address[1]}: ")
            assert why in str(error)
        broker.serve = echo
        assert await asked(link, b"again") == b"again"
        assert len(broker.callers) == 2
        link.close()


async def test_an_idle_connection_that_kafka_closes_is_no_trouble() -> None:
    async with frame_broker(echo) as broker:
        link = KafkaLink(broker.address, LinkSecurity({}))
        await asked(link, b"one")
        broker.callers[0].hang_up()
        await until(lambda: link._pipeline is None)
        assert await asked(link, b"two") == b"two"
        assert link.last_trouble == ""
        link.close()


async def test_where_nobody_listens_nothing_was_written_and_tries_are_apart() -> None:
    port = ports.free_port(HOST)
    link = KafkaLink((HOST, port), LinkSecurity({}))
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(4):
        error = await lost(asked(link, b"one"))
        assert not error.was_written
        assert str(error) == link.last_trouble == f"{HOST}:{port}: connection refused"
    assert loop.time() - began >= 0.9 * (0.02 + 0.04 + 0.08)
    async with frame_broker(echo, port=port):
        assert await asked(link, b"two") == b"two"
        link.close()


async def test_a_question_that_is_not_answered_in_time_ends_the_connection_for_all() -> None:
    heard = asyncio.Event()

    async def silent(caller: Caller) -> None:
        await caller.asked()
        heard.set()

    async with frame_broker(silent) as broker:
        link = KafkaLink(broker.address, LinkSecurity({}))
        patient = asyncio.create_task(lost(asked(link, b"one")))
        await heard.wait()
        error = await lost(asked(link, b"two", 0.05))
        assert "no answer within 0.05 s" in str(error)
        assert error.was_written
        assert (await patient).was_written
        broker.serve = echo
        assert await asked(link, b"three") == b"three"
        link.close()


async def test_a_connection_that_does_not_come_about_is_given_up(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = asyncio.Event()
    monkeypatch.setattr(links, "CONNECT_S_MAX", 0.2)

    async with frame_broker(lambda _: silent.wait()) as broker:  # type: ignore[arg-type,return-value]
        tls = {"security.protocol": "ssl", "ssl.ca.location": str(authority.file)}
        link = KafkaLink(broker.address, LinkSecurity(tls))
        short = await lost(asked(link, b"one", 0.05))
        assert not short.was_written
        assert "not connected yet; nothing else came of it within 0.05 s" in str(short)
        long = await lost(asked(link, b"two"))
        assert not long.was_written
        assert "no connection within 0.2 s" in str(long)
        link.close()


async def test_who_waits_no_more_leaves_the_others_alone() -> None:
    go_on = asyncio.Event()

    async def serve(caller: Caller) -> None:
        came = [await caller.asked() for _ in range(2)]
        await go_on.wait()
        for each in came:
            caller.answer(each, each.body[1:])

    async with frame_broker(serve) as broker:
        link = KafkaLink(broker.address, LinkSecurity({}))
        gone = [asyncio.create_task(asked(link, b"never")) for _ in range(2)]
        await asyncio.sleep(0)
        gone[0].cancel()  # before there is a connection: it is not even asked
        both = [asyncio.create_task(asked(link, b"two"))]
        await until(lambda: link._pipeline is not None)
        gone[1].cancel()  # its answer is thrown away
        await asyncio.wait(gone)
        go_on.set()
        assert await both[0] == b"two"
        assert len(broker.callers) == 1
        link.close()


async def test_closing_ends_all_that_waits_and_leaves_no_task() -> None:
    before = tasks()
    async with frame_broker(lambda caller: caller.asked()) as broker:  # type: ignore[arg-type,return-value]
        link = KafkaLink(broker.address, LinkSecurity({}))
        written = asyncio.create_task(lost(asked(link, b"one")))
        await until(lambda: link._pipeline is not None)
        link.close()
        link.close()
        assert "the client was closed" in str(await written)
        assert not (await lost(asked(link, b"two"))).was_written
        connecting = KafkaLink(broker.address, LinkSecurity({}))
        waits = asyncio.create_task(lost(asked(connecting, b"three")))
        await asyncio.sleep(0)
        assert connecting._opening is not None
        connecting.close()
        assert not (await waits).was_written
    await until(lambda: tasks() == before)


@pytest.mark.parametrize("run", [steady.run, uvloop.run])
@pytest.mark.parametrize("guarded", [False, True])
def test_a_link_is_closed_when_its_loop_is_over(
    run: Callable[..., None], guarded: bool, authority: Authority
) -> None:
    issued = authority.issue("server", server=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*issued)
    kafka = {"security.protocol": "ssl", "ssl.ca.location": str(authority.file)}
    made: list[KafkaLink] = []

    async def use() -> None:
        async with frame_broker(echo, context if guarded else None) as broker:
            made.append(KafkaLink(broker.address, LinkSecurity(kafka if guarded else {})))
            made.append(KafkaLink(broker.address, LinkSecurity(kafka if guarded else {})))
            for each in made:
                assert await asked(each, b"one") == b"one"

    async def use_again() -> None:
        async with frame_broker(echo) as broker:
            made[1].address = broker.address
            made[1]._security = LinkSecurity({})
            assert await asked(made[1], b"two") == b"two"
            made[1].close()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run(use())
        made[0].close()
        run(use_again())  # on another loop
        made.clear()
        gc.collect()
    assert [str(each.message) for each in told] == []


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def test_brokers_are_known_by_their_certificates(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    def make(kafka: dict[str, str]) -> ssl.SSLContext:
        made.append(kafka)
        return ssl_context(kafka)

    monkeypatch.setattr(links, "ssl_context", make)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(*authority.issue("server", server=True))
    context.verify_mode = ssl.CERT_REQUIRED
    own = authority.issue("client")
    kafka = {
        "security.protocol": "ssl",
        "ssl.ca.pem": authority.pem.decode(),
        "ssl.certificate.pem": own.certificate.read_text(),
        "ssl.key.pem": own.key.read_text(),
    }
    async with frame_broker(echo, context) as broker:
        security = LinkSecurity(kafka)
        both = [KafkaLink(broker.address, security) for _ in range(2)]
        assert await asyncio.gather(*(asked(each, b"one") for each in both)) == [b"one"] * 2
        assert made == [kafka]
        other = Authority(tmp_path, "another authority")
        stranger = KafkaLink(
            broker.address, LinkSecurity({**kafka, "ssl.ca.pem": other.pem.decode()})
        )
        error = await lost(asked(stranger, b"one"))
        assert "its certificate is not trusted" in str(error)
        unnamed = KafkaLink(("localhost", broker.address[1]), LinkSecurity(kafka))
        assert "not valid for 'localhost'" in str(await lost(asked(unnamed, b"one")))
        nothing = KafkaLink(broker.address, LinkSecurity({**kafka, "ssl.ca.pem": "\u00e9"}))
        assert "ssl.ca.pem holds no certificate" in str(await lost(asked(nothing, b"one")))
        for each in (*both, stranger, unnamed, nothing):
            each.close()


PLAIN = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "user",
    "sasl.password": "pencil",
}


class Guard:
    """Lets callers in, for so long; then it answers with the number of the caller."""

    def __init__(self, lifetime_ms: int = 0, refusal: str = "") -> None:
        self.lifetime_ms = lifetime_ms
        self.refusal = refusal
        self.said: list[bytes] = []
        self.callers = 0
        self.held = asyncio.Event()
        self.held.set()

    async def serve(self, caller: Caller) -> None:
        self.callers += 1
        number = b"%d" % self.callers
        came = await caller.asked()
        self.said.append(came.body)
        caller.answer(came, struct.pack(">hi", 0, 0), tags=b"")
        came = await caller.asked()
        self.said.append(came.body)
        error, why = (58, self.refusal) if self.refusal else (0, "")
        told = struct.pack(">h", error) + bytes([len(why) + 1]) + why.encode() + b"\x01"
        caller.answer(came, told + struct.pack(">q", self.lifetime_ms) + b"\0")
        while True:
            came = await caller.asked()
            await self.held.wait()
            caller.answer(came, number)


async def test_where_sasl_guards_kafka_it_is_told_who_asks() -> None:
    guard = Guard()
    async with frame_broker(guard.serve) as broker:
        link = KafkaLink(broker.address, LinkSecurity(PLAIN))
        assert await asked(link, b"one") == b"1"
        assert guard.said == [b"\0\x05PLAIN", b"\0\x0d\0user\0pencil\0"]
        link.close()


async def test_whom_kafka_does_not_let_in_is_told_why_and_asks_no_oftener() -> None:
    guard = Guard(refusal="wrong password")
    async with frame_broker(guard.serve) as broker:
        link = KafkaLink(broker.address, LinkSecurity(PLAIN))
        for _ in range(2):
            both = [asked(link, b"one"), asked(link, b"two")]
            for error in await asyncio.gather(*both, return_exceptions=True):
                assert isinstance(error, KafkaProtocolError)
                assert "does not let this client in (wrong password)" in str(error)
                assert "pencil" not in str(error)
        assert guard.callers == 2
        link.close()


async def test_a_login_is_renewed_before_it_ends_and_nothing_overtakes() -> None:
    guard = Guard(lifetime_ms=3_600_000)
    async with frame_broker(guard.serve) as broker:
        link = KafkaLink(broker.address, LinkSecurity(PLAIN))
        assert await asked(link, b"one") == b"1"
        assert link._pipeline is not None
        expires_at = link._pipeline.expires_at
        assert expires_at is not None
        left_s = expires_at - asyncio.get_running_loop().time()
        assert left_s == pytest.approx(0.85 * 3_600, abs=WAIT_S)
        guard.held.clear()
        before = asyncio.create_task(asked(link, b"two"))
        await asyncio.sleep(0)
        link._pipeline.expires_at = 0.0
        after = asyncio.create_task(asked(link, b"three"))
        await until(lambda: link._retired is not None)
        assert guard.callers == 1  # the new one waits for the answer of the old one
        guard.held.set()
        assert (await before, await after) == (b"1", b"2")
        assert link.last_trouble == ""
        link.close()
