"""PyTorch's FlexAttention: masks and biases by position are compiled into one kernel. Masked blocks are skipped."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ...errors import SaccadeError
from ..masks import Mask, Predicate, any_head, check_booleans
from ..tracing import can_sync
from .call import Backend, Call, CannotCompile, not_dot_softmax, repeat_heads, table

# Imported where it is used: with the compiler and sympy, it takes as long to load as PyTorch.
if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

# Shorter calls are faster on SDPA with a dense mask, measured on an H200 by `saccade bench backends`.
GPU_MIN_LENGTH = 2048
# FlexAttention's block of queries and keys.
BLOCK_SIZE = 128
# Pairs of a mask that are evaluated at a time.
MAX_CHUNK_PAIRS = 2**26


class Flex(Backend):
    """Dot-product scores, softmax, any mask, positions that encode or add a bias by position alone."""

    def __init__(self) -> None:
        self.failed: dict[tuple[Any, ...], str] = {}  # calls whose kernel did not compile, and why
        self.compiled: set[tuple[Any, ...]] = set()

    def refuses(self, call: Call) -> str | None:
        reason, device = not_dot_softmax(call), call.q.device.type
        if reason is not None:
            return reason
        if call.dropout:
            return "it has no dropout"
        if not call.q.shape[0]:
            return "the batch is empty"
        if device == "cpu" and call.needs_grad:
            return "it has no backward on a CPU"
        if device not in ("cpu", "cuda"):
            return f"it does not run on '{device}'"
        if call.query.dtype == torch.float64:
            return "it does not run in float64"
        if device == "cuda" and min(call.query.shape[-1], call.value.shape[-1]) < 16:
            return "its GPU kernel needs heads at least 16 wide"
        return self.failed.get(signature(call)) if self.failed else None

    def rank(self, call: Call) -> int:
        if call.q.device.type == "cpu":
            return 200  # compiling takes longer than most sequences: only when asked for
        if (call.unmasked or call.causal) and not call.position.biases:
            return 30
        return 10 if call.q.shape[2] * call.key.shape[2] >= GPU_MIN_LENGTH * GPU_MIN_LENGTH else 30

    def run(self, call: Call) -> Tensor:
        import torch._dynamo
        from torch.nn.attention.flex_attention import flex_attention

        if torch.compiler.is_compiling():  # inside a compiled model it is compiled with the rest
            return attention(call, flex_attention)
        # A counter of operations does not see compiled kernels.
        if torch._C._len_torch_dispatch_stack():
            with _disable_current_modes():
                output = self.run(call)
            made: Tensor = CountOperations.apply(
                output, (*call.query.shape, *call.value.shape[-2:])
            )
            return made
        # Each kind of mask is one version. Beyond the default limit of eight, versions silently run uncompiled.
        with torch._dynamo.config.patch(recompile_limit=1024, accumulated_recompile_limit=65536):
            which, kernel = signature(call), compiled_kernel(call.q.device.type)
            if which in self.compiled:
                return attention(call, kernel)
            try:
                output = attention(call, kernel)
                if output.requires_grad:
                    # Compile the backward kernel while a fallback is possible. This frees the graph, so run forward again.
                    wanted = [x for x in (call.query, call.key, call.value) if x.requires_grad]
                    torch.autograd.grad(output, wanted, torch.zeros_like(output), allow_unused=True)
                    output = attention(call, kernel)
            except (SaccadeError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # whatever dynamo, inductor or Triton raise
                call.allowed()  # a mask or position that fails by itself raises its own error
                call.bias()
                self.failed[which] = f"its kernel does not compile here ({error_line(error)})"
                raise CannotCompile(self.failed[which]) from error
        self.compiled.add(which)
        return output


class CountOperations(torch.autograd.Function):
    """Identity. Runs meta-tensor matmuls of the kernel's size, so FlopCounterMode counts the kernel."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, sizes: tuple[int, ...]) -> Tensor:
        ctx.sizes = sizes
        multiply(*sizes)
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        multiply(*ctx.sizes)
        multiply(*ctx.sizes)
        return grad, None


def multiply(batch: int, heads: int, queries: int, width: int, keys: int, wide: int) -> None:
    """q kᵀ and the weighted sum on the meta device."""
    q, k = (torch.empty(batch * heads, n, width, device="meta") for n in (queries, keys))
    weights, v = (
        torch.empty(batch * heads, *size, device="meta") for size in ((queries, keys), (keys, wide))
    )
    torch.bmm(q, k.transpose(1, 2))
    torch.bmm(weights, v)


def signature(call: Call) -> tuple[Any, ...]:
    """Cache key of compiled kernels."""
    parts = (
        type(call.position),
        str(call.mask),
        call.q.device.type,
        call.query.dtype,
        call.needs_grad,
    )
    return *parts, call.query.shape, call.key.shape, call.value.shape


def error_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = (
        [line for line in lines if "Error" in line or "config" in line]
        or lines
        or [type(error).__name__]
    )
    return telling[0][:200]


