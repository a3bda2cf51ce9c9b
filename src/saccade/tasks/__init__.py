"""Tasks: what is learned, one file each: its batches, predictions and metrics."""

from . import (
    autoencoding,
    captioning,
    classification,
    image_classification,
    language,
    metrics,
    nodes,
    objectives,
    open_questions,
    questions,
    tagging,
    text_autoencoding,
    text_to_text,
    translation,
)
from .task import Task, table

__all__ = [
    "Task",
    "autoencoding",
    "captioning",
    "classification",
    "image_classification",
    "language",
    "metrics",
    "nodes",
    "objectives",
    "open_questions",
    "questions",
    "table",
    "tagging",
    "text_autoencoding",
    "text_to_text",
    "translation",
]
