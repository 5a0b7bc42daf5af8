"""Ends with status 0 if the node, or the proxy, of this container serves: its HEALTHCHECK.

It finds the port as the process does, by the environment, and asks there what is told to everybody,
so that it needs to show nothing where a cluster asks who comes. A port with TLS is asked where
there is no other one, without a look at whose certificate it has: what it is called outside does
not matter in here. Where a certificate is asked for, it shows that with which the node goes to
other ones.
"""

import os
import re
import ssl
import sys
import urllib.request

_PATH = "/readyz"
_ANSWER_S = 2
_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - to ask there


def _told(setting: str, otherwise: str = "") -> str:
    """A setting's value, by any of its spellings in the environment."""
    spellings = [setting, setting.upper()]
    if "ANABRANCH_WEB_SERVICE_HOST" not in os.environ:
        # Else a container platform has said so, of a service that is called like a setting.
        spellings.append(re.sub("(?=[A-Z])", "_", setting).upper())
    found = (os.environ.get(f"ANABRANCH_{each}") for each in spellings)
    return next((each for each in found if each is not None), otherwise)


def _url() -> str:
    address = _told("bindAddress")
    host = _EVERYWHERE.get(address, address)
    plain = _told("webServicePort", "8080")
    if plain:
        return f"http://{host}:{plain}{_PATH}"
    return f"https://{host}:{_told('webServicePortTls')}{_PATH}"


def _context() -> ssl.SSLContext:
    found = ssl.create_default_context()
    found.check_hostname = False
    found.verify_mode = ssl.CERT_NONE
    certificate = _told("brokerClientCertificateFilePath")
    if certificate:
        found.load_cert_chain(certificate, _told("brokerClientKeyFilePath") or None)
    return found


try:
    url = _url()
    context = _context() if url.startswith("https:") else None
    with urllib.request.urlopen(url, timeout=_ANSWER_S, context=context) as answer:  # noqa: S310
        sys.exit(answer.status != 200)
except OSError as error:
    sys.stderr.write(f"{error}\n")
    sys.exit(1)
