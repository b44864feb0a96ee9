"""The gRPC surface, dialled by bare stubs: a real server with a real engine behind it."""
