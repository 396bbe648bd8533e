"""An object store on the loopback: moto's server of S3, with a handle for failures.

One request is served after the other, so that conditions of writes hold whoever writes
at once. What it stores lives as long as the process of the tests.
"""

import contextlib
import datetime
import http.client
import os
import socket
import struct
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    create_backend_app,
)
from moto.s3.models import s3_backends
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

Request = tuple[str, str]  # Method and path.
CONDITIONS = "HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"


class _Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Says nothing."""


class Server:
    """One server; `env` leads to it.

    requests: all that it served.
    keeps_conditions: whether it looks at conditions of writes.
    is_away: whether it drops all connections.
    loses: of which request the answer is lost once it was done, if any.
    resets: of which request the connection is reset before anything is done.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.keeps_conditions, self.is_away = True, False
        self.loses: Callable[[Request], bool] = lambda request: False
        self.resets: Callable[[Request], bool] = lambda request: False
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer | None = None
        self.port = 0
        self.start()
        self.ask("PUT", "/results")

    @property
    def env(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Any:
        if self.is_away:
            raise ConnectionAbortedError("nobody is here")
        request = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if self.resets(request):
            own: socket.socket = environ["werkzeug.socket"]
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(own.detach())
            raise ConnectionAbortedError("the connection is reset")
        self.requests.append(request)
        if not self.keeps_conditions and request[0] == "PUT":
            for name in CONDITIONS:
                environ.pop(name, None)
        found = self._app(environ, start_response)
        if self.loses(request):
            raise ConnectionAbortedError("the answer is lost")
        return found

    def start(self) -> None:
        """Serve, at the same port as ever."""
        self._server = make_server(
            "127.0.0.1", self.port, self._serve, request_handler=_Silent
        )
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Be away, with all that is stored."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def age(self, name: str, seconds: float) -> None:
        """Let an object have been written earlier, by its clock."""
        (backends,) = s3_backends.values()
        own = backends["aws"].buckets["results"].keys[name]
        own.last_modified -= datetime.timedelta(seconds=seconds)

    def ask(self, method: str, path: str, content: bytes = b"") -> bytes:
        """What it says to a request of one's own, by its name in the bucket."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        signed = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=someone/1/us-east-1/s3/x"
        }
        connection.request(method, urllib.parse.quote(path), content, signed)
        answer = connection.getresponse()
        found = answer.read()
        connection.close()
        assert answer.status < 300, (method, path, answer.status, found)
        return found


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A server, to which the environment leads."""
    server = Server()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.env.items():
            patch.setenv(name, value)
        yield server
    server.stop()
