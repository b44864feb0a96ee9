"""Generated from proto/relay/journal/v1 by tools/stubs.py: do not edit."""
