"""`healthcheck`: one call of grpc.health.v1."""

from __future__ import annotations

import grpc
import typer
from grpc_health.v1 import health_pb2

from relay.cli.terminal.exits import FAILURE, fail
from relay.client.arguments import check_target
from relay.client.credentials import Credentials
from relay.client.errors import InvalidArgument


def check(target: str, timeout: float) -> None:
    """Print the status, and fail unless it is SERVING. `timeout` is in seconds."""
    try:
        check_target(target)
        shown = Credentials.from_environment().check(target)
        status, reason = ask(target, timeout, wait=True, shown=shown)
    except InvalidArgument as error:
        where = "--target: " if error.field == "target" else ""
        fail(f"{where}{error.message}", FAILURE)
    except ValueError as error:
        fail(f"--target: {error}", FAILURE)
    if not status or status == "UNIMPLEMENTED":
        fail(f"the relay at {target} does not answer: {reason}", FAILURE)
    if status != "SERVING":
        fail(f"the relay at {target} is {status}", FAILURE)
    typer.echo(status)


def ask(target: str, timeout: float, *, wait: bool, shown: Credentials | None = None) -> tuple[str, str]:
    """Return the server's health, or nothing and why there is no answer. With `wait`, a server that is away
    gets `timeout` seconds to come. `shown` are the credentials for TLS.

    UNIMPLEMENTED comes from a server that answers and does not know grpc.health.v1. Raises `ValueError` for a
    wrong target.
    """
    with _channel(target, shown or Credentials()) as channel:
        try:
            answer = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )(health_pb2.HealthCheckRequest(), timeout=timeout, wait_for_ready=wait)
        except grpc.RpcError as error:
            return _status(error), _reason(error)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status), ""


def _channel(target: str, credentials: Credentials) -> grpc.Channel:
    """Open a channel. Raises `InvalidArgument` for a file that can't be read."""
    options, secure = [("grpc.enable_http_proxy", 0), *credentials.options()], credentials.for_channel()
    if secure is None:
        return grpc.insecure_channel(target, options=options)
    return grpc.secure_channel(target, secure, options=options)


def _status(error: grpc.RpcError) -> str:
    known = isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED
    return "UNIMPLEMENTED" if known else ""


def _reason(error: grpc.RpcError) -> str:
    if not isinstance(error, grpc.Call):
        return str(error)
    return error.details() or error.code().name
