"""Deliveries that a relay pushes: the application listens."""
