"""An object store that speaks S3's protocol: moto's server, in this process. Requests can be watched, held at
a gate and refused, before it sees them; and their answers lost, after it has."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Self
from wsgiref.types import StartResponse

import boto3  # type: ignore[import-untyped]
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.pipeline.small_jvm import options

BUCKET = "timers"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "relay", "AWS_SECRET_ACCESS_KEY": "secret"}
REGION = "us-east-1"
LONGEST = 300.0
"""Seconds for which a request is held at a gate, at most."""

Rule = Callable[[str, str], tuple[int, str] | None]
"""What becomes of a request, by its method and path: a status and S3's code, or None if it goes on."""
LOST = (0, "")
"""What becomes of a request whose answer is lost: it is carried out, and then the connection breaks."""


class Gate:
    """Holds the first request that it is about, until it is opened."""

    def __init__(self, method: str, part: str) -> None:
        self._about = (method, part)
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, method: str, path: str) -> None:
        if self._about[0] == method and self._about[1] in path and not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(LONGEST), "nobody opened the gate"


class ObjectStore:
    """`refuse` is asked of each request, then `gate`. `answers` has each request and its status."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._one_by_one = threading.Lock()  # moto looks and writes in two steps
        self.refuse: Rule = lambda _method, _path: None
        self.gate: Callable[[str, str], None] = lambda _method, _path: None
        self.answers: list[tuple[str, str, int]] = []
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.client().create_bucket(Bucket=BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def refusing(self, rule: Rule) -> Generator[None, None, None]:
        """Refuse requests within the block."""
        self.refuse = rule
        try:
            yield
        finally:
            self.refuse = lambda _method, _path: None

    def client(self) -> Any:
        names = {"aws_access_key_id": "relay", "aws_secret_access_key": "secret"}
        return boto3.client("s3", endpoint_url=self.url, region_name=REGION, **names)

    def names(self, prefix: str) -> list[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def content(self, key: str) -> bytes:
        body: bytes = self.client().get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return body

    @property
    def hadoop(self) -> dict[str, str]:
        """The options that the docs name, for a session, and patience.

        Race    A test holds a call at a gate until a second driver has committed. On a busy machine that
        takes longer than the 60 seconds after which S3A repeats the call, and the gate holds only the first.
        """
        return {
            "fs.s3a.endpoint": self.url,
            "fs.s3a.endpoint.region": REGION,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.request.timeout": "20m",
            "fs.s3a.connection.timeout": "20m",
        }

    @property
    def conf(self) -> list[str]:
        """The same for a command."""
        return options({f"spark.hadoop.{name}": value for name, value in self.hadoop.items()})

    @property
    def rust(self) -> dict[str, str]:
        """The same for `deltalake`."""
        return {"AWS_ENDPOINT_URL": self.url, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true", **CREDENTIALS}

    def _answer(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if not environ.get("wsgi.input_terminated"):
            size = int(environ.get("CONTENT_LENGTH") or 0)
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(size))
        refused = self.refuse(method, path)
        if refused is not None and refused != LOST:
            return self._refusal(method, path, *refused, start_response)
        self.gate(method, path)
        lines: list[Any] = []
        with self._one_by_one:
            answered = self._moto(environ, lambda *line: lines.append(line))
            try:
                body = b"".join(answered)
            finally:
                getattr(answered, "close", lambda: None)()
        (line,) = lines
        self.answers.append((method, path, int(line[0][:3])))
        if refused == LOST:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start_response(*line)
        return [body]

    def _refusal(
        self, method: str, path: str, status: int, code: str, start_response: StartResponse
    ) -> Iterable[bytes]:
        self.answers.append((method, path, status))
        told = f"<Error><Code>{code}</Code><Message>for a test</Message></Error>".encode()
        said = b"" if method == "HEAD" else told
        headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(said)))]
        start_response(f"{status} Refused", headers)
        return [said]
