"""A broker of FastStream for Anabranch, with the extra `faststream`.

FastStream promises the modules under `faststream._internal`, which every broker needs, from no
minor version to the next one. So the extra takes one minor alone.

`messages`: a handler's message, and how it is settled. `publisher`: producers. `subscriber`:
consumers. `broker`: broker and router. `testing`: the broker in memory.
"""

from typing import Annotated

try:
    from faststream import Context
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'anabranch.client.faststream needs FastStream: pip install "anabranch[faststream]"'
    ) from error

from anabranch.client.faststream.broker import AnabranchBroker, AnabranchRouter
from anabranch.client.faststream.messages import ReceivedMessage
from anabranch.client.faststream.publisher import AnabranchResponse
from anabranch.client.faststream.testing import TestAnabranchBroker

AnabranchMessage = Annotated[ReceivedMessage, Context("message")]  # the type of an argument

__all__ = [
    "AnabranchBroker",
    "AnabranchMessage",
    "AnabranchResponse",
    "AnabranchRouter",
    "TestAnabranchBroker",
]
