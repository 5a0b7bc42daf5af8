"""`CurrentSettings`: the one owner of the settings that a node goes by at this moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.broker.settings.model import Settings
from anabranch.broker.settings.overrides import EffectiveSettings, effective, oldest_first
from anabranch.core.entities.override import SettingOverride


class CurrentSettings:
    """A node's own settings under the overrides of the cluster, for use in its event loop.

    Code that needs a setting reads it at the time of use. Code that keeps something made of
    settings subscribes. `own`: the settings that the node was started with.
    """

    def __init__(self, own: Settings) -> None:
        self.own = own
        self.now = own
        self.ignored: Mapping[str, str] = {}
        self._listeners: list[Callable[[Settings], None]] = []

    def subscribe(self, listener: Callable[[Settings], None]) -> None:
        """Calls it with the settings whenever they change from now on."""
        self._listeners.append(listener)

    def under(self, overrides: Mapping[str, SettingOverride]) -> EffectiveSettings:
        """Returns the settings as they would be under these overrides."""
        return effective(self.own, oldest_first(overrides))

    def take(self, overrides: Mapping[str, SettingOverride]) -> None:
        """The log has these overrides now: they count from here on."""
        found = self.under(overrides)
        self.ignored = found.ignored
        if found.settings != self.now:
            self.now = found.settings
            for listener in self._listeners:
                listener(self.now)
