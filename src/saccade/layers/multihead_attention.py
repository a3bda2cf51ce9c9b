"""Attention layers. B batch, N positions, M memory positions, H heads, D width of a head."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import _has_any_global_hook

from ..core import KeyValues, Mechanism, Positions, Ready, Site, kernels
from ..core.attention import check_kinds, check_order, hint_unknown_arguments
from ..core.masks import Mask, Matrix, Prepared
from ..core.tracing import can_sync
from ..errors import SaccadeError
from ..settings import inner, overrides
from .decoder_windows import Window
from .feedforward import initialize
from .mixers import Mixer, table

# Positions of a batch from which concatenating matrices for one product pays off.
MIN_JOINED_POSITIONS = 1024
# Matrices up to this size are concatenated faster than their products are launched on a GPU.
MAX_JOINED_NUMBERS = 1 << 22
LINEAR_FORWARD = nn.Linear.forward  # to detect a global replacement


def affine_of(layer: nn.Module) -> tuple[Tensor, Tensor | None] | None:
    """W and b of an unmodified nn.Linear without hooks, else None."""
    if (
        type(layer) is not nn.Linear
        or "forward" in layer.__dict__
        or nn.Linear.forward is not LINEAR_FORWARD
    ):
        return None
    if (
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
    ):
        return None
    # Read directly: attribute access on a module takes a tenth of a small product.
    own: Any = layer._parameters
    return (own["weight"], own["bias"]) if "weight" in own and "bias" in own else None


def project(x: Tensor, *layers: nn.Module) -> Sequence[Tensor]:
    """Applies linear layers to x, as one product if x is long and the layers are unmodified.

    Without gradients it only saves kernel launches, so it is limited to GPUs and small matrices.
    """
    given = [affine_of(layer) for layer in layers]
    if None in given or _has_any_global_hook():
        return [layer(x) for layer in layers]
    pairs: Any = given
    # An export must not depend on the length.
    if (
        len(pairs) > 1
        and not torch.compiler.is_exporting()
        and x.numel() >= MIN_JOINED_POSITIONS * x.shape[-1]
    ):
        weights = [weight for weight, _ in pairs]
        biases = [bias for _, bias in pairs if bias is not None]
        few = (
            x.is_cuda
            and x.dtype == weights[0].dtype
            and sum(weight.numel() for weight in weights) <= MAX_JOINED_NUMBERS
        )
        # Compiled and captured passes have no launches to save.
        pays = x.requires_grad or (few and can_sync())
        if pays and len(biases) in (0, len(pairs)):
            bias = torch.cat(biases) if biases else None
            return kernels.affine_parts(
                x, torch.cat(weights), bias, [weight.shape[0] for weight in weights]
            )
    return [F.linear(x, weight, bias) for weight, bias in pairs]


@table.add("attention", paper="Vaswani et al. 2017")
class MultiHeadAttention(Site, Mixer):
    """Project to q, k, v; attend in each head; project back. Self-attention, or over `memory`; with `kv_heads` fewer heads of k and v."""

    q, k, v, out, mechanism = inner(), inner(), inner(), inner(), inner()

    @hint_unknown_arguments("MultiHeadAttention")
    def __init__(
        self,
        dim: int,
        heads: int = 8,
        kv_heads: int | None = None,
        mechanism: Mechanism | None = None,
        dim_memory: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        head_width: int | None = None,
    ) -> None:
        """`layer(x)` is self-attention, `layer(x, memory)` cross-attention.

        Args:
            dim: Width of inputs and outputs.
            heads: Number of query heads.
            kv_heads: Number of key and value heads, each shared by a group of query heads. Default: `heads`.
            mechanism: Score, normalizer, mask and position. Default: scaled dot products with a softmax.
            dim_memory: Width of the memory. Default: `dim`.
            bias: Whether the four projections have a bias.
            dropout: Probability that a weight is set to zero in training.
            head_width: Width of a head. Default: dim / heads.

        >>> import torch
        >>> from saccade import MultiHeadAttention, masks
        >>> layer = MultiHeadAttention(64, heads=4)
        >>> layer(torch.randn(2, 10, 64), mask=masks.causal()).shape
        torch.Size([2, 10, 64])
        """
        super().__init__()
        if isinstance(dim, Tensor):
            raise SaccadeError(
                "expected dim, a number, got a tensor; make the layer first: MultiHeadAttention(dim, heads)(x)",
                code="not-a-number",
            )
        kv_heads = heads if kv_heads is None else kv_heads
        if heads < 1 or (dim % heads and head_width is None):
            raise SaccadeError(
                f"dim must be a multiple of heads, got dim={dim} and heads={heads}; choose heads that divide it",
                code="heads-do-not-divide",
            )
        if head_width is not None and head_width < 1:
            raise SaccadeError(
                f"head_width must be at least 1, got {head_width}; leave it out for dim / heads",
                code="size-out-of-range",
            )
        if kv_heads < 1 or heads % kv_heads:
            raise SaccadeError(
                f"heads must be a multiple of kv_heads, got {heads} and {kv_heads}; choose a divisor of {heads}",
                code="heads-do-not-divide",
            )
        if mechanism is not None and not isinstance(mechanism, Mechanism):
            raise SaccadeError(
                f"expected a Mechanism, got {mechanism!r}; pass Mechanism(score, normalize, mask, position)",
                code="not-a-mechanism",
            )
        if mechanism is not None and mechanism.position.heads not in (None, heads):
            got = (
                f"the position is made for {mechanism.position.heads} heads, the layer has {heads}"
            )
            raise SaccadeError(f"{got}; build the position with heads={heads}", code="heads-differ")
        self.heads, self.kv_heads, self.width = heads, kv_heads, head_width or dim // heads
        self.mechanism = Mechanism() if mechanism is None else mechanism
        self.dropout = dropout
        dim_memory = dim if dim_memory is None else dim_memory
        self.q = nn.Linear(dim, heads * self.width, bias)
        self.k = nn.Linear(dim_memory, kv_heads * self.width, bias)
        self.v = nn.Linear(dim_memory, kv_heads * self.width, bias)
        self.out = nn.Linear(heads * self.width, dim, bias)
        initialize(self.q, self.k, self.v, self.out)

    @classmethod
    def from_torch(cls, theirs: nn.MultiheadAttention) -> Self:
        """Converts a torch.nn.MultiheadAttention. Inputs are always batch × positions × dim, whatever its `batch_first`."""
        wrong = ""
        if not isinstance(theirs, nn.MultiheadAttention):
            wrong = f"expected a torch.nn.MultiheadAttention, got {type(theirs).__name__}; pass the layer itself"
        elif theirs.bias_k is not None or theirs.add_zero_attn:
            wrong = "the layer has add_bias_kv or add_zero_attn, keys that belong to no position, which saccade lacks; train one without"
        elif theirs.kdim != theirs.vdim:
            sizes = f"the layer has keys of width {theirs.kdim} and values of width {theirs.vdim}"
            wrong = (
                f"{sizes}; here both are read from one memory: give kdim and vdim the same value"
            )
        if wrong:
            raise SaccadeError(wrong, code="cannot-convert")
        weight, bias = theirs.in_proj_weight, theirs.in_proj_bias
        made = cls(
            theirs.embed_dim,
            theirs.num_heads,
            dim_memory=theirs.kdim,
            bias=bias is not None,
            dropout=theirs.dropout,
        )
        layers, given = (made.q, made.k, made.v, made.out), theirs.out_proj
        apart = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
        with torch.no_grad():
            for layer, one in zip(
                layers, (*(apart if weight is None else weight.chunk(3)), given.weight), strict=True
            ):
                layer.weight.copy_(one)
            for layer, one in zip(
                layers, () if bias is None else (*bias.chunk(3), given.bias), strict=False
            ):
                layer.bias.copy_(one)
        return made.to(device=given.weight.device, dtype=given.weight.dtype).train(theirs.training)

    @property
    def needs_relation(self) -> bool:  # type: ignore[override]
        return self.mechanism.position.needs_relation

    @hint_unknown_arguments("a MultiHeadAttention layer")
    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Mask | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        """Attends from x to itself or to a memory.

        Args:
            x: Input, B N dim.
            memory: Keys and values, B M dim_memory. Default: x.
            mask: Which positions may attend to which, combined (`&`) with the mechanism's mask.
            positions: Positions of queries and keys. Default: 0, 1, 2 …

        Returns:
            The output, B N dim.
        """
        self.check(x, memory, mask, positions)
        if memory is None:
            return self.mix(x, mask, positions)
        return self.read(x, self.prepare(memory, positions), mask, positions)

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        if overrides(self, "prepare", MultiHeadAttention) or overrides(
            self, "read", MultiHeadAttention
        ):
            return self.read(x, self.prepare(x, positions), mask, positions)
        q, k, v = project(x, self.q, self.k, self.v)
        return self.answer(q, self.ready(k, v, positions), mask, positions)

    def heads_of(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        """Concatenated heads of self-attention before the output projection, B N (H D)."""
        q, k, v = project(x, self.q, self.k, self.v)
        return self.found(q, self.ready(k, v, positions), mask, positions)

    def start(self, x: Tensor) -> KeyValues:
        if overrides(self, "mix", MultiHeadAttention) and not overrides(
            self, "step", MultiHeadAttention
        ):
            wrong = (
                f"{type(self).__name__} overrides `mix` alone, and `step` would attend as before"
            )
            raise SaccadeError(
                f"{wrong}; override `start` and `step` too to read position by position",
                code="override-missing",
            )
        return KeyValues()

    def step(
        self,
        x: Tensor,
        cache: KeyValues,
        mask: Mask | None = None,
        positions: Positions | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Reads the next positions x (B N dim) after the cache. Returns the output and a new cache."""
        if positions is None:
            positions = Positions.line(x.shape[1], cache.length + x.shape[1], x.device)
        # The new keys are at the positions of the queries.
        own = Positions(positions.i, positions.i, kept=positions.kept)
        new = self.prepare(x, own)
        after = cache.append(new.key, new.value)
        return self.read(
            x, Ready(after.key, after.value), mask, positions, first=cache.length
        ), after

    def prepare(self, memory: Tensor, positions: Positions | None = None) -> Ready:
        """Projects and prepares keys and values of a memory for reuse."""
        k, v = project(memory, self.k, self.v)
        return self.ready(k, v, positions)

    def ready(self, k: Tensor, v: Tensor, positions: Positions | None) -> Ready:
        k, v = self.split(k, self.kv_heads), self.split(v, self.kv_heads)
        return self.mechanism.prepare(k, v, positions, self.heads)

    def read(
        self,
        x: Tensor,
        ready: Ready,
        mask: Mask | None = None,
        positions: Positions | None = None,
        first: int = 0,
    ) -> Tensor:
        """Attends from x to prepared keys and values. `first` is the number of queries in earlier calls."""
        return self.answer(project(x, self.q)[0], ready, mask, positions, first)

    def answer(
        self,
        q: Tensor,
        ready: Ready,
        mask: Mask | None,
        positions: Positions | None,
        first: int = 0,
    ) -> Tensor:
        """From projected queries to the layer's output."""
        return project(self.found(q, ready, mask, positions, first), self.out)[0]

    def found(
        self,
        q: Tensor,
        ready: Ready,
        mask: Mask | None,
        positions: Positions | None,
        first: int = 0,
    ) -> Tensor:
        """Concatenated heads of projected queries, B N (H D)."""
        dropout = self.dropout if self.training else 0.0
        heads = self.look(self.split(q, self.heads), ready, mask, positions, dropout, first)
        return heads.transpose(1, 2).flatten(2)

    def split(self, x: Tensor, heads: int) -> Tensor:
        """B N (H D) → B H N D"""
        batch, length, _ = x.shape
        return x.view(batch, length, heads, self.width).transpose(1, 2)

    def check(
        self, x: Tensor, memory: Tensor | None, mask: Mask | None, positions: Positions | None
    ) -> None:
        """Checks the arguments of a call."""
        if isinstance(mask, Tensor) and mask.is_floating_point():
            way = "self-attention is layer(x), and layer(x, memory) reads keys and values from a memory"
            raise SaccadeError(
                f"the third argument is the mask, got a tensor of shape {tuple(mask.shape)}; {way}",
                code="argument-order",
            )
        for name, given in (("x", x), ("memory", memory)):
            if given is not None:
                self.check_input(name, given)
        mechanism, read, sizes = self.mechanism, x if memory is None else memory, x.shape
        check_kinds(mechanism, mask, positions, self.dropout)
        for name, shape, width in (
            ("x", sizes, self.q.in_features),
            ("memory", read.shape, self.k.in_features),
        ):
            if len(shape) != 3 or shape[-1] != width:
                raise SaccadeError(
                    f"{name} must be batch × positions × {width}, got shape {tuple(shape)}",
                    code="shapes-do-not-fit",
                )
        if memory is not None and memory.shape[0] != sizes[0]:
            raise SaccadeError(
                f"x is a batch of {sizes[0]}, memory a batch of {memory.shape[0]}; give one memory per row of x",
                code="batch-sizes-differ",
            )
        check_order(
            mechanism.mask,
            mask,
            sizes[1],
            read.shape[1],
            positions if type(positions) is Positions else None,
        )

    def check_input(self, name: str, x: Any) -> None:
        """Checks that an input is a tensor with the type and device of the parameters."""
        if not isinstance(x, Tensor):
            way = (
                "the order of arguments is x, memory, mask, positions; pass mask="
                if isinstance(x, Mask)
                else "pass a tensor"
            )
            raise SaccadeError(
                f"{name} must be a tensor, got {x if isinstance(x, Mask) else type(x).__name__}; {way}",
                code="not-a-tensor",
            )
        weight = (self.q if name == "x" else self.k)._parameters.get("weight")
        if weight is None:
            return
        if x.device != weight.device:
            raise SaccadeError(
                f"{name} is on {x.device}, the layer on {weight.device}; move one of them with .to(device)",
                code="devices-differ",
            )
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise SaccadeError(
                f"{name} is of {x.dtype}, the layer of {weight.dtype}; convert one of them with .to(dtype)",
                code="dtypes-differ",
            )


