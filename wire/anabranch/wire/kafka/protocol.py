"""Kafka's own protocol, for the few questions that librdkafka has no call for.

It has a blocking connection of its own to one broker, with SASL as far as `sasl` speaks it.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, NamedTuple, TypeVar

from anabranch.wire.errors import WireError
from anabranch.wire.kafka import sasl
from anabranch.wire.varint import varint

Address = tuple[str, int]
Partition = tuple[str, int]  # Kafka topic and number

NO_TAGS: Final = b"\0"  # a "flexible" request has them after each of its structures
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
API_VERSIONS: Final = 18
HANDSHAKE: Final = 17
HANDSHAKE_VERSION: Final = 1  # its header and answer have no tags
AUTHENTICATE: Final = 36
AUTHENTICATE_VERSION: Final = 2
Ask = Callable[[int, int, bytes], "ResponseReader"]  # `BrokerConnection.ask`, of some connection
_T = TypeVar("_T")
_SERVER: Final = re.compile(r"(?:\w+://)?(?:\[([0-9a-fA-F:.%\w]+)\]|([^:\[\]/]+))(?::(\d+))?/?")
_PORT: Final = 9092  # where none is named
_FALSE: Final = ("false", "f", "0")  # so librdkafka reads what is true or not
_SSL: Final = frozenset(
    {
        "security.protocol",
        "client.id",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "enable.ssl.certificate.verification",
        "ssl.endpoint.identification.algorithm",
    }
)


class KafkaProtocolError(WireError):
    """The other side does not speak Kafka's protocol, or not to its end, or refuses to tell."""


def can_ask(kafka: Mapping[str, Any]) -> bool:
    """Returns True if a Kafka with these security properties can be asked."""
    return not unsupported(kafka)


def unsupported(kafka: Mapping[str, Any]) -> str:
    """Returns the reason why a Kafka with these security properties cannot be asked, with a remedy;
    "" if it can.

    librdkafka finds some things by itself, in a folder or by looking around ("probe"). This module
    does not.
    """
    authorities = kafka.get("ssl.ca.location")
    if authorities is not None and (authorities == "probe" or not Path(str(authorities)).is_file()):
        return (
            f"ssl.ca.location={authorities} is no file: name one with certificates in PEM, or "
            "leave it out to trust whom the system trusts"
        )
    protocol = str(kafka.get("security.protocol", "plaintext")).lower()
    is_guarded = sasl.is_guarded(kafka)
    if not is_guarded and protocol not in ("plaintext", "ssl"):
        known = "plaintext, ssl, sasl_plaintext or sasl_ssl"
        return f"security.protocol={protocol} is not spoken here: give {known}"
    if is_guarded and (why := sasl.unsupported(kafka)):
        return why
    for name in sorted(set(kafka) - _SSL - (sasl.PROPERTIES if is_guarded else frozenset())):
        if name in sasl.PROPERTIES:
            return f"{name} is given without SASL: give security.protocol=sasl_ssl, or leave it out"
        return (
            f"{name} is read by librdkafka alone: leave it out. Connections of Anabranch's own "
            "take certificates and keys in PEM, and PLAIN, SCRAM, or OAUTHBEARER with a token "
            "provider or with oidc and a client's secret"
        )
    return ""


def bootstrap_addresses(servers: str) -> list[Address]:
    """Returns the addresses in `bootstrap.servers`, read in librdkafka's way.

    >>> bootstrap_addresses("SSL://one:9093, two,[::1]:9094")
    [('one', 9093), ('two', 9092), ('::1', 9094)]
    """
    found = []
    for each in filter(None, map(str.strip, servers.split(","))):
        match = _SERVER.fullmatch(each)
        if match is not None:
            found.append((match[1] or match[2], int(match[3] or _PORT)))
    return found


