"""`saccade bench attention`: mechanisms through `attend` and layers, as a user calls them, forward and with gradients.

B batch, H heads, T positions, D width of a head."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core import Mechanism, attend, masks, normalizers, positions, record, scores, which_backend
from ...layers.multihead_attention import MultiHeadAttention
from .contenders import Case, Limits, Make, Plan, device_and_type

FULL, TINY = (4, 16, 4096, 64), (1, 2, 192, 32)
WINDOW, BLOCK = {"full": 256, "tiny": 32}, {"full": 64, "tiny": 16}
BOTH = 3.5  # operations of forward and backward, of which five products follow two, over those of forward
CAP = 30.0


@dataclass(frozen=True)
class Setting:
    """One row of the table: a mechanism, a mask and its peers at a size; `pairs` of a query and a key are what is left of T × T."""

    name: str
    mechanism: Mechanism
    mask: masks.Mask
    size: tuple[int, int, int, int]
    peers: Mapping[str, Callable[..., Tensor]]
    pairs: float
    tanhs: int = 0  # for each pair
    linear: bool = False

    def case(self, both: bool) -> Case:
        name = f"{self.name}, forward{' + backward' if both else ''}"
        ours = {
            "saccade": self.make(lambda q, k, v: attend(q, k, v, self.mechanism, self.mask), both)
        }
        peers = {peer: self.make(call, both) for peer, call in self.peers.items()}
        q, k, _ = self.inputs()
        return Case(
            name,
            ours,
            peers,
            lambda limits: self.limit(limits, both),
            about=which_backend(q, k, self.mechanism, self.mask).chosen,
        )

    def inputs(self) -> list[Tensor]:
        device, dtype = device_and_type()
        torch.manual_seed(0)
        return [
            torch.randn(self.size, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
        ]

    def make(self, call: Callable[..., Tensor], both: bool) -> Make:
        def build() -> Callable[[], Any]:
            qkv = self.inputs()
            if not both:
                return torch.no_grad()(lambda: call(*qkv))
            slope = torch.randn_like(qkv[0])
            wanted = [*qkv, *(one for one in self.mechanism.parameters() if one.requires_grad)]
            return lambda: torch.autograd.grad(call(*qkv), wanted, slope, allow_unused=True)

        return build

    def limit(self, limits: Limits, both: bool) -> float:
        """Two products of the pairs' queries, keys and values, or of features and values; each tensor read or written once."""
        batch, heads, length, width = self.size
        operations = 4 * batch * heads * width * (length * width if self.linear else self.pairs)
        moved = (8 if both else 4) * math.prod(self.size) * device_and_type()[1].itemsize
        tanhs = batch * heads * self.pairs * self.tanhs * (2 if both else 1)
        return limits.seconds(operations * (BOTH if both else 1), moved, tanhs)


def sdpa(**how: Any) -> Callable[..., Tensor]:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **how)


def flex(
    length: int, score_mod: Any = None, mask_mod: Any = None
) -> dict[str, Callable[..., Tensor]]:
    """FlexAttention, which is a kernel on a GPU alone."""
    device, _ = device_and_type()
    if device.type == "cpu":
        return {}
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled: Any = torch.compile(flex_attention)
    block = (
        None
        if mask_mod is None
        else create_block_mask(mask_mod, None, None, length, length, device)
    )
    return {
        "FlexAttention": lambda q, k, v: compiled(q, k, v, score_mod=score_mod, block_mask=block)
    }


