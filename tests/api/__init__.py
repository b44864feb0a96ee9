"""What gRPC and HTTP share: requests as values, and results as messages."""
