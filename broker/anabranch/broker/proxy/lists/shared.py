"""Lists on their way through a proxy: one client's link reads each, and all who are told the same
meanwhile are sent those bytes.

While there is such a list, who asks the same asks a node whether that is still the one, by its
hash, and no names come. Where they do, a node writes the hash before them: of a list that another
link reads, no more than the first bytes are read. So its memory is held once, however many clients
it goes to, and one that does not read holds nothing that others do not need as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchScalableTopicsUpdate,
    CommandWatchTopicListSuccess,
)
from anabranch.wire.framing import LIST_FRAME_BYTES_MAX
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, LimitType
from anabranch.wire.memory.shared import SharedMemory, frame_around
from anabranch.wire.server.server import Peer

Told = (
    CommandGetTopicsOfNamespaceResponse
    | CommandWatchTopicListSuccess
    | CommandWatchScalableTopicsUpdate
)

_PATIENCE_S: Final = 2.0  # with who asks a node first
_NUMBER_FIELD: Final = 1  # of all of them
_HASH_FIELDS: Final[dict[int, int]] = {
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: 4,
    BaseCommand.WATCH_TOPIC_LIST_SUCCESS: 4,
    BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE: 1000,
}
_ERROR_FIELD: Final = 4  # the other three are of watches of scalable topics
_OPENING_FIELD: Final = 1001
_VARINT: Final = 0
_LENGTH_DELIMITED: Final = 2
_FIXED: Final = {1: 8, 5: 4}  # bytes, by wire type


class _Question(NamedTuple):
    """What is asked for, but for the hash of what the client has.

    Equal questions have equal answers, whoever asks: whatever decides what somebody is told has its
    place here, and nowhere else.
    """

    type_number: int
    namespace: str
    mode: int = 0
    pattern: str | None = None
    properties: tuple[tuple[str, str], ...] = ()


class _Key(NamedTuple):
    question: _Question
    topics_hash: str  # of what is told


class ListHead(NamedTuple):
    """What is known of a list before it is read: NO_REQUEST and "" where that stands elsewhere."""

    number: int  # of the request, or of the watch of scalable topics
    topics_hash: str
    opening: int = commands.NO_REQUEST
    is_refusal: bool = False


class _Field(NamedTuple):
    number: int
    start: int  # of its value
    end: int  # which may be behind what is there


def _question_of(command: BaseCommand) -> _Question:
    watched, asked = command.watchTopicList, command.getTopicsOfNamespace
    if command.type == BaseCommand.WATCH_TOPIC_LIST:
        return _Question(command.type, watched.namespace, pattern=watched.topics_pattern)
    if command.type == BaseCommand.WATCH_SCALABLE_TOPICS:
        wanted = {each.key: each.value for each in command.watchScalableTopics.property_filters}
        return _Question(
            command.type,
            command.watchScalableTopics.namespace,
            properties=tuple(sorted(wanted.items())),
        )
    pattern = asked.topics_pattern if asked.HasField("topics_pattern") else None
    return _Question(command.type, asked.namespace, asked.mode, pattern)


def known_to(command: BaseCommand) -> str:
    """The hash of the list that the client has."""
    if command.type == BaseCommand.WATCH_SCALABLE_TOPICS:
        return command.watchScalableTopics.current_hash
    if command.type == BaseCommand.WATCH_TOPIC_LIST:
        return command.watchTopicList.topics_hash
    return command.getTopicsOfNamespace.topics_hash


def _key_of(command: BaseCommand, topics_hash: str) -> _Key | None:
    """None where the answer is the client's own: it has that list, and is told no names."""
    if not topics_hash or topics_hash == known_to(command):
        return None
    return _Key(_question_of(command), topics_hash)


