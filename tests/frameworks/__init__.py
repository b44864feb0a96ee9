"""The client's life within web frameworks, and the fixtures for pytest."""
