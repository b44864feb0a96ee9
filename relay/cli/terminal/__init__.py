"""What all commands share: options, output, exit codes, and the ways to a relay and to Redis."""
