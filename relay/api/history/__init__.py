"""One timer's life."""
