"""One suite over every store: what `relay.core.ports` promises."""
