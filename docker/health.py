"""Ends with status 0 if the node of this container serves: its HEALTHCHECK.

A proxy is asked by another path, which is given to it.
"""

import os
import sys
import urllib.request

port = os.environ.get("ANABRANCH_WEB_SERVICE_PORT", "8080")
path = sys.argv[1] if len(sys.argv) > 1 else "/admin/v2/brokers/health"
try:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
        sys.exit(answer.status != 200)
except OSError as error:
    sys.stderr.write(f"{error}\n")
    sys.exit(1)
