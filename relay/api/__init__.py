"""The calls of `relay.v1`, whether they come by gRPC or by HTTP."""
