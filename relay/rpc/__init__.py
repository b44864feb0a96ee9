"""gRPC in and out: translates between `relay.v1` and `relay.core`, and decides nothing."""
