"""Kernels of one step of decoding against PyTorch's own operations: on a GPU, or in Triton's interpreter (`make test-kernels`)."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from saccade.core.kernels import available
from saccade.decoding import Beam, Sample, decode, gpu_loop
from saccade.decoding.session import engine_of
from saccade.models.builder import Builder
from saccade.models.protocols import Seq2Seq

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = pytest.mark.skipif(
    not available(DEVICE), reason="there is neither a GPU nor Triton's interpreter"
)
TYPES = [torch.float32, torch.bfloat16]


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    most = 1e-5 if found.dtype == torch.float32 else 1e-2
    assert float((found.double() - wanted.double()).norm() / wanted.double().norm()) < most


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("rows", "heads", "groups", "width", "room", "position"),
    [(3, 2, 1, 16, 8, 0), (2, 2, 3, 24, 64, 1), (4, 1, 4, 64, 96, 40), (1, 3, 1, 8, 40, 39)],
)
def test_new_keys_are_kept_and_all_so_far_are_read(
    dtype: torch.dtype, rows: int, heads: int, groups: int, width: int, room: int, position: int
) -> None:
    from saccade.core.kernels.decode_step import read_own

    qkv = torch.randn(rows, (heads * groups + 2 * heads) * width, device=DEVICE).to(dtype)
    cache = torch.randn(rows, room, 2, heads, width, device=DEVICE).to(dtype)
    wanted_cache = cache.clone()
    pair = qkv[:, heads * groups * width :].view(rows, 2, heads, width)
    wanted_cache[:, position] = pair
    query = qkv[:, : heads * groups * width].view(rows, heads * groups, 1, width)
    keys, values = (
        wanted_cache[:, : position + 1, n].transpose(1, 2).repeat_interleave(groups, 1)
        for n in (0, 1)
    )
    wanted = F.scaled_dot_product_attention(
        query.double(), keys.double(), values.double(), scale=0.3
    )
    found = read_own(qkv, cache, torch.tensor([position], device=DEVICE), groups, 0.3)
    close(found, wanted.reshape(rows, -1))
    assert torch.equal(cache, wanted_cache)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("sentences", "beams", "heads", "groups", "width", "columns"),
    [(3, 1, 2, 1, 16, 7), (2, 5, 2, 2, 40, 33), (2, 4, 1, 1, 64, 64)],
)
def test_rows_read_the_memory_of_their_sentence(
    dtype: torch.dtype,
    sentences: int,
    beams: int,
    heads: int,
    groups: int,
    width: int,
    columns: int,
) -> None:
    from saccade.core.kernels.decode_step import read_memory

    query = torch.randn(sentences * beams, heads * groups * width, device=DEVICE).to(dtype)
    room = torch.randn(2, sentences, heads, columns + 5, width, device=DEVICE).to(dtype)
    keys, values = room[0, :, :, :columns], room[1, :, :, :columns]
    lengths = torch.randint(1, columns + 1, (sentences,), device=DEVICE)
    hidden = torch.where(
        torch.arange(columns, device=DEVICE) < lengths[:, None], 0.0, float("-inf")
    )[:, None, None].to(dtype)
    q = query.view(sentences, beams, heads * groups, width).transpose(1, 2).double()
    all_keys, all_values = (x.repeat_interleave(groups, 1).double() for x in (keys, values))
    wanted = F.scaled_dot_product_attention(q, all_keys, all_values, hidden.double(), scale=0.2)
    found = read_memory(query, keys, values, hidden, beams, groups, 0.2)
    close(found, wanted.transpose(1, 2).reshape(query.shape))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("dim", [5, 64, 200])
def test_sum_and_norm(dtype: torch.dtype, dim: int) -> None:
    from saccade.core.kernels.decode_step import add_norm

    x, y = (torch.randn(7, dim, device=DEVICE).to(dtype) for _ in range(2))
    weight, bias = (torch.randn(dim, device=DEVICE).to(dtype) for _ in range(2))
    wanted = F.layer_norm((x + y).double(), (dim,), weight.double(), bias.double(), 1e-5)
    close(add_norm(x, y, weight, bias, 1e-5), wanted)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("vocab", "top", "never"), [(13, 1, []), (50, 10, [0, 2, 3]), (1500, 6, [7]), (8, 8, [])]
)
def test_the_best_tokens_and_their_log_probabilities(
    dtype: torch.dtype, vocab: int, top: int, never: list[int]
) -> None:
    from saccade.core.kernels.decode_step import best_tokens

    # none are equal, but for rounding
    logits = torch.stack([torch.randperm(vocab) for _ in range(5)]).to(DEVICE).to(dtype) / 16
    wanted = (
        logits.float()
        .log_softmax(-1)
        .index_fill(1, torch.tensor(never, dtype=torch.long, device=DEVICE), float("-inf"))
    )
    values, tokens = best_tokens(logits, torch.tensor(never, dtype=torch.long, device=DEVICE), top)
    torch.testing.assert_close(values, wanted.topk(top, -1).values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(wanted.gather(1, tokens), values, rtol=1e-5, atol=1e-5)
    assert all(len(set(row)) == top for row in tokens.tolist())


def test_what_was_chosen_is_noted() -> None:
    from saccade.core.kernels.decode_step import note_best

    rows, room = 5, 4
    position, alive = (
        torch.tensor([1], device=DEVICE),
        torch.zeros(1, dtype=torch.long, device=DEVICE),
    )
    chosen = torch.zeros(room, 3, rows, 1, dtype=torch.long, device=DEVICE)
    kept = torch.zeros(room, 2, rows, 1, device=DEVICE)
    last, limits = (
        torch.zeros(rows, dtype=torch.long, device=DEVICE),
        torch.tensor([9, 9, 2, 9, 9], device=DEVICE),
    )
    done = torch.tensor([False, False, False, True, False], device=DEVICE)
    tokens, values = (
        torch.tensor([[5], [3], [6], [7], [8]], device=DEVICE),
        torch.arange(5.0, device=DEVICE).view(5, 1),
    )
    note_best(values, tokens, position, chosen, kept, last, limits, done, alive, eos=3)
    assert done.tolist() == [False, True, True, True, False]
    assert (position.tolist(), alive.tolist(), last.tolist()) == ([2], [2], [5, 3, 6, 7, 8])
    assert torch.equal(chosen[1, 0], tokens)
    assert torch.equal(kept[1, 0], values)
    assert int(chosen.count_nonzero()) == 5


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_keys_are_read_from_the_rows_that_wrote_them(dtype: torch.dtype) -> None:
    """As if each row's cache had been copied from those rows."""
    from saccade.core.kernels.decode_step import read_own

    rows, room, heads, width, position = 4, 48, 2, 16, 37
    cache = torch.randn(rows, room, 2, heads, width, device=DEVICE).to(dtype)
    origins = torch.randint(rows, (rows, room), device=DEVICE, dtype=torch.int32)
    qkv, at = (
        torch.randn(rows, 3 * heads * width, device=DEVICE).to(dtype),
        torch.tensor([position], device=DEVICE),
    )
    copied = cache[origins.long(), torch.arange(room, device=DEVICE)].contiguous()
    found, wanted = read_own(qkv, cache, at, 1, 0.3, origins), read_own(qkv, copied, at, 1, 0.3)
    assert torch.equal(found, wanted)
    assert torch.equal(cache[:, position], copied[:, position]), (
        "the new ones are written to a row's own cache"
    )


