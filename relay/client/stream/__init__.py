"""Deliveries over streams that the application opens."""
