"""A refusal, in the form that the client of each command expects.

Most of Pulsar's clients wait for the response that belongs to a request, and ignore an ERROR: then
they would time out, or hang. So a request that has a response of its own is refused by that
response, and every other command by ERROR.
"""

from __future__ import annotations

from typing import Any, Final

from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandError, ServerError

_RESPONSES: Final[dict[int, int]] = {
    BaseCommand.SEND: BaseCommand.SEND_ERROR,
    BaseCommand.ACK: BaseCommand.ACK_RESPONSE,
    BaseCommand.PARTITIONED_METADATA: BaseCommand.PARTITIONED_METADATA_RESPONSE,
    BaseCommand.LOOKUP: BaseCommand.LOOKUP_RESPONSE,
    BaseCommand.CONSUMER_STATS: BaseCommand.CONSUMER_STATS_RESPONSE,
    BaseCommand.GET_SCHEMA: BaseCommand.GET_SCHEMA_RESPONSE,
    BaseCommand.GET_OR_CREATE_SCHEMA: BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
    BaseCommand.NEW_TXN: BaseCommand.NEW_TXN_RESPONSE,
    BaseCommand.ADD_PARTITION_TO_TXN: BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
    BaseCommand.END_TXN: BaseCommand.END_TXN_RESPONSE,
    BaseCommand.END_TXN_ON_PARTITION: BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
    BaseCommand.END_TXN_ON_SUBSCRIPTION: BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
    BaseCommand.SCALABLE_TOPIC_LOOKUP: BaseCommand.SCALABLE_TOPIC_UPDATE,
    BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
    BaseCommand.WATCH_SCALABLE_TOPICS: BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE,
    BaseCommand.WATCH_TC_ASSIGNMENTS: BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE,
}
KAFKA_CLIENTS: Final = "use Anabranch's SDK or its command line, or a client of Kafka"
_IDS: Final = ("request_id", "session_id", "watch_id", "producer_id", "sequence_id", "consumer_id")


def refusal(command: BaseCommand, code: ServerError, reason: str) -> BaseCommand:
    """Returns the answer that refuses the command, with the command's own ids."""
    request: Any = commands.payload_of(command)
    number = _RESPONSES.get(commands.type_of(command))
    if number is not None and request is not None:
        answer = commands.empty(number)
        payload: Any = commands.payload_of(answer)
        fields = payload.DESCRIPTOR.fields_by_name
        ids = [name for name in _IDS if name in fields]
        if all(request.HasField(name) for name in ids):
            for name in ids:
                setattr(payload, name, getattr(request, name))
            if "response" in fields:
                payload.response = payload.Failed
            payload.error, payload.message = code, reason
            return answer
    error = CommandError(request_id=commands.request_id_of(command), error=code, message=reason)
    return commands.envelope(error)


def unsound(command: BaseCommand) -> tuple[ServerError, str] | None:
    """Returns the error in the form of a command, None for none."""
    name = commands.name_of(commands.type_of(command))
    missing = commands.lacking(command)
    if missing:
        reason = f"{name} lacks {missing}, or has a value there that this node does not know"
        return ServerError.UnsupportedVersionError, reason
    garbled = commands.garbled(command)
    if garbled:
        return ServerError.NotAllowedError, f"{name}: {garbled} is not UTF-8 text"
    return None


def unserved(name: str) -> tuple[ServerError, str]:
    """Returns the reason why nothing serves the command of that name."""
    if name.startswith("command "):
        return ServerError.UnsupportedVersionError, f"{name} is not known to this node"
    return ServerError.NotAllowedError, (
        f"{name} is not served here: this node serves look-ups and scalable topics, whose messages "
        f"are on Kafka; {KAFKA_CLIENTS}"
    )
