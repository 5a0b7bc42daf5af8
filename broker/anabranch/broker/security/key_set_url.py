"""`KeySetUrl`: a set of keys that verify tokens, fetched from where it is published.

A module of its own, as its client of HTTP takes a megabyte: nodes without such a set have none.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Final

import httpx

from anabranch.broker.errors import StartError
from anabranch.broker.logging import get_logger
from anabranch.broker.security.key_sets import VerifyingKey, keys_of_set
from anabranch.wire import clock

_BODY_BYTES_MAX: Final = 1 << 20
_FETCH_S_MAX: Final = 5.0
_AGAIN_S: Final = 10.0  # between two fetches for a `kid` that is not known

_log = get_logger()


class KeySetUrl:
    """A set of keys that is fetched. While its server does not answer, those it had go on counting
    until their time is over, and afterwards there are none.
    """

    def __init__(
        self,
        url: str,
        refresh_s: float = 300.0,
        expiry_s: float = 86_400.0,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._url = url
        self._refresh_s = refresh_s
        self._expiry_s = expiry_s
        self._now = now
        self._context = ssl.create_default_context()
        self._body = b""
        self._keys: Sequence[VerifyingKey] = ()
        self._changes = 0
        self._good_until = now()
        self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()

    @property
    def generation(self) -> int:
        return 2 * self._changes + self._is_good

    @property
    def keys(self) -> Sequence[VerifyingKey]:
        return self._keys if self._is_good else ()

    @property
    def _is_good(self) -> bool:
        return self._now() < self._good_until

    async def look_for(self, kid: str) -> None:
        async with self._fetching:
            if self._now() - self._tried_at >= _AGAIN_S:
                await self._fetch()

    async def follow(self) -> None:
        while True:
            async with self._fetching:
                await self._fetch()
            await asyncio.sleep(self._refresh_s)

    async def _fetch(self) -> None:
        self._tried_at = self._now()
        try:
            body = await self._got()
            keys = self._keys if body == self._body else keys_of_set(body, self._url, secrets=False)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must be said and tried again
            left = max(0.0, self._good_until - self._now())
            _log.warning(
                "security.key_set_not_fetched",
                url=self._url,
                why=str(error) or type(error).__name__,
                keys=len(self.keys),
                seconds_left=round(left),
                remedy="until then the keys that it had before go on",
            )
            return
        self._good_until = self._now() + self._expiry_s
        if body != self._body:
            self._body, self._keys = body, keys
            self._changes += 1
            _log.info("security.key_set_fetched", url=self._url, keys=len(keys))

    async def _got(self) -> bytes:
        body = bytearray()
        async with (
            asyncio.timeout(_FETCH_S_MAX),
            httpx.AsyncClient(
                verify=self._context, timeout=_FETCH_S_MAX, trust_env=False
            ) as client,
            client.stream("GET", self._url, headers={"Accept": "application/json"}) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise StartError(f"it answers with status {answer.status_code}, not with keys")
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > _BODY_BYTES_MAX:
                    raise StartError(f"it answers with more than {_BODY_BYTES_MAX} bytes")
        return bytes(body)
