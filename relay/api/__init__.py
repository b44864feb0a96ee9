"""What callers may ask for, in the messages of `relay.v1`, whichever way they came: gRPC or HTTP."""
