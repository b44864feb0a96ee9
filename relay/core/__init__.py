"""Values and policies. This package does no I/O, and uses only the standard library."""
