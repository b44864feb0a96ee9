"""Generated from proto/relay/journal by tools/stubs.py: do not edit."""