@pytest.mark.parametrize("residual", ["post-norm", "pre-norm"])
@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("count", [3, 1])
def test_decoding_by_kernels_chooses_the_same_tokens(
    residual: str, search: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three sentences some end before the others, and these continue in smaller buffers."""
    torch.manual_seed(0)
    sizes = {
        "dim": 16,
        "hidden": 24,
        "depth": 1,
        "heads": 2,
        "kv_heads": 1 if search == "beam" else 2,
        "dropout": 0.0,
    }
    model = (
        Builder({"family": "transformer", "residual": residual, **sizes})
        .make(Seq2Seq, 14, 14)
        .eval()
        .to(DEVICE)
    )
    source, lengths = (
        torch.randint(4, 14, (count, 5), device=DEVICE),
        torch.tensor([5, 2, 3][:count], device=DEVICE),
    )
    monkeypatch.setattr(gpu_loop, "on_cpu", True)

    def decoded() -> list[list[tuple[int, ...]]]:
        how = (
            Sample(2, 3, (0, 2), temperature=0.0)
            if search == "greedy"
            else Beam(2, 3, (0, 2), width=3)
        )
        return [
            [tuple(one.tokens) for one in each]
            for each in decode(model, source, lengths, how, [4, 12, 2][-count:])
        ]

    found = decoded()
    engine = engine_of(model, len(source))
    assert engine.kernels, "they were used"
    engine.kernels, engine.resident = False, None
    assert decoded() == found


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(24, 30), (1500, 5), (16, 600), (7, 1)])
def test_a_row_times_a_matrix(inputs: int, outputs: int, biased: bool, relu: bool) -> None:
    from saccade.core.kernels.decode_step import multiply_row

    x, weight = torch.randn(1, inputs, device=DEVICE), torch.randn(outputs, inputs, device=DEVICE)
    bias = torch.randn(outputs, device=DEVICE) if biased else None
    wanted = torch.nn.functional.linear(
        x.double(), weight.double(), None if bias is None else bias.double()
    )
    found = multiply_row(x, weight, bias, relu)
    torch.testing.assert_close(
        found.double(), wanted.relu() if relu else wanted, rtol=1e-4, atol=1e-4
    )


def test_tanh_again_and_again() -> None:
    from saccade.core.kernels.tanh_rate import run

    x = torch.linspace(-3, 3, 1500, device=DEVICE)
    wanted = x.tanh().tanh().tanh()
    assert run(x, 3) == 4500
    torch.testing.assert_close(x, wanted, rtol=1e-2, atol=2e-3)
