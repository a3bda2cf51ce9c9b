"""`saccade.explain`: self-attention of a sentence, worked out step by step."""

import warnings
from typing import Any

from torch import Tensor

from ...core.attention import EXPLAIN_RENAMED, Explanation, which_backend
from ...views.worked_steps import Worked
from . import worked_attention


def explain(
    text: Any = None, *old: Any, query: int | None = None, **parts: Any
) -> Worked | Explanation:
    """Self-attention worked out step by step: the lectures' example, or your own sentence; of one `query` alone in detail. Parts by name:
    `score`, `normalize`, `mask`, `heads`, `plain` (W = I), `scaled` (scores divided by √D).

    Given tensors, it is what it was before: `which_backend`.
    """
    if (
        old
        or isinstance(text, Tensor)
        or not set(parts) <= {"score", "normalize", "mask", "heads", "plain", "scaled"}
    ):
        warnings.warn(EXPLAIN_RENAMED, DeprecationWarning, stacklevel=2)
        return which_backend(*(() if text is None else (text,)), *old, **parts)
    words = text.split() if isinstance(text, str) else None if text is None else list(text)
    return worked_attention.explain(words, worked_attention.choose_parts(**parts), query)
