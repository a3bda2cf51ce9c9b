"""The way from PyTorch: every row of docs/from-torch.md gives equal numbers, layers are taken over, PyTorch's words are answered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from saccade import Mechanism, MultiHeadAttention, attend, masks, record
from saccade.core.attention import TORCH_ARGUMENTS
from saccade.errors import SaccadeError
from support import error_of

PAGE = (Path(__file__).parents[1] / "docs" / "from-torch.md").read_text(encoding="utf-8")
ROWS = [
    re.findall(r"^\| (.+) \| (.+) \|$", line)[0]
    for line in PAGE.splitlines()
    if line.startswith("| `")
]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page's own code defines."""
    found: dict[str, Any] = {}
    torch.manual_seed(3)
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)), found)
    return found


def run(cell: str, names: dict[str, Any]) -> Any:
    """All code of a cell; the last of it is its value."""
    *before, last = re.findall(r"`([^`]+)`", cell)
    for line in (*before, f"value = {last}"):
        exec(line, names)
    return names["value"]


@pytest.mark.parametrize(("theirs", "ours"), ROWS, ids=[str(n) for n in range(len(ROWS))])
def test_both_columns_of_a_row_are_equal(theirs: str, ours: str, names: dict[str, Any]) -> None:
    torch.testing.assert_close(run(ours, names), run(theirs, names), atol=1e-5, rtol=1e-5)


def test_the_page_speaks_of_every_word_that_is_answered() -> None:
    assert len(ROWS) >= 18
    for word in set(TORCH_ARGUMENTS) - {"embed_dim", "num_heads"}:
        assert word in PAGE, word


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("width", [None, 10])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_layer_taken_over_is_the_same_layer(
    bias: bool, width: int | None, batch_first: bool
) -> None:
    theirs = nn.MultiheadAttention(
        12, 3, dropout=0.1, bias=bias, kdim=width, vdim=width, batch_first=batch_first
    )
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours = MultiHeadAttention.from_torch(theirs.double().eval())
    assert (ours.dropout, ours.training, ours.q.weight.dtype) == (0.1, False, torch.float64)
    x, memory = torch.randn(2, 5, 12).double(), torch.randn(2, 7, width or 12).double()
    hidden = torch.arange(7) >= torch.tensor([7, 4])[:, None]
    allowed = torch.rand(5, 7) > 0.4
    allowed[:, 0] = True
    given = [one if batch_first else one.transpose(0, 1) for one in (x, memory, memory)]
    expected, weights = theirs(
        *given, attn_mask=~allowed, key_padding_mask=hidden, average_attn_weights=False
    )
    with record(ours) as seen:
        found = ours(x, memory, masks.matrix(allowed) & masks.padding([7, 4]))
    torch.testing.assert_close(found, expected if batch_first else expected.transpose(0, 1))
    torch.testing.assert_close(seen["attention"].weights(), weights)
    with torch.no_grad():
        theirs.out_proj.weight.zero_()
    assert ours.out.weight.abs().sum() > 0, "a copy"
    assert MultiHeadAttention.from_torch(theirs.train()).training


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda: nn.MultiheadAttention(12, 3, add_bias_kv=True), "the layer has add_bias_kv or add_zero_attn, keys that belong to no position"),
        (lambda: nn.MultiheadAttention(12, 3, add_zero_attn=True), "or add_zero_attn, keys that belong to no position"),
        (lambda: nn.MultiheadAttention(12, 3, kdim=5, vdim=7), "keys of width 5 and values of width 7; here both are read from one memory"),
        (lambda: nn.Linear(3, 3), "expected a torch.nn.MultiheadAttention, got Linear; pass the layer itself"),
    ],
)  # fmt: skip
def test_a_layer_that_cannot_be_taken_over_is_refused(made: Any, sentence: str) -> None:
    assert sentence in error_of(lambda: MultiHeadAttention.from_torch(made()))


Q, X = torch.randn(1, 2, 3, 4), torch.randn(1, 3, 8)
WORDS: list[tuple[Any, str]] = [
    (lambda: attend(Q, Q, Q, is_causal=True), "attend has no argument 'is_causal'; pass mask=masks.causal()"),
    (lambda: attend(Q, Q, Q, attn_mask=X), "attend has no argument 'attn_mask'; pass mask=masks.matrix(allowed), where 1 or True means"),
    (lambda: attend(Q, Q, Q, dropout_p=0.1), "attend has no argument 'dropout_p'; pass dropout="),
    (lambda: attend(Q, Q, Q, scale=0.1), "attend has no argument 'scale'; pass a Mechanism whose score overrides `scale`"),
    (lambda: attend(Q, Q, Q, enable_gqa=True), "attend has no argument 'enable_gqa'; leave it out: k and v may always have fewer heads"),
    (lambda: attend(Q, Q, Q, maks=masks.causal()), "attend has no argument 'maks'; did you mean 'mask'?"),
    (lambda: MultiHeadAttention(8, 2)(X, is_causal=True), "a MultiHeadAttention layer has no argument 'is_causal'; pass mask=masks.causal()"),
    (lambda: MultiHeadAttention(8, 2)(X, key_padding_mask=X), "has no argument 'key_padding_mask'; pass mask=masks.padding(lengths), or"),
    (lambda: MultiHeadAttention(8, 2)(X, need_weights=True), "has no argument 'need_weights'; open a record: `with record(layer)"),
    (lambda: MultiHeadAttention(8, 2)(X, attn_mask=X), "has no argument 'attn_mask'; pass mask=masks.matrix(allowed)"),
    (lambda: MultiHeadAttention(8, num_heads=2), "MultiHeadAttention has no argument 'num_heads'; pass heads="),
    (lambda: MultiHeadAttention(8, 2, batch_first=True), "has no argument 'batch_first'; leave it out: inputs are always batch × positions"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("work", "sentence"),
    WORDS,
    ids=[sentence.split("'")[1] + str(n) for n, (_, sentence) in enumerate(WORDS)],
)
def test_words_of_pytorch_are_answered_with_the_way_out(work: Any, sentence: str) -> None:
    with pytest.raises(TypeError) as error:
        work()
    assert isinstance(error.value, SaccadeError)
    assert sentence in str(error.value)


def test_three_tensors_are_answered_with_how_a_layer_is_called() -> None:
    layer = MultiHeadAttention(8, 2)
    sentence = error_of(lambda: layer(X, X, X))
    assert sentence.startswith(
        "the third argument is the mask, got a tensor of shape (1, 3, 8); self-attention is layer(x), and layer(x, memory)"
    )
    assert "make the layer first: MultiHeadAttention(dim, heads)(x)" in error_of(
        lambda: MultiHeadAttention(X, X, X)
    )
    for work in (
        lambda: layer(X, mask=torch.ones(3, 3, dtype=torch.bool)),
        lambda: attend(Q, Q, Q, None, torch.ones(3, 3, dtype=torch.bool)),
    ):
        assert error_of(work).startswith(
            "expected a mask, got Tensor; make one with saccade.masks, such as masks.matrix(allowed)"
        )


def test_a_recipe_sees_the_same_options_of_the_layer_as_before() -> None:
    from saccade.layers.mixers import table
    from saccade.settings import options_of

    assert "unknown" not in options_of(table, MultiHeadAttention)
    assert attend(Q, Q, Q, Mechanism()).shape == Q.shape
