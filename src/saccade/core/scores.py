"""Scores compare queries with keys. B batch, H heads, Q queries, K keys, D key width, A hidden width.

A score has three steps. Keys are prepared once per sentence, and fused kernels replace the dot products:

    scores[i, j] = compare( query(q_i), key(k_j) )

>>> import torch
>>> from saccade import scores
>>> scores.ScaledDot()(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 3, 4))
tensor([[[[2., 2., 2.],
          [2., 2., 2.]]]])
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SaccadeError
from ..registry import Table
from ..settings import Natural, Range, Width, overrides

table: Table[type[Score]] = Table("scores", "score", facts=("dim_q", "dim_k", "heads"))


class Score(nn.Module):
    """Base class of scores. Subclasses override `query`, `key`, `compare` or `scale`."""

    kernel = False  # never negative, so dividing by the row's sum gives weights
    unequal_widths = False  # queries and keys may differ in width
    needs_sum = False  # known up to a factor per row, which only the normalizer `sum` cancels

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # It would never be called: keys are prepared before queries are known.
        if "forward" in vars(cls):
            raise SaccadeError(
                f"{cls.__name__} defines `forward`; a score is `query`, `key` and `compare`: override these",
                code="override-forbidden",
            )

    @property
    def dot(self) -> bool:
        """Whether compare is scale · (query · key), as fused kernels compute it: `compare` is not overridden."""
        return not overrides(self, "compare", Score) and type(self.scale(1)) is float

    def scale(self, width: int) -> float:
        """The factor on the dot product. `width` is the width of projected queries."""
        return 1.0

    def query(self, q: Tensor) -> Tensor:
        return q

    def key(self, k: Tensor) -> Tensor:
        return k

    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """φ(q) and φ(k) of a kernel score, computed when all keys of a call are known."""
        return query, key

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        """B H Q A, B H K A → B H Q K. float16 is computed in float32, since a score may exceed 65,504."""
        if not overflows(query):
            return (query * self.scale(query.shape[-1])) @ key.transpose(-2, -1)
        with torch.autocast(query.device.type, enabled=False):
            return (query.float() * self.scale(query.shape[-1])) @ key.float().transpose(-2, -1)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.compare(*self.features(self.query(q), self.key(k)))


def overflows(x: Tensor) -> bool:
    """Whether products of x are float16, by its type or by autocast."""
    device = x.device.type
    if x.is_meta or not torch.is_autocast_enabled(device):
        return x.dtype is torch.float16
    return x.dtype is torch.float16 or torch.get_autocast_dtype(device) is torch.float16


def per_head(x: Tensor, weight: Tensor) -> Tensor:
    """x (B H N D) times one matrix per head (H D A): B H N A. A single head uses one large product."""
    check_heads(len(weight), x)
    if weight.shape[1] != x.shape[-1]:
        raise SaccadeError(
            f"the score expects vectors of width {weight.shape[1]}, got {x.shape[-1]}; build it with that width",
            code="width-differs",
        )
    return x @ weight[0] if len(weight) == 1 else torch.einsum("bhnd,hda->bhna", x, weight)


def check_heads(heads: int, x: Tensor) -> None:
    """Checks the number of heads. One set of parameters serves any number."""
    if heads not in (1, x.shape[1]):
        raise SaccadeError(
            f"the score expects {heads} heads, got {x.shape[1]}; build it with heads={x.shape[1]}",
            code="heads-differ",
        )


@table.add("dot", paper="Luong et al. 2015")
class Dot(Score):
    """q·k"""


@table.add("scaled-dot", paper="Vaswani et al. 2017")
class ScaledDot(Score):
    """q·k / √D, so that the variance of a score does not grow with the width."""

    def scale(self, width: int) -> float:
        return 1.0 / math.sqrt(width)


@table.add("soft-capped", paper="Gemma Team 2024 (Gemma 2)", example={"cap": 2.0})
class SoftCapped(ScaledDot):
    """c · tanh(q·k / (c √D)), so that no score leaves ±c, the `cap`."""

    def __init__(self, cap: Annotated[float, Range(1e-3, 1e6)] = 50.0) -> None:
        super().__init__()
        self.cap = cap

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return self.cap * torch.tanh(super().compare(query, key) / self.cap)


@table.add("bilinear", paper="Luong et al. 2015")
class Bilinear(Score):
    """qᵀ W k, Luong's multiplicative ("general") score; one W per head."""

    unequal_widths = True

    def __init__(self, dim_q: int, dim_k: int, heads: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, dim_q, dim_k))
        nn.init.uniform_(self.weight, -1 / math.sqrt(dim_q), 1 / math.sqrt(dim_q))

    def query(self, q: Tensor) -> Tensor:
        return per_head(q, self.weight)


