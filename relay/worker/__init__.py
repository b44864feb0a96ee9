"""One process of an application under `relay app run`: it loads the client, and nothing of the daemon."""
