"""Relay measured, beside the limit of its server, bare gRPC and its peers. See docs/performance."""
