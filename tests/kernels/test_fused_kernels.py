"""Kernels between the matrix products of a training against PyTorch's own operations, and whole stacks against their plain definition: on a GPU, or
in Triton's interpreter (`make test-kernels`)."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.core import kernels, positions
from saccade.core.kernels import available
from saccade.layers.block import Block
from saccade.layers.dropouts import scatter_zeros
from saccade.layers.fast import fused_stack
from saccade.layers.residuals import PreNorm
from saccade.models.builder import Builder
from saccade.models.protocols import AttendingEncoder, CausalLM, Seq2Seq

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = pytest.mark.skipif(
    not available(DEVICE), reason="there is neither a GPU nor Triton's interpreter"
)
TYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_stack, "interpret", True)
    monkeypatch.setattr(fused_stack, "works", set())
    monkeypatch.setattr(kernels, "failed", {})


def apart(found: Tensor, wanted: Tensor) -> float:
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-12))


def close(found: Tensor, wanted: Tensor, most: float) -> None:
    assert apart(found, wanted) < most, apart(found, wanted)


def all_close(found: Any, wanted: Any, most: float) -> None:
    """But for gradients that are rounding alone, as a key's bias has them."""
    largest = max(float(one.detach().norm()) for one in wanted)
    for one, other in zip(found, wanted, strict=True):
        if float(other.detach().norm()) > 1e-6 * largest:
            close(one, other, most)


