"""Everything that touches Redis, and nothing else does."""
