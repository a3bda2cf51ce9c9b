"""A model with its recipe and its task: loading, predictions, attention, reports."""
