"""Pure functions and values."""
