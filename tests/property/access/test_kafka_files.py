"""Whatever a file has, it is read or refused, and quickly."""

from __future__ import annotations

import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from anabranch.access.kafka import access_of, jaas, read_access, stores
from anabranch.access.kafka.properties import NotTakenError
from anabranch.core.errors import InvalidInputError
from support.kafka_files import KAFKA_FILES, SECRETS

_STORES = [
    (KAFKA_FILES / name).read_bytes()
    for name in ("aiven-java/client.truststore.jks", "stores/client.keystore.jks")
]
_LINES = [
    line
    for file in sorted(KAFKA_FILES.glob("*/*.properties"))
    for line in file.read_bytes().splitlines()
]


@given(st.sampled_from(_STORES), st.data())
def test_a_changed_store_is_read_or_refused(content: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(content) - 1))
    changed = content[:at] + data.draw(st.binary(max_size=4)) + content[at + 1 :]
    for password in (None, SECRETS[0]):
        with contextlib.suppress(NotTakenError):
            stores.read(changed, password)


@given(st.lists(st.one_of(st.sampled_from(_LINES), st.binary(max_size=12)), max_size=8))
def test_a_file_of_any_lines_is_read_or_refused(lines: list[bytes]) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "client.properties"
        file.write_bytes(b"\n".join(lines))
        with contextlib.suppress(InvalidInputError):
            read_access(file, {}).checked()


@given(st.text(max_size=60))
def test_a_login_of_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(NotTakenError):
        jaas.logins(text)
    with contextlib.suppress(InvalidInputError):
        access_of({"sasl.jaas.config": text}).checked()