def attention(call: Call, kernel: Any) -> Tensor:
    # A score with parameters repeats the heads of keys.
    value = repeat_heads(call.value, call.key.shape[1])
    tensors = (call.query, call.key, value)
    # The CPU kernel refuses tensors that require gradients, even under no_grad.
    if not torch.is_grad_enabled():
        tensors = (call.query.detach(), call.key.detach(), value.detach())
    make = lambda: block_mask(call.mask.mask, call.sizes, call.q.device)
    blocks = None if call.unmasked else call.mask.once("blocks", make)
    grouped = call.query.shape[1] != call.key.shape[1]
    output: Tensor = kernel(
        *tensors, score_mod=score_mod(call), block_mask=blocks, scale=call.scale, enable_gqa=grouped
    )
    return output


def score_mod(call: Call) -> Callable[..., Tensor] | None:
    """FlexAttention's score_mod: the bias computed from (h, i, j), or looked up in the dense bias."""
    position, offset = call.position, call.key.shape[2] - call.q.shape[2]
    if call.positions is None or not position.biases:
        return None
    if call.positions.in_line and position.biases_by_position:
        return lambda score, b, h, i, j: score + position.bias_at(h, i + offset, j).to(score.dtype)
    bias = call.bias()
    if bias is None:
        return None
    everywhere = bias.expand(call.sizes)
    return lambda score, b, h, i, j: score + everywhere[b, h, i, j]


@functools.cache
def compiled_kernel(device: str) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    # The C++ that torch 2.13 generates for symbolic sizes does not compile, so each size is one version on a CPU.
    # Uncompiled, it would store all scores and have no advantage over `eager`.
    return torch.compile(flex_attention, dynamic=False if device == "cpu" else None)


def block_mask(mask: Mask, sizes: tuple[int, int, int, int], device: torch.device) -> "BlockMask":
    """The BlockMask of a mask, cached by prepared masks. All pairs are evaluated only for masks without `needed`."""
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask

    batch, heads, queries, keys = sizes
    mask.check(*sizes)
    here, offset = mask.to(device), keys - queries
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    # The shape of one answer tells whether batch rows and heads differ.
    rows, planes = mask.answer(batch, heads, zero + offset, zero).shape[:2]

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return check_booleans(here(b, h, i + offset, j), mask)

    if not can_sync():
        different, apart = (size if size > 1 else None for size in (rows, planes))
        return create_block_mask(mask_mod, different, apart, queries, keys, device=str(device))
    some, every = blocks_of(here, mask_mod, (rows, planes, queries, keys), device)
    partly, wholly = list_blocks(some & ~every), list_blocks(every)
    return BlockMask.from_kv_blocks(
        *partly, *wholly, BLOCK_SIZE=BLOCK_SIZE, mask_mod=mask_mod, seq_lengths=(queries, keys)
    )


def blocks_of(
    mask: Mask, ask: Predicate, sizes: tuple[int, int, int, int], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Blocks with some allowed pair and blocks with all pairs allowed: B|1 H|1 R C."""
    rows, planes, queries, keys = sizes
    # R 1: first query position of each block.
    first = torch.arange(keys - queries, keys, BLOCK_SIZE, device=device).view(-1, 1)
    start = torch.arange(0, keys, BLOCK_SIZE, device=device)  # C
    b = torch.arange(rows, device=device).view(-1, 1, 1, 1)
    h = torch.arange(planes, device=device).view(-1, 1, 1)
    plain = mask.causal_and_keys()
    if plain is not None:
        causal, about_keys = plain
        seen = check_booleans(
            about_keys(b, h, torch.zeros_like(b), torch.arange(keys, device=device)), mask
        )
        cells = torch.nn.functional.pad(
            seen.expand(rows, planes, 1, keys), (0, -keys % BLOCK_SIZE)
        ).unflatten(3, (-1, BLOCK_SIZE))
        some = cells.any(4).expand(-1, -1, len(first), -1)
        every = cells.all(4) & (first + BLOCK_SIZE <= keys)
        if causal:
            return (some & (start < first + BLOCK_SIZE), every & (start + BLOCK_SIZE <= first + 1))
        return (some, every)
    known = mask.needed(first[:, 0].cpu().numpy(), start.cpu().numpy(), BLOCK_SIZE)
    which = (
        torch.ones(len(first), len(start), dtype=torch.bool)
        if known is None
        else torch.from_numpy(any_head(known))
    )
    at, inside = which.nonzero().to(device), torch.arange(BLOCK_SIZE, device=device)
    found = torch.zeros(2, rows, planes, len(first), len(start), dtype=torch.bool, device=device)
    for r, c in (
        part.unbind(1)
        for part in at.split(max(1, MAX_CHUNK_PAIRS // (rows * planes * BLOCK_SIZE**2)))
    ):
        i = r.view(-1, 1, 1) * BLOCK_SIZE + inside.view(-1, 1)
        j = c.view(-1, 1, 1) * BLOCK_SIZE + inside
        allowed = ask(
            b.unsqueeze(-1), h.unsqueeze(-1), i.clamp_max(queries - 1), j.clamp_max(keys - 1)
        )
        allowed = (
            (allowed & (i < queries) & (j < keys))
            .expand(rows, planes, len(r), BLOCK_SIZE, BLOCK_SIZE)
            .flatten(3)
        )
        found[0, :, :, r, c], found[1, :, :, r, c] = allowed.any(3), allowed.all(3)
    return found[0], found[1]


def list_blocks(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The number of blocks per row of blocks, and their indices first."""
    order = torch.argsort(blocks.int(), dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32), order.int().contiguous()


backend = Flex()
table.add("flex")(backend)
