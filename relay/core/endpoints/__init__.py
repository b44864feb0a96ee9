"""Where listeners and Redis are, and what their callers may cost."""