def with_hash(command: BaseCommand, topics_hash: str) -> BaseCommand:
    """The same request of a client that has that list already."""
    found = BaseCommand()
    found.CopyFrom(command)
    if command.type == BaseCommand.WATCH_TOPIC_LIST:
        found.watchTopicList.topics_hash = topics_hash
    elif command.type == BaseCommand.WATCH_SCALABLE_TOPICS:
        found.watchScalableTopics.current_hash = topics_hash
    else:
        found.getTopicsOfNamespace.topics_hash = topics_hash
    return found


def answer_to(command: BaseCommand) -> Told:
    """What an answer has of the client's own: the ids by which it knows its question."""
    if command.type == BaseCommand.WATCH_TOPIC_LIST:
        watch = command.watchTopicList
        return CommandWatchTopicListSuccess(
            request_id=watch.request_id, watcher_id=watch.watcher_id
        )
    if command.type == BaseCommand.WATCH_SCALABLE_TOPICS:
        return opening_answer(command)
    return CommandGetTopicsOfNamespaceResponse(request_id=command.getTopicsOfNamespace.request_id)


def opening_answer(command: BaseCommand) -> CommandWatchScalableTopicsUpdate:
    """The same of a watch of scalable topics."""
    opened = command.watchScalableTopics
    answer = CommandWatchScalableTopicsUpdate(watch_id=opened.watch_id)
    if opened.HasField("opening"):
        answer.opening = opened.opening
    return answer


def message_of(data: bytes | bytearray, type_number: int) -> memoryview:
    """The message in a whole serialized command of that type; empty if there is none."""
    view = memoryview(data)
    for field in _fields(view):
        if field.number == type_number:
            return view[field.start : field.end]
    return view[:0]


def list_head(beginning: bytes, type_number: int) -> ListHead:
    """What stands before the names in the first bytes of a command with a list."""
    view = message_of(beginning, type_number)
    head = ListHead(commands.NO_REQUEST, "")
    is_watch = type_number == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE
    for field in _fields(view):
        if field.end > len(view):
            break
        # Of a field that comes again, such as behind a proxy, the first one counts.
        if field.number == _NUMBER_FIELD and head.number == commands.NO_REQUEST:
            head = head._replace(number=_varint(view, field.start)[0])
        elif field.number == _HASH_FIELDS.get(type_number) and not head.topics_hash:
            told = bytes(view[field.start : field.end]).decode(errors="replace")
            head = head._replace(topics_hash=told)
        elif is_watch and field.number == _OPENING_FIELD and head.opening == commands.NO_REQUEST:
            head = head._replace(opening=_varint(view, field.start)[0])
        elif is_watch and field.number == _ERROR_FIELD:
            head = head._replace(is_refusal=True)
    return head


def _fields(view: memoryview) -> Iterator[_Field]:
    """The fields of a serialized message, as far as it is there."""
    at = 0
    while at < len(view):
        tag, at = _varint(view, at)
        kind, start = tag & 7, at
        if kind == _VARINT:
            _, at = _varint(view, at)
        elif kind == _LENGTH_DELIMITED:
            size, start = _varint(view, at)
            at = start + size
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:  # no protocol of today
            return
        yield _Field(tag >> 3, start, at)


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """A number, and where it ends; past the end of what is there if it does not end before."""
    number = shift = 0
    while at < len(view):
        byte = view[at]
        number |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not byte & 0x80:
            return number, at
    return number, at + 1


