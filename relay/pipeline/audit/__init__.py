"""The audit over the lake: what the workers find, and the report."""
