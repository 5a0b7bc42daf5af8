"""The settings of the whole cluster: records of the log change them, and each node follows.

This node checks a value before it proposes it, against its own settings and all overrides. A node
goes on whatever the log holds: it leaves out a value that it cannot use, and says so.
"""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.broker.changing import Changing
from anabranch.broker.errors import ConflictError, PreconditionError
from anabranch.broker.logging import get_logger
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings import Settings
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.settings.fields import text_of
from anabranch.broker.settings.overrides import (
    checked_override,
    effective,
    oldest_first,
    run_time_name,
)
from anabranch.core.entities.override import OVERRIDES_MAX, SettingOverride
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.records import SettingChange
from anabranch.core.log.verdicts import Verdict

_WAIT_S_MIN: Final = 5.0  # else a short operationTimeoutMillis could not be taken back


class ShownOverride(msgspec.Struct, frozen=True):
    """An override, and what this node makes of it; `ignored`: why it does not count here, or ""."""

    name: str
    override: SettingOverride
    ignored: str


class Configuration(Changing):
    """One node's configuration, for use in its event loop. `current`: the settings in force."""

    def __init__(self, runtime: Runtime, own: Settings) -> None:
        self.current = CurrentSettings(own)
        super().__init__(runtime, self.current)
        self._log = get_logger(broker=runtime.core.me)
        self.current.subscribe(self._configure)
        runtime.reconfigure = self._take
        runtime.worries.append(self._concerns)
        metrics = runtime.metrics
        metrics.gauge(
            "anabranch_setting_overrides_ignored",
            "Overrides of settings that this node cannot use and ignores.",
            lambda: len(self.current.ignored),
        )
        self._take()

    # --- what counts ----------------------------------------------------------------------

    def _take(self) -> None:
        """The log may have other overrides than before."""
        before, ignored = self.current.now, self.current.ignored
        overrides = dict(self._runtime.view.overrides())
        self.current.take(overrides)
        old = before.by_name()
        for name, value in self.current.now.by_name().items():
            if value != old[name]:
                self._log.info(
                    "settings.changed", name=name, value=text_of(value), before=text_of(old[name])
                )
        for name, why in self.current.ignored.items():
            if ignored.get(name) != why:
                value = overrides[name].value
                self._log.warning("settings.override_ignored", name=name, value=value, why=why)

    def _configure(self, settings: Settings) -> None:
        runtime = self._runtime
        runtime.core.configure(settings.node_settings(), runtime.now())
        runtime.waiting_max = settings.max_concurrent_lookup_request
        runtime.verbose = settings.balance.debug_mode_enabled

    def _concerns(self) -> list[str]:
        return [
            f"the cluster's override of {name} does not count here: {why}; change or unset it "
            "(anabranch config)"
            for name, why in self.current.ignored.items()
        ]

    # --- requests -------------------------------------------------------------------------

    def overrides(self) -> list[ShownOverride]:
        """All overrides of the cluster, by name."""
        return [
            ShownOverride(name, override, self.current.ignored.get(name, ""))
            for name, override in self._runtime.view.overrides()
        ]

    async def override(self, written: str, text: str) -> None:
        """Sets the setting for all nodes, from the record's place in the log on.

        Raises PreconditionError, with the remedy, for a setting that may not change or a value that
        cannot be used here.
        """
        try:
            name, value = checked_override(written, text)
        except InvalidInputError as error:
            raise PreconditionError(str(error)) from None

        def build() -> SettingChange | None:
            overrides = dict(self._runtime.view.overrides())
            before = overrides.pop(name, None)
            if before is not None and before.value == value:
                return None
            # The new value counts as the newest of all, because it has to fit the others.
            own = self.current.own
            found = effective(own, [*oldest_first(overrides), (name, value)])
            if name in found.ignored:
                raise PreconditionError(found.ignored[name])
            return self._written(SettingChange, before, name=name, value=value)

        def full() -> PreconditionError:
            return PreconditionError(
                f"{OVERRIDES_MAX} settings are overridden, which is all there may be: unset some"
            )

        await self._settle(build, {Verdict.TOO_MANY_OVERRIDES: full})
        if name in self.current.ignored:
            raise ConflictError(
                f"{name} is overridden by {value} now, but another change that came at the same "
                f"time contradicts it: {self.current.ignored[name]}; set one of them again"
            )

    async def withdraw(self, written: str) -> None:
        """Lets every node go by its own setting again; does nothing to one that is not overridden.

        Raises PreconditionError for a setting that may not change, and for one that other overrides
        rest on.
        """

        def build() -> SettingChange | None:
            overrides = dict(self._runtime.view.overrides())
            # One of another release can be taken away by this one.
            name = written if written in overrides else self._named(written)
            if name not in overrides:
                return None
            ignored = self.current.under(overrides).ignored
            before = overrides.pop(name)
            left = self.current.under(overrides).ignored
            for other in sorted(left.keys() - ignored.keys()):
                raise PreconditionError(
                    f"the override of {other} rests on that of {name}; unset {other} first: "
                    f"{left[other]}"
                )
            return self._deleted(SettingChange, before, name=name)

        await self._settle(build, {Verdict.UNKNOWN_OVERRIDE: None})

    def _named(self, written: str) -> str:
        try:
            return run_time_name(written)
        except InvalidInputError as error:
            raise PreconditionError(str(error)) from None

    def _operation_s(self) -> float:
        return max(_WAIT_S_MIN, super()._operation_s())
