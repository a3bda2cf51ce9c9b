"""A stack of pre-norm blocks in training on a GPU, with what lies between its matrix products in few kernels. B batch, N positions.

`Stack.forward` is the definition. Here each sum with its dropout is one kernel with the norm that follows, in the next part or the next block, and
biases that come before an activation or a sum are added there, where their gradients cost nothing. Only parts of which nothing was changed are
run so; any other part is called as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import _has_any_global_hook

from ...core import Positions, kernels
from ...core.kernels import available, interpreted
from ...core.masks import Mask
from ...core.tracing import can_sync
from ..block import Block
from ..dropouts import Dropout
from ..feedforward import MLP, Gelu, Relu, Swish
from ..multihead_attention import MultiHeadAttention
from ..norms import LayerNorm, RMSNorm
from ..residuals import PreNorm
from .cross_entropy import multiplied

if TYPE_CHECKING:
    from ..stack import Stack

NAME = "fused"  # among the kernels that are tried once
MAX_ROW_WIDTH = 8192  # numbers of a row that one program holds
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# what a norm gives → a part's output, and a bias that is still to be added
Read = Callable[[Tensor], tuple[Tensor, Tensor | None]]
works: set[tuple[Any, ...]] = set()  # devices, types and widths that the kernels were tried for
interpret = False  # whether Triton's interpreter may run them: for tests


class Part(NamedTuple):
    """A part with the residual around it; `plain` where it reads the type that products are computed in."""

    around: PreNorm
    read: Read
    plain: bool


# methods that are not called here: where somebody has put another one on the class or on a part, the part is run as it is
PLAIN = (Block, PreNorm, LayerNorm, RMSNorm, Dropout, MLP, Gelu, Relu, Swish, nn.Linear)
SKIPPED: dict[type[nn.Module], dict[str, Any]] = {kind: {"forward": kind.forward} for kind in PLAIN}
SKIPPED[Block]["after_mixer"] = Block.after_mixer
SKIPPED[MultiHeadAttention] = {
    name: getattr(MultiHeadAttention, name) for name in ("mix", "read", "answer", "prepare")
}


def untouched(module: nn.Module | None, kind: type[nn.Module]) -> bool:
    """Whether a module is of this very class, nothing of it was replaced, and nobody listens to it."""
    if (
        type(module) is not kind
        or module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
    ):
        return False
    own = vars(module)
    return all(
        name not in own and getattr(kind, name) is method for name, method in SKIPPED[kind].items()
    )


def is_norm(module: nn.Module) -> bool:
    return untouched(module, LayerNorm) or untouched(module, RMSNorm)


def is_plain_residual(around: nn.Module | None) -> bool:
    return around is None or (
        untouched(around, PreNorm) and is_norm(around.norm) and untouched(around.dropout, Dropout)  # type: ignore[arg-type]
    )


def is_plain(stack: Stack) -> bool:
    """Whether every block is a mixer, attention to a memory and a feed-forward part with pre-norm residuals, of which nothing was changed."""
    rounds = ("around_mixer", "around_cross", "around_feedforward")
    blocks = [
        untouched(one, Block) and all(is_plain_residual(getattr(one, name)) for name in rounds)
        for one in stack
    ]
    return all(blocks) and is_norm(stack.norm)


def kind_of(activation: nn.Module) -> int | None:
    """The number by which the kernel knows an activation."""
    if untouched(activation, Gelu):
        return 2 if activation.approximate == "tanh" else 1
    return 0 if untouched(activation, Relu) else 3 if untouched(activation, Swish) else None


def is_plain_mlp(part: nn.Module | None) -> bool:
    if not untouched(part, MLP):
        return False
    assert isinstance(part, MLP)
    whole = (
        untouched(part.inner, nn.Linear)
        and untouched(part.outer, nn.Linear)
        and untouched(part.dropout, Dropout)
    )
    return whole and kind_of(part.activation) is not None


def is_plain_attention(part: nn.Module | None) -> bool:
    if not untouched(part, MultiHeadAttention):
        return False
    return untouched(part.out, nn.Linear) and untouched(part.q, nn.Linear)  # type: ignore[union-attr, arg-type]


def is_whole(stack: Stack) -> bool:
    """Whether all parts of all blocks are those that have kernels between their products, so that compiling has nothing left to join."""
    attends = all(
        is_plain_attention(block.mixer) and (block.cross is None or is_plain_attention(block.cross))
        for block in stack
    )
    return (
        attends
        and is_plain(stack)
        and all(block.feedforward is None or is_plain_mlp(block.feedforward) for block in stack)
    )


def usable(stack: Stack, x: Tensor) -> bool:
    """Whether a pass of this stack runs here: in training, where kernels run, and where none of them has failed to compile."""
    on_device = x.is_cuda or (interpret and interpreted())
    if not (
        on_device
        and torch.is_grad_enabled()
        and x.dtype in DTYPES
        and x.shape[-1] <= MAX_ROW_WIDTH
        and x.numel()
    ):
        return False
    if (
        NAME in kernels.failed
        or _has_any_global_hook()
        or not available(x.device)
        or not is_plain(stack)
    ):
        return False
    if can_sync():
        which = (x.device, x.dtype, multiplied(x), x.shape[-1], type(stack.norm))
        if which not in works:
            works.add(which)
            kernels.attempt(NAME, lambda: rehearse(x, stack))
    return NAME not in kernels.failed


def rehearse(x: Tensor, stack: Stack) -> None:
    """Runs the kernels forward and backward on a few rows of zeros, with the options of the first block: what does not compile shows here. Each is
    compiled in a thread of its own, since compilers are programs that one waits for."""
    from ...core.kernels import activations
    from ...core.kernels import add_norm as sums

    def dropped(dropout: Any) -> float:
        return float(dropout.p) if dropout.training else 0.0

    block, kind, bias = stack.block(0), multiplied(x), None
    mlp, norm, calls = block.feedforward, norm_of(stack.norm), list[Callable[[], Any]]()
    if isinstance(mlp, MLP) and is_plain_mlp(mlp):
        hidden, bias = x.detach().new_zeros(4, mlp.inner.out_features, dtype=kind), mlp.outer.bias
        calls += activations.trials(
            hidden, mlp.inner.bias, kind_of(mlp.activation) or 0, dropped(mlp.dropout)
        )
    zeros = x.detach().new_zeros(4, x.shape[-1])
    calls += sums.trials(zeros, kind, bias, norm, dropped(block.around_mixer.dropout))

    def run_here(call: Callable[[], Any]) -> None:
        with torch.cuda.device_of(zeros):  # a thread begins on the first one
            call()

    with ThreadPoolExecutor(1 if interpreted() else len(calls)) as pool:
        for _ in pool.map(run_here, calls):
            pass


def norm_of(norm: nn.Module) -> tuple[Tensor, Tensor | None, float]:
    """Gain, shift and ε."""
    assert isinstance(norm, LayerNorm | RMSNorm)
    return norm.weight, norm.bias if isinstance(norm, LayerNorm) else None, norm.eps


class Seeds:
    """One drawn number for each dropout of a pass, all drawn by one kernel."""

    def __init__(self, stack: Stack, device: torch.device) -> None:
        self.drawn = torch.randint(2**31 - 1, (4 * len(stack),), device=device, dtype=torch.int32)
        self.next = 0
        self.none = (self.drawn, 0, 0.0)

    def of(self, dropout: nn.Dropout) -> tuple[Tensor, int, float]:
        """The seeds, which of them this dropout has, and its share."""
        self.next += 1
        return self.drawn, self.next - 1, dropout.p if dropout.training else 0.0


def parts_of(
    block: Block,
    seeds: Seeds,
    mask: Mask | None,
    memory: Tensor | None,
    memory_mask: Mask | None,
    positions: Positions | None,
) -> list[Part]:
    """The parts of a block in their order."""
    mixer, cross, feedforward = block.mixer, block.cross, block.feedforward
    attends, reads = is_plain_attention(mixer), is_plain_attention(cross)
    is_mlp = is_plain_mlp(feedforward)
    found = [
        Part(
            block.around_mixer,  # type: ignore[arg-type]
            lambda y: self_attention(mixer, attends, y, mask, positions),
            attends,
        )
    ]
    if block.around_cross is not None and memory is not None:
        found.append(
            Part(
                block.around_cross,  # type: ignore[arg-type]
                lambda y: cross_attention(cross, reads, y, memory, memory_mask),
                reads,
            )
        )
    if block.around_feedforward is not None:
        found.append(
            Part(
                block.around_feedforward,  # type: ignore[arg-type]
                lambda y: feed_forward(feedforward, is_mlp, y, seeds),
                is_mlp,
            )
        )
    return found


def self_attention(
    mixer: Any, plain: bool, y: Tensor, mask: Mask | None, positions: Positions | None
) -> tuple[Tensor, Tensor | None]:
    if not plain:
        return mixer.mix(y, mask, positions), None
    return last_product(mixer.out, mixer.heads_of(y, mask, positions))


def cross_attention(
    cross: Any, plain: bool, y: Tensor, memory: Tensor, mask: Mask | None
) -> tuple[Tensor, Tensor | None]:
    ready = cross.prepare(memory)
    if not plain:
        return cross.read(y, ready, mask), None
    q = kernels.affine(y, cross.q.weight, cross.q.bias)
    return last_product(cross.out, cross.found(q, ready, mask, None))


def feed_forward(part: Any, plain: bool, y: Tensor, seeds: Seeds) -> tuple[Tensor, Tensor | None]:
    if not plain:
        return part(y), None
    from ...core.kernels.activations import activate

    kind = kind_of(part.activation)
    assert kind is not None
    hidden = activate(F.linear(y, part.inner.weight), part.inner.bias, kind, seeds.of(part.dropout))
    return last_product(part.outer, hidden)


def last_product(layer: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """A linear layer without its bias, and the bias."""
    return F.linear(x, layer.weight), layer.bias


def run(
    stack: Stack,
    x: Tensor,
    mask: Mask | None,
    memory: Tensor | None,
    memory_mask: Mask | None,
    positions: Positions | None,
) -> Tensor:
    """What `Stack.forward` computes."""
    from ...core.kernels.add_norm import Stream, add_norm

    kind, seeds, stream = multiplied(x), Seeds(stack, x.device), Stream(x, x)
    # once for all blocks, unless each has its own mix of several
    if memory is not None and memory.dim() == 3:
        memory = memory.to(kind)
    part: Tensor | None = None  # of which the sum with x is still to be made
    bias, dropout = None, seeds.none
    for n, block in enumerate(stack):
        for around, read, plain in parts_of(
            block, seeds, mask, stack.memory_at(n, memory), memory_mask, positions
        ):
            dtype = kind if plain else x.dtype
            # which joins it with what comes before
            if part is None and torch.compiler.is_compiling():
                normed = around.norm(x).to(dtype)
            else:
                stream, normed = add_norm(stream, part, bias, norm_of(around.norm), dropout, dtype)
            part, bias = read(normed)
            dropout = seeds.of(around.dropout)
    assert part is not None, "a stack has a block"
    return add_norm(stream, part, bias, norm_of(stack.norm), dropout, x.dtype)[1]
