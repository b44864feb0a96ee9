"""Everything that touches Redis. Nothing outside this package does."""