class SharedList:
    """A list, from when one reads it until the last one's socket has taken it."""

    def __init__(self, key: _Key | None, reader: object, limiter: AsyncDualMemoryLimiter) -> None:
        self.key = key
        self.reader = reader
        self.users = 0
        self.failure: PermitAcquireError | None = None  # for which it is not read
        # Whether it was read to its end. Shield it: it is everybody's.
        self.landed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._message = memoryview(b"")
        self._direct = SharedMemory(limiter, LimitType.DIRECT_MEMORY)
        self._give_back: Callable[[object], None] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether it was not read to its end."""
        return self.landed.done() and not self.landed.result()

    def is_for(self, command: BaseCommand, topics_hash: str) -> bool:
        """Whether it answers that, or is going to."""
        return (
            not self.is_lost and self.key is not None and self.key == _key_of(command, topics_hash)
        )

    def land(self, message: memoryview, give_back: Callable[[object], None]) -> None:
        """It was read; `give_back` is called when nobody needs it any more."""
        self._message, self._give_back = message, give_back
        self.landed.set_result(True)

    async def send(self, peer: Peer, command: BaseCommand, is_wanted: Callable[[], bool]) -> bool:
        """Sends it as the answer to that, if it still is wanted then; returns whether it was taken.

        Raises PermitAcquireError, or FrameError where it is larger than a frame may be.
        """
        await peer.drained()
        async with self._direct.used(len(self._message)):
            if not is_wanted():
                return False
            message = self._message
            before, behind = frame_around(answer_to(command), len(message), LIST_FRAME_BYTES_MAX)
            peer.send_shared(before, message, behind)
            return await asyncio.shield(peer.taken())

    def end(self) -> None:
        """Nobody needs it any more."""
        self._message = self._message[:0]
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back(None)


class _FirstAsker(NamedTuple):
    asker: object
    answered: asyncio.Future[None]


class SharedLists:
    """All lists on their way through one proxy."""

    def __init__(self, limiter: AsyncDualMemoryLimiter) -> None:
        self._limiter = limiter
        self._known: dict[_Key, SharedList] = {}
        self._newest: dict[_Question, SharedList] = {}
        self._asked: dict[_Question, _FirstAsker] = {}  # and not answered yet

    def __len__(self) -> int:
        return len(self._known)

    async def newest(self, command: BaseCommand, asker: object) -> SharedList | None:
        """The list that was told last to who asked the same, unless the client has it. To be left.

        Without one the caller is to ask for it, and to say so by `answered`; who asks the same
        meanwhile waits for that, though not for long.
        """
        question = _question_of(command)
        first = self._asked.get(question)
        if question not in self._newest and first is not None:
            await asyncio.wait([first.answered], timeout=_PATIENCE_S)
        if question not in self._newest and question not in self._asked:
            answered = asyncio.get_running_loop().create_future()
            self._asked[question] = _FirstAsker(asker, answered)
        return self.told_last(command)

    def told_last(self, command: BaseCommand) -> SharedList | None:
        """The same, as it is at this moment."""
        shared = self._newest.get(_question_of(command))
        if shared is None or shared.key is None or shared.key.topics_hash == known_to(command):
            return None
        shared.users += 1
        return shared

    def answered(self, command: BaseCommand, asker: object) -> None:
        """What that one has asked is answered, or never will be."""
        question = _question_of(command)
        first = self._asked.get(question)
        if first is not None and first.asker is asker:
            del self._asked[question]
            first.answered.set_result(None)

    def join(self, command: BaseCommand, topics_hash: str, reader: object) -> SharedList:
        """The list of that hash; `reader` is to read it if nobody does. To be left once."""
        key = _key_of(command, topics_hash)
        shared = self._known.get(key) if key is not None else None
        if shared is None:
            shared = SharedList(key, reader, self._limiter)
            if key is not None:
                self._known[key] = self._newest[key.question] = shared
        shared.users += 1
        return shared

    def leave(self, shared: SharedList, reader: object) -> None:
        """One needs it no more; what its reader has not read to the end is nobody's."""
        shared.users -= 1
        if shared.reader is reader and not shared.landed.done():
            shared.landed.set_result(False)
            self._forget(shared)
        if not shared.users:
            self._forget(shared)
            shared.end()

    def _forget(self, shared: SharedList) -> None:
        key = shared.key
        if key is None:
            return
        if self._known.get(key) is shared:
            del self._known[key]
        if self._newest.get(key.question) is shared:
            del self._newest[key.question]
