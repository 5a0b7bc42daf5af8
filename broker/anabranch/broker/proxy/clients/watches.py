"""The watches of one client, so that another node can take them over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from anabranch.broker.binary.watch_kinds import selection_of
from anabranch.broker.proxy.addresses import ProxyAddresses
from anabranch.core.errors import InvalidInputError
from anabranch.wire import commands, entries
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandScalableTopicUpdate, ServerError
from anabranch.wire.errors import RefusedError

_KEPT_BYTES_MAX: Final = 32 << 20  # of memory: room for 10,000 plain ones
_DECODED_BYTES_MAX: Final = 64 * 1024  # an update with an error is no longer than this
_CLOSED_BY: Final = {
    BaseCommand.SCALABLE_TOPIC_CLOSE: BaseCommand.SCALABLE_TOPIC_LOOKUP,
    BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: BaseCommand.WATCH_SCALABLE_TOPICS,
}

_Key = tuple[int, int]  # the type of the command that opens it, and the client's id


class WatchAccount(Protocol):
    """Where the watches of a client are counted."""

    def open_watch(self) -> None:
        """One more. Raises RefusedError."""

    def close_watch(self) -> None:
        """One less."""


class KeptWatch(msgspec.Struct):
    """A watch as its client has opened it. `told`: the incarnation and version told last."""

    key: _Key
    command: BaseCommand
    size_bytes: int
    is_told: bool = False  # a node has it
    told: tuple[int, int] = (0, 0)
    is_moved: bool = False  # and the node may be behind the one before


class KeptWatches:
    """Layout watches (70) and watches of scalable topics (76), and the ids of list watchers (64).

    A layout watch goes on with what is newer than what was told. That of scalable topics begins
    with a whole list, which takes the place of the client's. One of a topic list cannot be moved:
    its client has to compare the list with its own. Each is in the account once, while it is here.
    """

    def __init__(self, addresses: ProxyAddresses, account: WatchAccount) -> None:
        self._addresses = addresses
        self._account = account
        self._list_watchers: set[int] = set()
        self._kept: dict[_Key, KeptWatch] = {}
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def open(self, command: BaseCommand) -> KeptWatch:
        """Keeps a watch, in the place of one with its id.

        Raises RefusedError for too many, or too long ones, and for filters that a node would
        refuse: before that, a proxy looks at them itself.
        """
        key, asked = _key_of(command), BaseCommand()
        asked.CopyFrom(command)  # else what its parser keeps for fields that came again stays, too
        size = entries.memory_of(asked, asked.ByteSize())
        former = self._kept[key].size_bytes if key in self._kept else 0
        if self._kept_bytes - former + size > _KEPT_BYTES_MAX:
            raise RefusedError(
                ServerError.TooManyRequests,
                f"a proxy keeps what its clients' watches say, {_KEPT_BYTES_MAX >> 20} MiB of one "
                "connection, and this one would say more: close some, or connect once more",
            )
        if command.type == BaseCommand.WATCH_SCALABLE_TOPICS:
            try:
                selection_of(command.watchScalableTopics)
            except InvalidInputError as error:
                raise RefusedError(ServerError.InvalidTopicName, str(error)) from None
        if key not in self._kept:
            self._account.open_watch()
        kept = self._kept[key] = KeptWatch(key, asked, size)
        self._kept_bytes += size - former
        return kept

    def is_kept(self, watch: KeptWatch) -> bool:
        """Whether it was neither closed nor opened anew."""
        return self._kept.get(watch.key) is watch

    def close(self, command: BaseCommand) -> None:
        """The watch that the command closes, or has opened, is wanted no more."""
        self._drop(_key_of(command))

    @property
    def has_lists(self) -> bool:
        """Whether a topic list is watched."""
        return bool(self._list_watchers)

    def open_list(self, watcher_id: int) -> bool:
        """Notes a watch of a topic list; False if it takes the place of one with its id.

        Raises RefusedError for too many.
        """
        if watcher_id in self._list_watchers:
            return False
        self._account.open_watch()
        self._list_watchers.add(watcher_id)
        return True

    def close_list(self, watcher_id: int) -> None:
        """That watch of a topic list is over."""
        if watcher_id in self._list_watchers:
            self._list_watchers.remove(watcher_id)
            self._account.close_watch()

    def is_news(self, update: CommandScalableTopicUpdate) -> bool:
        """Whether the client is to hear of it; if so it has the proxy's addresses then."""
        kept = self._kept.get((BaseCommand.SCALABLE_TOPIC_LOOKUP, update.session_id))
        if update.HasField("error"):
            if kept is not None:
                self._drop(kept.key)
            return True
        dag = update.dag
        self._addresses.in_layout(dag)
        if kept is None:
            return True
        version = (dag.incarnation, dag.version if dag.HasField("version") else dag.epoch)
        if kept.is_moved:
            if version <= kept.told:
                return False
            kept.is_moved = False
        kept.told = version
        return True

    def list_passed(self, data: bytes | bytearray) -> None:
        """A list, or a change of one, was passed on, undecoded; an error among these ends it."""
        if len(data) > _DECODED_BYTES_MAX:
            return
        update = commands.parse(data).watchScalableTopicsUpdate
        if update.HasField("error"):
            self._drop((BaseCommand.WATCH_SCALABLE_TOPICS, update.watch_id))

    def moved(self) -> Iterator[BaseCommand]:
        """What opens all of them at another node."""
        for kept in list(self._kept.values()):
            kept.is_told = kept.is_moved = True
            if kept.key[0] == BaseCommand.WATCH_SCALABLE_TOPICS:
                # The client's list has changed since it gave the hash, if it gave one.
                kept.command.watchScalableTopics.ClearField("current_hash")
            yield kept.command

    def give_up(self) -> Iterator[BaseCommand]:
        """What had opened them, as no node serves them any more."""
        for each in list(self._kept.values()):
            self._drop(each.key)
            yield each.command

    def _drop(self, key: _Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept_bytes -= kept.size_bytes
            self._account.close_watch()


def _key_of(command: BaseCommand) -> _Key:
    kind = command.type
    payload: Any = commands.payload_of(command)
    opens = _CLOSED_BY.get(kind, kind)
    if opens == BaseCommand.SCALABLE_TOPIC_LOOKUP:
        return opens, payload.session_id
    return opens, payload.watch_id
