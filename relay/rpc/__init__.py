"""gRPC in and out: this package translates between `relay.v1` and `relay.core`, and decides nothing."""

import os

# gRPC's own lines on standard error would mix with ours. This must be set before grpc is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
