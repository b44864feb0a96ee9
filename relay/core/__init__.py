"""Values and policies. No I/O, and nothing but the standard library."""
