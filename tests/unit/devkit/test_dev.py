"""At which ports `dev` starts nodes, and whom its cluster knows."""

from __future__ import annotations

import stat
from pathlib import Path

import jwt
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from anabranch.access.kafka import read_access
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.ports import free_port
from anabranch.devkit.security import DevSecurity, make_role

# --- the folder of `anabranch dev --secure`, and whom it makes ------------------------------------


@pytest.fixture
def begun(tmp_path: Path) -> DevSecurity:
    security = DevSecurity(tmp_path / "security")
    security.write_exports("https://127.0.0.1:8080", "127.0.0.1:9092")
    return security


def test_token_and_certificate_are_of_one_role(begun: DevSecurity) -> None:
    exports = make_role(begun.folder, "ada")
    token = (begun.folder / "roles" / "ada.token").read_text()
    assert jwt.decode(token, begun.secret_file.read_bytes(), ["HS256"])["sub"] == "ada"
    properties = read_access(begun.folder / "roles" / "ada.properties", {}).properties
    KafkaConnection("127.0.0.1:9092", properties).admin()  # which reads all files
    file = Path(properties["ssl.certificate.location"])
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    authority = x509.load_pem_x509_certificate(begun.authority_file.read_bytes())
    certificate.verify_directly_issued_by(authority)
    assert certificate.subject.rfc4514_string() == "CN=ada"
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]  # it can be no server, of anybody
    assert exports.read_text().startswith(f". {begun.exports_file}\n")


def test_what_is_secret_only_its_owner_reads(begun: DevSecurity) -> None:
    make_role(begun.folder, "ada")
    public = {"authority.pem", "node.pem", "admin-kafka.pem", "node-kafka.pem", "ada-kafka.pem"}
    for file in begun.folder.rglob("*"):
        if file.is_file() and file.name not in public:
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_role_changes_nothing_of_the_others(begun: DevSecurity) -> None:
    before = {file: file.read_bytes() for file in begun.folder.rglob("*") if file.is_file()}
    make_role(begun.folder, "ada")
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.parametrize("role", ["", "admin", "kafka", "../ada", "a,CN=kafka", "ada\n"])
def test_who_would_be_somebody_else_is_not_made(begun: DevSecurity, role: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be made"):
        make_role(begun.folder, role)


def test_a_role_needs_a_cluster_that_has_begun(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="dev --secure"):
        make_role(tmp_path / "security", "ada")
    assert not (tmp_path / "security").exists()


# --- free ports for servers that are started one after the other ----------------------------------


HOST = "127.0.0.1"
COUNT = 1_000  # of 20,000: by chance alone some would come again


def test_a_port_that_was_given_out_is_not_given_out_again_soon() -> None:
    assert len({free_port(HOST) for _ in range(COUNT)}) == COUNT
