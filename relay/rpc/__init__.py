"""gRPC in and out: translates between `relay.v1` and `relay.core`, and decides nothing."""

import os

# gRPC's own lines on standard error would stand between ours. Has to be set before grpc is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
