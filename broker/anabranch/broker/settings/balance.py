"""The settings of load balancing, by the names of PIP-192 and of Pulsar's broker.conf.

docs/balance.md explains them; `BalanceSettings` declares them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from anabranch.broker.settings.declared import Declared
from anabranch.broker.settings.fields import SettingFields
from anabranch.core.balance.settings import BalanceSettings, setting_name

_DECLARED: Final = Declared(BalanceSettings, setting_name)


@_DECLARED.extend
class BalanceFields(SettingFields):
    """The part of a node's settings that says when bundles move and split by themselves."""

    @cached_property
    def balance(self) -> BalanceSettings:
        """The settings that the balancer decides by; they may have `contradictions`."""
        return _DECLARED.read(self)
