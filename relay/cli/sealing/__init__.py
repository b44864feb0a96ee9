"""The commands about sealed topics."""
