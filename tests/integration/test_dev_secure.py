"""`anabranch dev --secure`, and what it says to do, as it is done in a shell."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import START_S_MAX, dev

pytestmark = pytest.mark.long

_PYTHON = """
import asyncio, os, pathlib
from anabranch.client import Client, Tls, Token

async def main():
    tls = Tls(ca_file=os.environ["ANABRANCH_TLS_CA"])
    token = Token(pathlib.Path(os.environ["ANABRANCH_TOKEN_FILE"]))
    lines = open(os.environ["ANABRANCH_KAFKA_PROPERTIES_FILE"]).read().splitlines()
    kafka = dict(line.split("=", 1) for line in lines)
    async with Client(SERVICE, tls=tls, credentials=token, kafka=kafka) as client:
        producer = await client.create_producer("topic://public/default/orders")
        await producer.send(b"paid", key="order-17")

asyncio.run(main())
"""


def shell(folder: Path, steps: str) -> subprocess.CompletedProcess[str]:
    """Runs these lines, of which each has to succeed."""
    command = f'anabranch() {{ {shlex.quote(sys.executable)} -m anabranch.cli "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", f"set -e\n{command}{steps}"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")},
        capture_output=True,
        text=True,
        timeout=START_S_MAX,
        check=False,
    )


def test_the_printed_exports_are_all_that_the_ordinary_steps_need(tmp_path: Path) -> None:
    with dev(tmp_path, nodes=2, flags=("--secure",)) as running:
        running.await_line("ready: 2 nodes")
        data = tmp_path / "data"
        assert [path for path in (data, *data.iterdir()) if path.stat().st_mode & 0o077] == []
        folder = data / "security"
        exports = f". {folder}/environment.sh\n"
        assert exports.strip() in running.text().splitlines()
        service = running.await_line("node-0:").split(", ")[1].split(" ")[0]
        assert service.startswith("pulsar+ssl://")
        (tmp_path / "example.py").write_text(_PYTHON.replace("SERVICE", repr(service)))
        done = shell(
            tmp_path,
            exports
            + f"""
anabranch tenants create acme
anabranch topics create public/default/orders --segments 2
{shlex.quote(sys.executable)} example.py
anabranch topics consume public/default/orders --subscription billing --max 1
anabranch doctor --acls
curl -sf --cacert "$ANABRANCH_TLS_CA" -H "Authorization: Bearer $(cat "$ANABRANCH_TOKEN_FILE")" \\
    "$ANABRANCH_URL/admin/v2/tenants"
""",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "paid" in done.stdout
        assert '"acme"' in done.stdout
        granted = shell(
            tmp_path,
            exports
            + f"""
anabranch dev-role ada --data-dir {tmp_path}/data
. {folder}/roles/ada.sh
printf 'x\\n' | anabranch topics produce public/default/orders && exit 9
. {folder}/environment.sh
anabranch permissions grant public/default ada produce consume
. {folder}/roles/ada.sh
printf 'x\\n' | anabranch topics produce public/default/orders
anabranch topics consume public/default/orders --subscription ada --max 2
""",
        )
        assert granted.returncode == 0, granted.stdout + granted.stderr
        url = f"https://127.0.0.1:{running.port}"
        assert "not trusted" in shell(tmp_path, f"anabranch tenants list --url {url}").stderr
        unnamed = f"anabranch --tls-ca {folder}/authority.pem tenants list --url {url}"
        assert "Show who you are" in shell(tmp_path, unnamed).stderr
        for secret in ("secret.key", "authority.key", "node.key", "admin.token", "node.token"):
            assert stat.S_IMODE((folder / secret).stat().st_mode) == 0o600
        for token in ("admin.token", "node.token"):
            assert (folder / token).read_text() not in running.text()
        authority = (folder / "authority.pem").read_bytes()
    with dev(tmp_path, nodes=1, flags=("--secure",)) as again:
        again.await_line("ready")
        assert (folder / "authority.pem").read_bytes() == authority
        kept = shell(tmp_path, exports + "anabranch topics list public/default")
        assert "orders" in kept.stdout, kept.stderr
