"""What proves and protects: keyrings and what they seal."""
