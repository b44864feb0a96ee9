"""The jobs of `relay pipeline`, and what they share."""
