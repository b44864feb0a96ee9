"""`healthcheck`: one call of grpc.health.v1."""

from __future__ import annotations

import grpc
import typer
from grpc_health.v1 import health_pb2

from relay.cli.exits import FAILURE, fail


def check(target: str, timeout: float) -> None:
    """Print the status; fails unless it is SERVING. `timeout` in seconds."""
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            answer = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )(health_pb2.HealthCheckRequest(), timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            fail(f"the relay at {target} does not answer: {_reason(error)}", FAILURE)
        except ValueError as error:
            fail(f"--target: {error}", FAILURE)
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        fail(f"the relay at {target} is {status}", FAILURE)
    typer.echo(status)


def _reason(error: grpc.RpcError) -> str:
    if not isinstance(error, grpc.Call):
        return str(error)
    return error.details() or error.code().name
