"""A collector of OpenTelemetry that throws away what it gets. Says `{"port": …}`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc

from bench.applications.tally import say

SERVICES = (
    "opentelemetry.proto.collector.trace.v1.TraceService",
    "opentelemetry.proto.collector.metrics.v1.MetricsService",
)


def main() -> None:
    """Until somebody ends this process."""
    export: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(lambda *_: b"")
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(service, {"Export": export}) for service in SERVICES)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    say(port=port)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
