"""Generated from proto/relay/v1 by tools/stubs.py: do not edit."""
