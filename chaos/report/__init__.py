"""What becomes of results: docs/reliability.md."""
