"""What people did: recorded as they do it."""