@table.add("reduced-rank", paper="Luong et al. 2015; Vaswani et al. 2017", example={"rank": 3})
class ReducedRank(Score):
    """(U q)·(V k): a bilinear score whose matrix UᵀV has rank `rank`; one U and V per head."""

    unequal_widths = True

    def __init__(self, dim_q: int, dim_k: int, rank: Width = 32, heads: int = 1) -> None:
        super().__init__()
        if rank < 1:
            raise SaccadeError(f"rank must be at least 1, got {rank}", code="rank-out-of-range")
        self.u = nn.Parameter(torch.empty(heads, dim_q, rank))
        self.v = nn.Parameter(torch.empty(heads, dim_k, rank))
        for parameter, width in ((self.u, dim_q), (self.v, dim_k)):
            nn.init.normal_(parameter, std=1 / math.sqrt(width))

    def query(self, q: Tensor) -> Tensor:
        return per_head(q, self.u)

    def key(self, k: Tensor) -> Tensor:
        return per_head(k, self.v)


@table.add("additive", paper="Bahdanau et al. 2015", example={"hidden": 5})
class Additive(Score):
    """vᵀ tanh(W₁ q + W₂ k); one set of parameters per head, `hidden` wide (as wide as a query when not given).

    With more `layers`, each further one makes tanh(U (W₂ k) + b) of a key before that, as the code of Xu et al. 2015 does for images.
    Some slides write `W · tanh(q + k)`: the same with the projections W₁ and W₂ taken into q and k.
    """

    unequal_widths = True

    def __init__(
        self,
        dim_q: int,
        dim_k: int,
        hidden: Annotated[int | None, Range(1, 65536)] = None,
        heads: int = 1,
        layers: Annotated[int, Range(1, 16)] = 1,
    ) -> None:
        super().__init__()
        hidden = dim_q if hidden is None else hidden
        if min(hidden, heads) < 1:
            raise SaccadeError(
                f"hidden and heads must be at least 1, got {hidden} and {heads}",
                code="size-out-of-range",
            )
        self.w_q = nn.Parameter(torch.empty(heads, dim_q, hidden))
        self.w_k = nn.Parameter(torch.empty(heads, dim_k, hidden))
        self.v = nn.Parameter(torch.empty(heads, hidden))
        for parameter, width in ((self.w_q, dim_q), (self.w_k, dim_k), (self.v, hidden)):
            nn.init.uniform_(parameter, -1 / math.sqrt(width), 1 / math.sqrt(width))
        more = range(layers - 1)
        self.deeper = nn.ParameterList(
            nn.init.orthogonal_(torch.empty(heads, hidden, hidden)) for _ in more
        )
        self.biases = nn.ParameterList(torch.zeros(heads, 1, hidden) for _ in more)

    def query(self, q: Tensor) -> Tensor:
        return per_head(q, self.w_q)

    def key(self, k: Tensor) -> Tensor:
        k = per_head(k, self.w_k)
        for u, b in zip(self.deeper, self.biases, strict=True):
            k = torch.tanh(per_head(k, u) + b)
        return k

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        fit = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))  # B H Q K A
        return fit @ self.v[0] if len(self.v) == 1 else torch.einsum("bhqka,ha->bhqk", fit, self.v)


