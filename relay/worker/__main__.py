"""`python -m relay.worker`: what `relay app run` starts."""

from __future__ import annotations

import sys

from relay.worker.serving import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
