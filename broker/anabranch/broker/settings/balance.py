"""The settings of load balancing, by the names of PIP-192 and of Pulsar's broker.conf.

docs/balance.md explains them; `BalanceSettings` declares them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from anabranch.broker.settings.declared import Declared
from anabranch.core.balance.settings import BalanceSettings, setting_name

_DECLARED: Final = Declared(BalanceSettings, setting_name)


@_DECLARED.extend
class BalanceFields(BaseModel):
    """The part of a node's settings that says when bundles move and split by themselves."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        validate_by_name=False,
        allow_inf_nan=False,
    )

    @cached_property
    def balance(self) -> BalanceSettings:
        """The settings that the balancer decides by; they may have `contradictions`."""
        return _DECLARED.read(self)
