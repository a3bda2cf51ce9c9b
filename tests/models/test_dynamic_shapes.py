"""Compiled for many shapes, a model is one graph, made anew only where another kernel serves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo

from saccade.layers.fast import cross_entropy
from saccade.models.builder import Builder
from saccade.models.protocols import Seq2Seq
from saccade.training.losses import Batch, batch_loss

# rows, tokens read, tokens written
SHAPES = [(18, 8, 16), (12, 16, 8), (10, 24, 32), (7, 40, 33), (5, 64, 56)]


def batch_of(rows: int, read: int, written: int, vocab: int) -> Batch:
    source, before, target = (
        torch.randint(4, vocab, (rows, count)) for count in (read, written, written)
    )
    lengths = torch.randint(1, read + 1, (rows,))
    lengths[0] = read
    return Batch((source, lengths, before), target, 0, rows * written, range(rows))


# PyTorch's compiler about itself
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("vocab", [30, 80_000], ids=["with logits", "without"])
def test_a_translator_is_compiled_once_for_all_shapes(
    vocab: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many words the head gives losses alone, from one chunk of logits."""
    monkeypatch.setitem(cross_entropy.CHUNK_LOGITS, "cpu", cross_entropy.CHUNK_LOGITS["cuda"])
    torch.manual_seed(0)
    torch._dynamo.reset()
    sizes = {"dim": 16, "hidden": 16, "depth": 1, "heads": 2, "dropout": 0.0}
    model = (
        Builder({"family": "transformer", "shared": True, **sizes})
        .make(Seq2Seq, vocab, vocab)
        .train()
    )
    graphs = list[Any]()

    def keep(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = torch.compile(model, backend=keep, dynamic=True, fullgraph=True)
    for rows, read, written in SHAPES:
        batch = batch_of(rows * (3 if vocab > 100 else 1), read, written, vocab)
        found, wanted = batch_loss(compiled, batch, 0.1), batch_loss(model, batch, 0.1)  # type: ignore[arg-type]
        torch.testing.assert_close(found, wanted)
    assert len(graphs) == 1, "another shape, the same graph"
    torch._dynamo.reset()
