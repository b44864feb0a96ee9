"""The engine on a clock that the test moves, over the in-memory store."""
