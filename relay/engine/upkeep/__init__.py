"""The loops that repair and remove."""