class BrokerConnection:
    """A blocking connection to one Kafka broker. Raises OSError if it is out of reach."""

    def __init__(self, address: Address, kafka: Mapping[str, Any], timeout_s: float) -> None:
        self._address = address
        plain = socket.create_connection(address, timeout_s)
        self._stream = plain
        try:
            self._stream = _secured(plain, address[0], kafka)
            if sasl.is_guarded(kafka):
                self._show_who(kafka)
        except BaseException:
            self._stream.close()
            raise

    def close(self) -> None:
        self._stream.close()

    def ask(self, question: int, version: int, body: bytes) -> ResponseReader:
        """The body of the answer to a "flexible" request, which counts lengths from 1."""
        self._send(question, version, NO_TAGS + body)
        reader = self._received()
        if question != API_VERSIONS:  # whose answer a Kafka of any age can be read by
            reader.tags()
        return reader

    def _send(self, question: int, version: int, rest: bytes) -> None:
        header = struct.pack(">hhih", question, version, 1, 9) + b"anabranch"
        self._stream.sendall(struct.pack(">i", len(header) + len(rest)) + header + rest)

    def _received(self) -> ResponseReader:
        size = int.from_bytes(_exactly(self._stream, 4), "big")
        if not 0 < size <= ANSWER_BYTES_MAX:
            host, port = self._address
            raise KafkaProtocolError(f"{host}:{port} does not speak Kafka's protocol")
        reader = ResponseReader(_exactly(self._stream, size))
        reader.skip(4)  # correlation id
        return reader

    def _show_who(self, kafka: Mapping[str, Any]) -> None:
        """Logs in. Raises KafkaProtocolError if Kafka refuses."""

        def exchange(words: bytes) -> bytes:
            question = authenticate_request(words)
            return read_authenticated(self.ask(AUTHENTICATE, AUTHENTICATE_VERSION, question)).answer

        try:
            question = handshake_request(kafka)
            self._send(HANDSHAKE, HANDSHAKE_VERSION, question)
            check_handshake(self._received(), kafka)
            sasl.speak(kafka, exchange)
        except sasl.SaslError as error:
            raise not_let_in(self._address, kafka, str(error)) from None


class BrokerConnections:
    """Blocking connections to Kafka's brokers, which it keeps. Use it from one thread at a time."""

    def __init__(self, kafka: Mapping[str, Any], timeout_s: float) -> None:
        self._kafka = kafka
        self._timeout_s = timeout_s
        self._kept: dict[Address, BrokerConnection] = {}

    def close(self) -> None:
        """Ends the connections."""
        while self._kept:
            self._kept.popitem()[1].close()

    def ask(self, address: Address, question: int, version: int, body: bytes) -> ResponseReader:
        """Asks the broker there, as `BrokerConnection.ask` does."""
        kept = self._kept.pop(address, None)
        if kept is not None:
            try:
                return self._answer(address, kept, question, version, body)
            except ConnectionError:
                pass  # Kafka closes what nobody has used for long
        fresh = BrokerConnection(address, self._kafka, self._timeout_s)
        return self._answer(address, fresh, question, version, body)

    def ask_each(
        self,
        addresses: Iterable[Address],
        question: int,
        version: int,
        body: bytes,
        read: Callable[[ResponseReader], _T],
    ) -> dict[Address, _T]:
        """Asks all brokers at the same time. Returns what `read` makes of each answer.

        A broker that gives no whole answer in time is left out.
        """

        def told(address: Address) -> _T | None:
            with suppress(OSError, KafkaProtocolError):
                return read(self.ask(address, question, version, body))
            return None

        asked = list(dict.fromkeys(addresses))
        with ThreadPoolExecutor(max(1, len(asked)), "Kafka") as threads:
            answers = zip(asked, threads.map(told, asked), strict=True)
            return {address: found for address, found in answers if found is not None}

    def ask_any(
        self,
        addresses: Iterable[Address],
        question: int,
        version: int,
        body: bytes,
        read: Callable[[ResponseReader], _T],
    ) -> _T:
        """Returns what `read` decodes from the first whole answer of a broker.

        Raises OSError or KafkaProtocolError if none gives one.
        """
        failure: list[Exception] = [KafkaProtocolError("Kafka has no brokers")]
        for address in addresses:
            try:
                return read(self.ask(address, question, version, body))
            except (OSError, KafkaProtocolError) as error:
                failure = [error]
        raise failure.pop()  # kept here, it would be a circle with this frame

    def _answer(
        self,
        address: Address,
        connection: BrokerConnection,
        question: int,
        version: int,
        body: bytes,
    ) -> ResponseReader:
        try:
            answer = connection.ask(question, version, body)
        except BaseException:
            connection.close()  # an answer that comes late would be taken for the next one's
            raise
        self._kept[address] = connection
        return answer


class Authenticated(NamedTuple):
    """`lifetime_ms` is the time for which Kafka accepts questions (KIP-368), 0 for ever."""

    answer: bytes
    lifetime_ms: int


def handshake_request(kafka: Mapping[str, Any]) -> bytes:
    """Returns the body that names the SASL mechanism."""
    name = sasl.mechanism(kafka).encode()
    return struct.pack(">h", len(name)) + name


