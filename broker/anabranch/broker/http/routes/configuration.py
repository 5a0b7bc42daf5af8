"""Settings that the cluster overrides while its nodes run: `/admin/v2/brokers/configuration`."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.convertors import Convertor, register_url_convertor

from anabranch.broker.configuration import Configuration
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.configuration import OverrideData
from anabranch.broker.http.routing import DecidingRoute, Marked
from anabranch.broker.settings.overrides import RUN_TIME_SETTINGS

_Setting = Annotated[str, Path(description="The setting's name.")]
_Value = Annotated[str, Path(description="The new value; slashes may stand as they are.")]


class TextConvertor(Convertor[str]):
    """The rest of a path with any characters: a value with a line's end is refused as a value."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("text", TextConvertor())


def router(configuration: Configuration) -> APIRouter:
    """The routes of settings."""
    routes = APIRouter(
        route_class=DecidingRoute, prefix="/admin/v2/brokers/configuration", tags=["brokers"]
    )

    @routes.get("")
    async def list_dynamic_settings() -> list[str]:
        """Settings that the cluster may override while its nodes run."""
        return list(RUN_TIME_SETTINGS)

    @routes.get("/values", dependencies=[Marked])
    async def get_dynamic_settings() -> dict[str, str]:
        """The settings that are overridden, and their values."""
        return {each.name: each.override.value for each in configuration.overrides()}

    @routes.get("/overrides", dependencies=[Marked])
    async def get_overrides() -> dict[str, OverrideData]:
        """The overrides with their former values, times and brokers (Anabranch's own)."""
        return {
            each.name: OverrideData(
                value=each.override.value,
                before=each.override.before[0] if each.override.before else None,
                sinceMs=each.override.since_ms,
                broker=each.override.broker,
                ignored=each.ignored,
            )
            for each in configuration.overrides()
        }

    @routes.get("/runtime")
    async def get_settings() -> dict[str, str]:
        """The settings that this node goes by at this moment, as text."""
        values = configuration.current.now.model_dump(mode="json", by_alias=True)
        return {name: _plain(value) for name, value in values.items() if value is not None}

    @routes.post("/{setting}/{value:text}", status_code=204, responses=problems(409, 412, 503, 504))
    async def change_setting(setting: _Setting, value: _Value) -> None:
        """Overrides a setting for all nodes, at once."""
        await configuration.override(setting, value)

    @routes.delete("/{setting}", status_code=204, responses=problems(412, 503, 504))
    async def reset_setting(setting: _Setting) -> None:
        """Lets every node go by its own setting again."""
        await configuration.withdraw(setting)

    return routes


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
