"""The console: pages for people, on the listener of the API. It asks `relay.api`, as the other doors do."""
