"""The bytes that Redis holds: envelopes and lease records."""
