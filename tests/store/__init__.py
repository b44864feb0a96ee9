"""What lies between the store's methods and Redis: envelopes, connections, errors, scripts, hints."""
