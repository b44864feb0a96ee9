"""What Relay is made of and how its image is built."""
