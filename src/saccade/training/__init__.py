"""Training: one loop that takes a model, batches and a loss."""