class Identity(nn.Module):
    """Placeholder for an omitted projection: returns x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.in_features = self.out_features = width

    def forward(self, x: Tensor) -> Tensor:
        return x


@table.add("plain-attention")
class PlainAttention(MultiHeadAttention):
    """Σ_j softmax_j(x_i·x_j) x_j: attention without projections, nothing to learn; with `heads`, in each part of x by itself."""

    def __init__(
        self, dim: int, heads: int = 8, mechanism: Mechanism | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__(dim, heads, mechanism=mechanism, dropout=dropout)
        for name in ("q", "k", "v", "out"):
            setattr(self, name, Identity(dim))


class Reader(Site):
    """Attention of an RNN decoder state to a memory (Bahdanau, Luong): one head, projected only if widths must match."""

    cross = in_order = True

    def __init__(
        self, dim_query: int, dim_memory: int, mechanism: Mechanism, window: Window | None = None
    ) -> None:
        super().__init__()
        self.mechanism, self.window = mechanism, window
        same = dim_query == dim_memory or mechanism.score.unequal_widths
        self.project: nn.Module = (
            nn.Identity() if same else nn.Linear(dim_query, dim_memory, bias=False)
        )

    def prepare(self, memory: Tensor) -> Ready:
        """Prepares the memory's keys (B 1 M A) and values once per sentence."""
        return self.mechanism.prepare(memory.unsqueeze(1), memory.unsqueeze(1))

    def forward(
        self, query: Tensor, ready: Ready, mask: Mask | None = None, first: int = 0
    ) -> Tensor:
        """query B N dim_query → contexts B N dim_memory. `first` is the number of queries in earlier calls."""
        factor = None
        if self.window is not None and not self.window.everywhere:
            assert isinstance(mask, Prepared)
            there = mask.allowed()
            near, factor = self.window(query, there.sum(-1).view(-1), there.shape[-1], first)
            mask = Matrix(near & there)
        return self.look(
            self.project(query).unsqueeze(1), ready, mask, first=first, factor=factor
        ).squeeze(1)
