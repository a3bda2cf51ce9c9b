"""A kernel that needs no compiler."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from saccade.core.backends import flex, table


@pytest.fixture
def plain_flex(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """FlexAttention without its compiler: the same arithmetic in a moment."""
    monkeypatch.setattr(flex, "compiled", lambda device: flex_attention)
    monkeypatch.setattr(table["flex"], "failed", {})
    monkeypatch.setattr(table["flex"], "compiled", set())
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):  # uncompiled, it would trace itself at every call
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        yield