def tensors(*sizes: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(size, device=DEVICE).to(dtype).requires_grad_() for size in sizes]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("centered", [True, False], ids=["layer", "rms"])
@pytest.mark.parametrize("drop", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_a_sum_and_its_norm_have_the_gradients_of_the_formula(
    dtype: torch.dtype, centered: bool, drop: float, seed: int
) -> None:
    """Of x by itself, and of x with a part: what follows the second sum reads its norm and, by what carries its gradient, the sum."""
    from saccade.core.kernels.add_norm import Stream, add_norm

    draw = random.Random(seed)
    width, batch, length = draw.choice([24, 64, 100, 520]), draw.randint(1, 3), draw.randint(1, 21)
    torch.manual_seed(seed)
    x, gain, shift = tensors((batch, length, width), (width,), (width,), dtype=torch.float32)
    part, bias = tensors((batch, length, width), (width,), dtype=dtype)
    seeds = torch.randint(2**31 - 1, (5,), dtype=torch.int32, device=DEVICE)
    norm = (gain, shift if centered else None, 1e-5)
    stream, first = add_norm(Stream(x, x), None, None, norm, (seeds, 0, 0.0), dtype)
    assert torch.equal(stream.numbers, x)
    stream, second = add_norm(stream, part, bias, norm, (seeds, 3, drop), dtype)
    assert stream.carrier.dtype == dtype
    assert not stream.numbers.requires_grad
    pulls = [torch.randn(batch, length, width, device=DEVICE).to(dtype) for _ in range(3)]
    wanted_grad = [x, part, bias, gain] + ([shift] if centered else [])
    grads = torch.autograd.grad([first, second, stream.carrier], wanted_grad, pulls)
    wide = [one.detach().double().requires_grad_() for one in (x, part, bias, gain, shift)]
    joined = wide[1] + wide[2]
    total = wide[0] + (scatter_zeros(joined, drop, seeds[3]) if drop else joined)
    if centered:
        normed = [F.layer_norm(one, (width,), wide[3], wide[4], 1e-5) for one in (wide[0], total)]
    else:
        normed = [F.rms_norm(one, (width,), wide[3], 1e-5) for one in (wide[0], total)]
    wanted = torch.autograd.grad(
        [*normed, total], wide[: len(wanted_grad)], [one.double() for one in pulls]
    )
    most = 1e-5 if dtype == torch.float32 else 1e-2
    for one, other in zip(
        (first, second, stream.numbers, *grads), (*normed, total, *wanted), strict=True
    ):
        close(one, other, most)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("drop", [0.0, 0.4])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("name", ["relu", "gelu", "gelu tanh", "swish"])
def test_an_activation_has_the_gradients_of_the_formula(
    dtype: torch.dtype, drop: float, biased: bool, name: str
) -> None:
    from saccade.core.kernels.activations import activate

    torch.manual_seed(len(name))
    x, bias = tensors((2, 11, 300), (300,), dtype=dtype)
    seeds = torch.randint(2**31 - 1, (2,), dtype=torch.int32, device=DEVICE)
    kind = ["relu", "gelu", "gelu tanh", "swish"].index(name)
    output = activate(x, bias if biased else None, kind, (seeds, 1, drop))
    wide = [one.detach().double().requires_grad_() for one in (x, bias)]
    functions = [F.relu, F.gelu, lambda one: F.gelu(one, approximate="tanh"), F.silu]
    expected = functions[kind](wide[0] + wide[1] if biased else wide[0])
    expected = scatter_zeros(expected, drop, seeds[1]) if drop else expected
    pull = torch.randn(output.shape, device=DEVICE).to(dtype)
    found = (output, *torch.autograd.grad(output, [x, bias] if biased else [x], pull))
    wanted = (expected, *torch.autograd.grad(expected, wide if biased else wide[:1], pull.double()))
    for one, other in zip(found, wanted, strict=True):
        close(one, other, 1e-5 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("smoothing", "vocab"), [(0.0, 5), (0.0, 130), (0.1, 300)])
@pytest.mark.parametrize("held", [True, False])
def test_a_loss_turns_logits_into_their_gradient(
    dtype: torch.dtype, smoothing: float, vocab: int, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saccade.core.kernels import logit_losses

    if not held:
        monkeypatch.setattr(logit_losses, "REGISTER_LOGITS", 1)
        monkeypatch.setattr(logit_losses, "CHUNK_LOGITS", 128)
        monkeypatch.setattr(logit_losses, "PROGRAMS", 4)
    torch.manual_seed(vocab)
    logits = (4 * torch.randn(9, vocab, device=DEVICE)).to(dtype)
    logits[0, 3] += 60  # a probability of nearly 1
    target = torch.randint(1, vocab, (9,), device=DEVICE)
    target[0], target[4] = 3, 0
    wide = logits.double().requires_grad_()
    wanted = F.cross_entropy(
        wide, target, ignore_index=0, label_smoothing=smoothing, reduction="none"
    )
    [slope] = torch.autograd.grad(wanted.sum(), wide)
    found = logit_losses.losses_and_slopes(logits, target, 0, smoothing)
    close(found, wanted, 1e-5)
    close(logits, slope, 1e-5 if dtype == torch.float32 else 5e-3)
    assert not logits[4].any()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("widths", [(24, 24, 24), (130, 8, 200)], ids=str)
@pytest.mark.parametrize("rows", [3, 300])
def test_parts_of_a_product_have_its_gradients(
    dtype: torch.dtype, widths: tuple[int, int, int], rows: int
) -> None:
    torch.manual_seed(rows)
    x, weight, bias = tensors((2, rows, 40), (sum(widths), 40), (sum(widths),), dtype=dtype)
    found = kernels.affine_parts(x, weight, bias, widths)
    assert found[0].grad_fn.name() == "ThreePartsBackward"  # type: ignore[union-attr]
    wide = [one.detach().double().requires_grad_() for one in (x, weight, bias)]
    wanted = F.linear(*wide).split(widths, -1)
    pulls = [
        torch.randn(one.shape, device=DEVICE).to(dtype).transpose(0, 1).contiguous().transpose(0, 1)
        for one in found
    ]
    grads = torch.autograd.grad(found, [x, weight, bias], pulls)
    others = torch.autograd.grad(wanted, wide, [pull.double() for pull in pulls])
    for one, other in zip((*found, *grads), (*wanted, *others), strict=True):
        close(one, other, 1e-5 if dtype == torch.float32 else 1e-2)
    # nobody reads the others
    read = torch.autograd.grad(kernels.affine_parts(x, weight, bias, widths)[1].sum(), bias)[0]
    close(read[widths[0] : -widths[2]], torch.full((widths[1],), 2.0 * rows, device=DEVICE), 1e-2)
    assert not read[: widths[0]].any()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("width", [2, 12, 64])
def test_rotations_are_those_of_the_formula(
    dtype: torch.dtype, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(width)
    packed = torch.randn(2, 37, 3, width, device=DEVICE).to(dtype).requires_grad_()
    x, at = packed.transpose(1, 2), positions.Positions.line(37, 37, DEVICE)
    rotary, pull = positions.Rotary(), torch.randn(2, 3, 37, width, device=DEVICE).to(dtype)
    found = []
    for plain in (False, True):
        if plain:
            monkeypatch.setitem(kernels.failed, "rotary", "for this test")
        output = rotary.encode_query(x, at.i, at)
        assert plain or type(output.grad_fn).__name__ == "RotateBackward"
        found.append((output, *torch.autograd.grad(output, packed, pull)))
    for one, other in zip(*found, strict=True):
        close(one, other, 1e-5 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 63, 300])
def test_the_gradient_of_a_bias_is_a_sum_over_rows(dtype: torch.dtype, rows: int) -> None:
    torch.manual_seed(rows)
    x, weight, bias = tensors((rows, 2, 20), (150, 20), (150,), dtype=dtype)
    output = kernels.affine(x, weight, bias)
    assert type(output.grad_fn).__name__ == "BiasGradientBackward"
    pull = torch.randn(output.shape, device=DEVICE).to(dtype)
    wide = [one.detach().double().requires_grad_() for one in (x, weight, bias)]
    wanted = F.linear(*wide)
    found = (output, *torch.autograd.grad(output, [x, weight, bias], pull))
    for one, other in zip(
        found, (wanted, *torch.autograd.grad(wanted, wide, pull.double())), strict=True
    ):
        close(one, other, 1e-5 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_head_finds_the_same_loss_by_the_kernel(
    smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saccade.layers.fast.cross_entropy import NegativeLosses

    torch.manual_seed(0)
    x, weight, bias = tensors((7, 12), (40, 12), (40,), dtype=torch.float32)
    target = torch.tensor([3, 0, 39, 5, 0, 7, 8], device=DEVICE)
    found = []
    for plain in (False, True):
        if plain:
            monkeypatch.setitem(kernels.failed, "losses", "for this test")
        output = NegativeLosses.apply(x, weight, bias, target, 0, smoothing, 4)
        found.append((output, *torch.autograd.grad(output.sum(), [x, weight, bias])))
    for one, other in zip(*found, strict=True):
        close(one, other, 1e-5)


LM = {"family": "transformer-decoder", "dim": 24, "hidden": 40, "depth": 2, "heads": 2, "dropout": 0.0,
      "feedforward": {"activation": "gelu"}}  # fmt: skip
MODELS: dict[str, tuple[dict[str, Any], Any]] = {
    "language": (LM, CausalLM),
    "relu": ({**LM, "feedforward": "mlp"}, CausalLM),
    "rms": (
        {**LM, "norm": "rms", "feedforward": {"activation": {"name": "gelu", "tanh": True}}},
        CausalLM,
    ),
    "gated": ({**LM, "feedforward": "swiglu"}, CausalLM),
    "experts": (
        {**LM, "feedforward": {"name": "experts", "count": 2, "activation": "gelu"}},
        CausalLM,
    ),
    "shared": ({**LM, "stack": "shared"}, CausalLM),
    "light": ({**LM, "mixer": "light-convolution"}, CausalLM),
    "rotary": ({**LM, "position": "rotary"}, CausalLM),
    "no bias": (
        {
            **LM,
            "mixer": {"name": "attention", "bias": False},
            "feedforward": {"name": "mlp", "bias": False, "activation": "gelu"},
        },
        CausalLM,
    ),
    "pair": ({**LM, "family": "transformer", "shared": True}, Seq2Seq),
    "transparent": ({**LM, "family": "transformer", "stack": "transparent"}, Seq2Seq),
    "encoder": ({**LM, "family": "transformer-encoder"}, AttendingEncoder),
}


def model_of(name: str, **more: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    settings, kind = MODELS[name]
    torch.manual_seed(3)
    model = (
        Builder({**settings, **more})
        .make(kind, *((30, 30) if kind is Seq2Seq else (30,)))
        .to(DEVICE)
    )
    for parameter in model.parameters():  # no bias and no gain as they start
        nn.init.normal_(parameter, std=0.1)
    tokens, lengths = (
        torch.randint(4, 30, (3, 9), device=DEVICE),
        torch.tensor([9, 4, 7], device=DEVICE),
    )
    return model, {
        CausalLM: (tokens,),
        Seq2Seq: (tokens, lengths, tokens.flip(0)),
        AttendingEncoder: (tokens, lengths),
    }[kind]


def pass_through(
    model: nn.Module, inputs: tuple[Tensor, ...], autocast: bool = False
) -> list[Tensor]:
    """The output, and the gradients of all parameters."""
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=autocast):
        output = model(*inputs).float()
    torch.manual_seed(5)
    loss = (output * torch.randn(output.shape, device=DEVICE)).sum()
    return [
        output.detach(),
        *torch.autograd.grad(loss, list(model.parameters()), allow_unused=True),
    ]


# in 16 bits another hidden unit may be above 0, which is a matter of rounding
@pytest.mark.parametrize(
    ("name", "autocast"),
    [(name, low) for name in MODELS for low in (False, True) if name != "relu" or not low],
)
def test_a_stack_computes_what_its_definition_says(
    name: str, autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = model_of(name)
    runs = list[bool]()
    plain_run = fused_stack.run
    monkeypatch.setattr(fused_stack, "run", lambda *given: runs.append(True) or plain_run(*given))
    found = pass_through(model, inputs, autocast)
    assert runs, kernels.failed
    monkeypatch.setitem(kernels.failed, "fused", "for this test")
    plain, wanted = pass_through(model, inputs, autocast), pass_through(model, inputs)
    assert len(runs) <= 2
    largest = max(float(one.norm()) for one in wanted[1:] if one is not None)
    for one, other, exact in zip(found, plain, wanted, strict=True):
        assert (one is None) == (exact is None)
        # a key's bias has no gradient but rounding
        if one is not None and float(exact.norm()) > 1e-3 * largest:
            # gradients of sums are in 16 bits here; the interpreter cuts bits off where a GPU rounds, so that they become smaller with each sum
            least = 1e-4 if not autocast else 2e-2 if kernels.interpreted() else 4e-3
            close(one, exact, least + 3 * apart(other, exact))


def test_dropout_drops_its_share_and_is_drawn_anew() -> None:
    model, inputs = model_of("language", dropout=0.5)
    one, other = (pass_through(model.train(), inputs) for _ in range(2))
    assert not torch.equal(one[0], other[0])
    torch.manual_seed(1)
    first = model(*inputs)
    torch.manual_seed(1)
    assert torch.equal(first, model(*inputs))
    same = [pass_through(model.eval(), inputs)[0] for _ in range(2)]
    assert torch.equal(*same)
    assert not kernels.failed
    # what was tried first left nothing
    assert all(parameter.grad is None for parameter in model.parameters())


class OwnBlock(Block):
    def forward(self, x: Tensor, *rest: Any, **more: Any) -> Tensor:
        return 2 * super().forward(x, *rest, **more)


class OwnResidual(PreNorm):
    def forward(self, x: Tensor, part: Any) -> Tensor:
        return x - self.dropout(part(self.norm(x)))


def test_parts_of_ones_own_are_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = model_of("language")
    stack: Any = model.decoder
    assert fused_stack.usable(stack, torch.randn(2, 3, 24, device=DEVICE))
    handle = stack.block(1).register_forward_hook(lambda *_: None)
    assert not fused_stack.is_plain(stack)
    handle.remove()
    assert fused_stack.is_plain(stack)
    stack.block(0).__class__ = OwnBlock
    assert not fused_stack.is_plain(stack)
    stack.block(0).__class__ = Block
    stack.block(1).around_mixer.__class__ = OwnResidual
    assert not fused_stack.is_plain(stack)
    stack.block(1).around_mixer.__class__ = PreNorm
    # put on a part itself, which keeps its class
    stack.block(1).feedforward.forward = lambda x: 0 * x
    assert not fused_stack.is_plain_mlp(stack.block(1).feedforward)
    assert not model(*inputs).isnan().any()
    del stack.block(1).feedforward.forward
    with monkeypatch.context() as patch:
        patch.setattr(Block, "forward", OwnBlock.forward)
        assert not fused_stack.is_plain(stack)
    seen = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert not fused_stack.usable(stack, torch.randn(2, 3, 24, device=DEVICE))
    seen.remove()
    assert fused_stack.usable(stack, torch.randn(2, 3, 24, device=DEVICE))
    with torch.no_grad():
        assert not fused_stack.usable(stack, torch.randn(2, 3, 24, device=DEVICE))
    monkeypatch.setattr(fused_stack, "rehearse", lambda *_: 1 / 0)  # as if it did not compile
    monkeypatch.setattr(fused_stack, "works", set())
    assert not fused_stack.usable(stack, torch.randn(2, 3, 24, device=DEVICE))
    model(*inputs)


def test_a_compiled_model_holds_the_kernels_as_operators() -> None:
    model, inputs = model_of("pair")
    plain = pass_through(model, inputs)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    all_close(pass_through(compiled, inputs), plain, 1e-4)


# what torch 2.11 does itself
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_loss_overwrites_logits_that_nobody_else_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from saccade.layers.fast import cross_entropy
    from saccade.training.losses import Batch, batch_loss

    monkeypatch.setattr(cross_entropy, "MAX_UNCHUNKED_LOGITS", 1)
    monkeypatch.setitem(cross_entropy.CHUNK_LOGITS, DEVICE.type, 30 * 128)
    model, (tokens,) = model_of("language")
    tokens = tokens.repeat(20, 1)
    batch = Batch((tokens,), tokens.roll(1, 1).contiguous(), 5, tokens.numel(), range(len(tokens)))
    found = []
    for one in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        loss = batch_loss(one, batch, 0.1)
        found.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    all_close(*found, 1e-4)
    monkeypatch.setitem(kernels.failed, "losses", "for this test")
    close(batch_loss(model, batch, 0.1), found[0][0], 1e-5)