def check_handshake(reader: ResponseReader, kafka: Mapping[str, Any]) -> None:
    """Raises SaslError unless Kafka accepts the mechanism."""
    if reader.unpack(">h")[0]:
        raise sasl.SaslError(f"it does not take {sasl.mechanism(kafka)}")


def authenticate_request(words: bytes) -> bytes:
    """Returns the body with the next words of the mechanism."""
    return varint(len(words) + 1) + words + NO_TAGS


def read_authenticated(reader: ResponseReader) -> Authenticated:
    """Decodes Kafka's answer to these words.
    Raises SaslError, with Kafka's reason, if it refuses.
    """
    (error,) = reader.unpack(">h")
    why = reader.text()
    if error:
        raise sasl.SaslError(why)
    answer = reader.take(reader.count())
    (lifetime_ms,) = reader.unpack(">q")
    return Authenticated(answer, lifetime_ms)


def not_let_in(address: Address, kafka: Mapping[str, Any], why: str) -> KafkaProtocolError:
    """Returns the error for a client whose credentials Kafka does not accept."""
    return KafkaProtocolError(
        f"{address[0]}:{address[1]} does not let this client in ({why}): {sasl.remedy(kafka)}"
    )


def _secured(plain: socket.socket, host: str, kafka: Mapping[str, Any]) -> socket.socket:
    if not speaks_tls(kafka):
        return plain
    return ssl_context(kafka).wrap_socket(plain, server_hostname=host)


def speaks_tls(kafka: Mapping[str, Any]) -> bool:
    """Returns True if a Kafka with these properties is asked through TLS."""
    return str(kafka.get("security.protocol", "plaintext")).lower() in ("ssl", "sasl_ssl")


def ssl_context(kafka: Mapping[str, Any]) -> ssl.SSLContext:
    """Returns the context that librdkafka makes of the same properties. Raises OSError."""
    try:
        context = ssl.create_default_context(
            cafile=kafka.get("ssl.ca.location"), cadata=kafka.get("ssl.ca.pem")
        )
    except (TypeError, ValueError):  # not even text in PEM
        raise OSError("ssl.ca.pem holds no certificate: give it in PEM") from None
    if str(kafka.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if str(kafka.get("enable.ssl.certificate.verification", "true")).lower() in _FALSE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with ExitStack() as files:
        certificate = _file(kafka, "ssl.certificate", files)
        if certificate is not None:
            # Without a password, OpenSSL would ask for that of a key on the terminal.
            password = kafka.get("ssl.key.password", "")
            context.load_cert_chain(certificate, _file(kafka, "ssl.key", files), password)
    return context


def _file(kafka: Mapping[str, Any], what: str, files: ExitStack) -> str | None:
    """Returns the file of a certificate or a key.
    Text goes into a file of its own, because TLS reads only files.
    """
    text = kafka.get(f"{what}.pem")
    if text is None:
        return kafka.get(f"{what}.location")
    made = NamedTemporaryFile("w", suffix=".pem")  # noqa: SIM115 - nobody else may read it
    file = files.enter_context(made)
    file.write(str(text))
    file.flush()
    return file.name


class ResponseReader:
    """Decodes Kafka's primitive types."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise KafkaProtocolError("Kafka's answer was cut short")
        return self._data[self._at - count : self._at]

    def skip(self, count: int) -> None:
        self.take(count)

    def unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        """Returns a string. It is empty if it is left out."""
        return self.take(max(0, self.varint() - 1)).decode(errors="replace")

    def count(self) -> int:
        """Returns the number of an array's elements."""
        return max(0, self.varint() - 1)

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


def _exactly(stream: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = stream.recv(min(65_536, count - len(data)))
        if not part:
            raise ConnectionResetError("Kafka closed the connection instead of answering")
        data += part
    return bytes(data)


def text(value: str) -> bytes:
    """Encodes a string of a request."""
    data = value.encode()
    return varint(len(data) + 1) + data


def array(parts: Iterable[bytes]) -> bytes:
    """Encodes an array of a request."""
    listed = list(parts)
    return varint(len(listed) + 1) + b"".join(listed)


def topics(places: Iterable[Partition], form: Callable[[Partition], bytes]) -> bytes:
    """Encodes partitions by topic, each once, as `form` has it."""
    found: dict[str, dict[int, None]] = {}
    for topic, number in places:
        found.setdefault(topic, {})[number] = None
    return array(
        text(topic) + array(form((topic, number)) for number in numbers) + NO_TAGS
        for topic, numbers in found.items()
    )
