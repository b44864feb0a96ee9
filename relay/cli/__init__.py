"""The command `relay`."""

from __future__ import annotations

import sys

NEEDS_DAEMON = "relay: the command line is not installed; install it with: pip install 'relay-timers[daemon]'"


def main() -> None:
    """The entry point: run the command and exit with its code (`relay.cli.terminal.exits`)."""
    try:
        from relay.cli.commands import app

        app(prog_name="relay")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "relay":
            raise
        print(NEEDS_DAEMON, file=sys.stderr)
        sys.exit(1)