@table.add("cosine", paper="Graves et al. 2014")
class Cosine(Score):
    """β · q·k / (‖q‖‖k‖) with a learned sharpness β > 0 (kept as its logarithm), one per head."""

    def __init__(
        self, heads: int = 1, sharpness: Annotated[float, Range(1e-6, 1e6)] = 10.0
    ) -> None:
        super().__init__()
        if sharpness <= 0:
            raise SaccadeError(
                f"sharpness must be above 0, got {sharpness}", code="sharpness-out-of-range"
            )
        self.log_sharpness = nn.Parameter(torch.full((heads, 1, 1), math.log(sharpness)))

    def query(self, q: Tensor) -> Tensor:
        check_heads(len(self.log_sharpness), q)
        return unit_length(q) * self.log_sharpness.exp().to(q.dtype)

    def key(self, k: Tensor) -> Tensor:
        return unit_length(k)


def unit_length(x: Tensor) -> Tensor:
    """Normalizes vectors to length 1; zeros stay zeros. float16 is too narrow for the ε."""
    return F.normalize(x.float() if x.dtype is torch.float16 else x, dim=-1).to(x.dtype)


@table.add("elu-kernel", paper="Katharopoulos et al. 2020")
class EluKernel(Score):
    """φ(q)·φ(k) with φ = elu + 1: never negative; with the normalizer `sum` it is linear attention."""

    kernel = True

    def query(self, q: Tensor) -> Tensor:
        return F.elu(q) + 1

    def key(self, k: Tensor) -> Tensor:
        return F.elu(k) + 1


@table.add("favor", paper="Choromanski et al. 2021 (Performer)", example={"features": 8})
class Favor(Score):
    """φ(q)·φ(k) ≈ exp(q·k / √D): φ(x)_m = exp(ω_m·x' − ‖x'‖²/2), x' = x / D^¼, ω_m random; with the normalizer `sum` it is Performer.

    There are `features` ω, orthogonal in blocks of D. They are saved with the model, and a training draws them anew every `redraw`
    updates (0: never). Until all keys of a call are there, logarithms of φ are kept: the largest becomes 0, so that exp stays in range.
    """

    kernel = needs_sum = True
    omega: Tensor

    def __init__(self, dim_k: int, features: Width = 256, redraw: Natural = 1000) -> None:
        super().__init__()
        self.redraw = redraw
        self.register_buffer("omega", torch.empty(features, dim_k))
        if not self.omega.is_meta:
            self.draw()

    @torch.no_grad()
    def draw(self, generator: torch.Generator | None = None) -> None:
        """Draws ω from N(0, I): directions from random rotations, lengths from normal vectors."""
        features, width = self.omega.shape
        size = (-(-features // width), width, width)
        normal, other = (
            torch.randn(size, generator=generator, dtype=torch.float64, device="cpu")
            for _ in range(2)
        )
        rotation, upper = torch.linalg.qr(normal)
        # QR alone is not uniform over rotations.
        rotation = rotation * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
        self.omega.copy_((rotation * other.norm(dim=-1, keepdim=True)).flatten(0, 1)[:features])

    def before_update(self, number: int, generator: torch.Generator) -> None:
        """Redraws ω every `redraw` updates. `number` counts from 1."""
        if self.redraw and number > 1 and (number - 1) % self.redraw == 0:
            self.draw(generator)

    def logarithms(self, x: Tensor) -> Tensor:
        """log φ(x): B H N features."""
        if x.shape[-1] != self.omega.shape[1]:
            wanted = self.omega.shape[1]
            raise SaccadeError(
                f"the score expects vectors of width {wanted}, got {x.shape[-1]}; build it with that width",
                code="width-differs",
            )
        wide = torch.promote_types(x.dtype, torch.float32)
        # exp turns the rounding error of a logarithm into a relative error.
        with torch.autocast(x.device.type, enabled=False):
            scaled: Tensor = x.to(wide) * x.shape[-1] ** -0.25
            return scaled @ self.omega.to(wide).T - scaled.square().sum(-1, keepdim=True) / 2

    def query(self, q: Tensor) -> Tensor:
        return self.logarithms(q)

    def key(self, k: Tensor) -> Tensor:
        return self.logarithms(k)

    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        # One factor per row, and one for all keys: `sum` cancels both.
        query = query - query.amax(-1, keepdim=True).detach()
        key = key - key.amax((-2, -1), keepdim=True).detach()
        # The minimum gives weights to rows whose keys are all far below the largest.
        return query.exp(), key.exp().clamp_min(1e-30)
