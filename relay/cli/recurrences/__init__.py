"""The commands about recurrences."""
