"""Applications for `relay app`."""
