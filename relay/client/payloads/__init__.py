"""Values of the application's own types, as payloads."""
