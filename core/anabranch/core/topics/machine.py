"""The machine of a scalable topic's layout, defined once, as a table (PIP-468; docs/topics.md).

It is of the same kind as the service units' (`bundles.machine`). A record names a *move*. An arrow
says the states that the move may start from, the state that it leads to, and the guards that must
hold.
"""

from __future__ import annotations

from typing import Final

from anabranch.core.bundles.guards import CONTROLLER
from anabranch.core.entities.topic import TopicMove, TopicState
from anabranch.core.log.state_machine import Arrow, StateMachine
from anabranch.core.topics.guards import (
    CHILDREN_FIT,
    ENDS_COMPLETE,
    GARBAGE_NAMED,
    LOST_AS_IT_WAS,
    PRUNABLE,
    SEGMENTS_TILE,
    TOPIC_ROOM,
)

_S, _M = TopicState, TopicMove
_OPEN: Final = (_S.STABLE, _S.PREPARING, _S.SEALING)

LAYOUTS: Final = StateMachine(
    (
        Arrow(_M.CREATE, (_S.INIT,), _S.CREATING, (CONTROLLER, SEGMENTS_TILE, TOPIC_ROOM)),
        Arrow(_M.OPEN, (_S.CREATING,), _S.STABLE, (CONTROLLER,)),
        Arrow(_M.BEGIN, (_S.STABLE,), _S.PREPARING, (CONTROLLER, CHILDREN_FIT)),
        Arrow(_M.SEALING, (_S.PREPARING,), _S.SEALING, (CONTROLLER,)),
        Arrow(_M.COMMIT, (_S.SEALING,), _S.STABLE, (CONTROLLER, ENDS_COMPLETE)),
        Arrow(_M.ABORT, (_S.PREPARING,), _S.STABLE, (CONTROLLER,)),
        Arrow(_M.PRUNE, (_S.STABLE,), _S.STABLE, (CONTROLLER, PRUNABLE)),
        Arrow(_M.CLEAR, _OPEN, None, (CONTROLLER, GARBAGE_NAMED)),
        Arrow(_M.UPDATE, _OPEN, None, (CONTROLLER,)),
        Arrow(_M.POLICY, _OPEN, None, (CONTROLLER,)),
        Arrow(_M.LOST, _OPEN, None, (CONTROLLER, LOST_AS_IT_WAS)),
        # Not while SEALING: a seal that has begun is always committed first.
        Arrow(_M.DELETE, (_S.CREATING, _S.STABLE, _S.PREPARING), _S.DELETING, (CONTROLLER,)),
        Arrow(_M.REMOVE, (_S.DELETING,), _S.INIT, (CONTROLLER,)),
    ),
    TopicState,
)
