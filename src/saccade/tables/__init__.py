"""Published tables made again with small models."""
