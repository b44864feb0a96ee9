"""The commands about the policy."""
