"""Engines in this process: on a fake clock, or served over gRPC on the machine's."""