class Rows(list[Setting]):
    """The rows of the table at one size, each with its peers."""

    def __init__(self, scale: str) -> None:
        super().__init__()
        self.scale, self.size = scale, FULL if scale == "full" else TINY
        self.batch, self.heads, self.length, self.width = self.size
        self.device, self.dtype = device_and_type()
        self.all, self.half = self.length**2, self.length**2 / 2
        for fill in (
            self.add_plain,
            self.add_positions,
            self.add_normalizers,
            self.add_masks,
            self.add_kernels,
        ):
            fill()

    def add(
        self,
        name: str,
        mechanism: Mechanism | None = None,
        mask: masks.Mask | None = None,
        peers: Mapping[str, Any] | None = None,
        pairs: float = 0.0,
        **more: Any,
    ) -> None:
        """A row; by default all pairs of queries and keys, without a mask, at the table's size."""
        made = (mechanism or Mechanism()).to(self.device, self.dtype)
        size = more.pop("size", self.size)
        seen = pairs or self.all
        mask = masks.full() if mask is None else mask
        self.append(Setting(name, made, mask, size, peers or {}, seen, **more))

    def add_plain(self) -> None:
        causal: dict[str, Any] = {"mask": masks.causal(), "peers": {"SDPA": sdpa(is_causal=True)}}
        if self.scale == "full":
            long, wide = (16, 16, 1024, 64), (4, 16, 4096, 128)
            self.add("causal, 16 × 1,024", **causal, pairs=1024**2 / 2, size=long)
            self.add("causal, width 128", **causal, pairs=self.half, size=wide)
        self.add("causal", **causal, pairs=self.half)
        score = scores.Additive(self.width, self.width, self.width).to(self.device, self.dtype)
        size, peers = (self.batch, 1, self.length, self.width), {"formula": formula(score)}
        self.add("additive", Mechanism(score), peers=peers, tanhs=self.width, size=size)
        cosine = lambda q, k, v: sdpa()(F.normalize(q, dim=-1) * 10, F.normalize(k, dim=-1), v)
        self.add("cosine", Mechanism(scores.Cosine(self.heads)), peers={"SDPA": cosine})
        if "soft-capped" in scores.table.names():
            by_pairs = flex(self.length, lambda s, b, h, i, j: CAP * torch.tanh(s / CAP))
            score_of: Any = scores.table["soft-capped"]
            self.add("soft-capped", Mechanism(score_of(cap=CAP)), peers=by_pairs)

    def add_positions(self) -> None:
        self.add("Shaw", Mechanism(position=positions.Shaw(self.width)))
        table = positions.T5Buckets(self.heads).to(self.device, self.dtype)
        line = positions.Positions.line(self.length, self.length, self.device)
        biased = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, table.bias(q, line, 1.0))
        by_pairs = flex(self.length, lambda s, b, h, i, j: s + table.bias_at(h, i, j))
        self.add("T5", Mechanism(position=table), peers={"SDPA and a bias": biased, **by_pairs})
        slopes = positions.Alibi(self.heads).to(self.device).slopes
        at = torch.arange(self.length, device=self.device)
        far = (at[:, None] - at).float()
        bias = torch.where(far >= 0, -slopes[:, None, None] * far, float("-inf"))
        sloping = flex(
            self.length, lambda s, b, h, i, j: s - slopes[h] * (i - j), lambda b, h, i, j: i >= j
        )
        peers = {"SDPA and a bias": sdpa(attn_mask=bias.to(self.dtype)[None]), **sloping}
        alibi = Mechanism(position=positions.Alibi(self.heads))
        self.add("ALiBi, causal", alibi, masks.causal(), peers, self.half)

    def add_normalizers(self) -> None:
        for name in ("sparsemax", "entmax-1.5", "sigmoid", "relu"):
            peers = {"SDPA's softmax": sdpa()} if name in ("sigmoid", "relu") else {}
            self.add(name, Mechanism(normalize=normalizers.table[name]()), peers=peers)

    def add_masks(self) -> None:
        near, block = WINDOW[self.scale], BLOCK[self.scale]
        window, birds = masks.causal() & masks.window(near), masks.blocks(self.length, block)
        for name, mask in ((f"window {near}", window), (f"Big Bird {block}", birds)):
            seen = mask.dense(1, 1, self.length, self.length).to(self.device)
            by_pairs = flex(self.length, mask_mod=lambda b, h, i, j, seen=seen[0, 0]: seen[i, j])
            peers = {"SDPA and a mask": sdpa(attn_mask=seen), **by_pairs}
            self.add(name, mask=mask, peers=peers, pairs=float(seen.sum()))

    def add_kernels(self) -> None:
        for name, mask, how in (
            ("linear", masks.full(), {}),
            ("linear, causal", masks.causal(), {"is_causal": True}),
        ):
            mechanism = Mechanism(scores.EluKernel(), normalizers.table["sum"]())
            self.add(name, mechanism, mask, {"SDPA's softmax": sdpa(**how)}, linear=True)


def formula(score: scores.Additive) -> Callable[..., Tensor]:
    """vᵀ tanh(W₁ q + W₂ k) as it is written, compiled on a GPU."""

    def additive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        fit = (
            torch.tanh((q @ score.w_q[0]).unsqueeze(-2) + (k @ score.w_k[0]).unsqueeze(-3))
            @ score.v[0]
        )
        return fit.softmax(-1) @ v

    return additive if device_and_type()[0].type == "cpu" else torch.compile(additive)


def recorded(scale: str) -> Case:
    """What it costs to have a record open: a layer's forward pass with one, and without."""
    device, dtype = device_and_type()
    dim, heads, length = (1024, 16, 4096) if scale == "full" else (64, 4, 192)
    layer = MultiHeadAttention(dim, heads).to(device, dtype)
    x = torch.randn(1, length, dim, device=device, dtype=dtype)

    def opened() -> Callable[[], Any]:
        def call() -> None:
            with torch.no_grad(), record(layer):
                layer(x, mask=masks.causal())

        return call

    closed = lambda: torch.no_grad()(lambda: layer(x, mask=masks.causal()))
    operations = 2 * length * dim * 4 * dim + 2 * length**2 * dim
    return Case(
        "record open, forward",
        {"open": opened},
        {"closed": closed},
        lambda limits: limits.seconds(operations),
    )


def plan(scale: str, device: torch.device) -> Plan:
    left_out = {} if device.type == "cuda" else {"FlexAttention": "a kernel on a GPU alone"}
    cases = [setting.case(both) for setting in Rows(scale) for both in (False, True)] + [
        recorded(scale)
    ]
    batch, heads, length, width = FULL if scale == "full" else TINY
    about = f"batch {batch}, {heads} heads, {length:,} positions, width {width} (additive: one head); {device_and_type()[1]}"
    return Plan(
        cases, left_out, 0.3 if scale == "full" else 0.15, about, 2.0 if scale == "full" else 0.1
    )
