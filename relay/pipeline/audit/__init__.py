"""The audit over the lake: the workers' findings, and the report."""
