"""Parts with parameters."""
