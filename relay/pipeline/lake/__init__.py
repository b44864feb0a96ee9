"""The journal's lake."""
