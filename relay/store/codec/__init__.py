"""What Redis holds as bytes: envelopes and lease records."""
