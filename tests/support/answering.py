"""A node that answers over HTTP what the test wants."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], object]


@contextlib.contextmanager
def node(
    answer: Callable[[str, str], Answer], shown: list[str | None] | None = None
) -> Iterator[str]:
    """The address of a server that answers a verb and a path with status, headers and a body.

    Bodies are JSON, but for bytes. `shown` gets the header Authorization of each request first.
    """

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if shown is not None:
                shown.append(self.headers.get("Authorization"))
            status, headers, body = answer(self.command, self.path)
            data = body if isinstance(body, bytes) else b""
            if body is not None and not isinstance(body, bytes):
                data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = _any  # noqa: N815 - the server's names

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
