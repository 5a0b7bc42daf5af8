"""What the paths of many routes name, checked before anything else is looked at."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from anabranch.core import names
from anabranch.core.names import Namespace


async def _home(tenant: str, namespace: str) -> Namespace:
    return names.namespace(tenant, namespace)


async def _name(tenant: str, namespace: str, topic: str) -> str:
    return names.scalable_topic(tenant, namespace, topic)


Home = Annotated[Namespace, Depends(_home)]  # of `{tenant}/{namespace}`
TopicName = Annotated[str, Depends(_name)]  # of `{tenant}/{namespace}/{topic}`
