"""`ProxiedPeer`: a client's connection to a proxy, and for whom nodes are asked what it asks."""

from __future__ import annotations

from anabranch.broker.proxy.security import ProxySecurity
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandConnect, ServerError
from anabranch.wire.errors import RefusedError
from anabranch.wire.server.server import Peer, WireServer


class ProxiedPeer(Peer):
    """Keeps what the client has said of itself. `security`: None where the proxy asks nobody."""

    def __init__(self, server: WireServer, security: ProxySecurity | None) -> None:
        super().__init__(server)
        self.hello = CommandConnect()  # what nodes are told of it
        self._security = security

    def greeted(self, hello: CommandConnect) -> None:
        self.hello.CopyFrom(hello)
        self.hello.ClearField("original_principal")
        self.hello.feature_flags.ClearField("resets")  # links end with the proxy's process as well
        if self._security is None:
            return
        # Who the client is, the proxy has asked; nodes are shown who the proxy is.
        self.hello.ClearField("auth_method_name")
        self.hello.ClearField("auth_data")
        if self.asker:
            self.hello.original_principal = self.asker

    @property
    def asker(self) -> str:
        """For whom nodes are asked; "" where they are told of nobody."""
        return "" if self._security is None else self._security.asker_of(self.principal)

    def say_for_whom(self, command: BaseCommand) -> None:
        """Has a look-up say for whom it is, for it may go with those of others.

        Raises RefusedError for one that names somebody of whom the client must not speak.
        """
        if command.type != BaseCommand.LOOKUP:
            return
        said, asker = command.lookupTopic, self.asker
        if self._security is None:
            said.ClearField("original_principal")
        elif not said.original_principal:
            if asker:
                said.original_principal = asker
        elif said.original_principal != asker and not self._security.may_speak_for(
            self.principal, said.original_principal
        ):
            raise RefusedError(
                ServerError.AuthorizationError,
                "who asks for somebody else must be a proxy by proxyRoles, and they none",
            )

    def said_by_link(self, command: BaseCommand) -> None:
        """Leaves that out of a look-up that goes by the client's own link, which has said it."""
        if command.type == BaseCommand.LOOKUP and self.asker:
            command.lookupTopic.ClearField("original_principal")
