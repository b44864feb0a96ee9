"""The way to Redis: connections, scripts, wake hints, and its errors as Relay's own."""
