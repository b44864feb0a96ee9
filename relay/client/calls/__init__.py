"""What an application asks of a relay: timers and topics."""
