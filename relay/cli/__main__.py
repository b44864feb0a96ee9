"""`python -m relay.cli`: the same as `relay`."""

from relay.cli import main

main()
