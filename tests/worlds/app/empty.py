"""An application without a handler."""

from relay.client import RelayClient

client = RelayClient()
