"""Tasks: what is learned, one file each: its batches, predictions and metrics."""

from . import autoencoding, classification, image_classification, language, objectives, tagging, text_to_text, translation
from .task import Task, table

__all__ = [
    "Task",
    "autoencoding",
    "classification",
    "image_classification",
    "language",
    "objectives",
    "table",
    "tagging",
    "text_to_text",
    "translation",
]
