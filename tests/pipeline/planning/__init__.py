"""A folder on the PYTHONPATH of the suite's session."""
