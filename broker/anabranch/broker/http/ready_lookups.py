"""Look-ups that a node answers as they come, which spares them the application.

For these look-ups the node knows the asker, its right, and the owner's address. The application
takes all others, above all refusals: it asks the same once more and finds the words.
"""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from anabranch.broker.http.guards.authentication import known_at_once
from anabranch.broker.http.guards.connections import OfferedRequest
from anabranch.broker.http.guards.origins import OriginRules
from anabranch.broker.http.routes.reads import LOOKUP, LOOKUP_PREFIX, Locations, asked_topic
from anabranch.broker.http.senders import TURN_KEY
from anabranch.broker.operations import Operations
from anabranch.broker.security.node import NodeSecurity
from anabranch.core.security.resources import topic_resource
from anabranch.core.security.table import REST

_NEED: Final = REST[LOOKUP].need


class ReadyLookups:
    """`AtOnce` of a node that lets no other site's pages read answers, which need headers for it.

    `security`: None if requests need no credentials.
    """

    def __init__(
        self, operations: Operations, site: OriginRules, security: NodeSecurity | None = None
    ) -> None:
        self._lookups = operations.lookups
        self._site = site
        self._security = security
        self._locations = Locations()

    def __call__(self, request: OfferedRequest) -> bool:
        scope = request.scope
        path: str = scope["path"]
        if scope["method"] != "GET" or not path.startswith(LOOKUP_PREFIX):
            return False
        if self._site.refuses("GET", scope["headers"]) is not None:
            return False
        asked = asked_topic(path)
        if asked is None or not self._may(scope, asked.name):
            return False
        located = self._lookups.locate_cached(asked.topic, asked.home)
        if located is None:
            return False
        request.answer(self._locations.ready(located))
        return True

    def _may(self, scope: Scope, topic: str) -> bool:
        """Returns whether the asker is known, may look the topic up, and has a turn just now."""
        if self._security is None:
            return True
        who = known_at_once(self._security.authenticator, scope)
        guard = self._security.guard
        if who is None or not who.role or not guard.may(who, _NEED, topic_resource(topic)):
            return False
        if not guard.has_turn(who):
            return False
        scope[TURN_KEY] = True
        return True
