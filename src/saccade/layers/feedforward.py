"""Feed-forward parts: what a block does at each position by itself. T tokens, E experts, C capacity of an expert."""

import math
from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.auxiliary_losses import add_loss
from ..errors import SaccadeError
from ..registry import Table
from ..settings import Choice, Range, choose
from .dropouts import Dropout

table: Table[type[nn.Module]] = Table(
    "feedforwards", "feed-forward part", facts=("dim", "hidden", "dropout", "n", "depth", "role")
)
activations: Table[type[nn.Module]] = Table("activations", "activation")


class Activation(nn.Module):
    """A function of one number at a time."""

    function: Callable[[Tensor], Tensor]

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def add_activation(
    name: str, function: Callable[[Tensor], Tensor], formula: str, paper: str = ""
) -> type[Activation]:
    """A class of the table, with the formula as its docstring."""
    made = type(
        name.title(),
        (Activation,),
        {"function": staticmethod(function), "__doc__": formula, "__module__": __name__},
    )
    activations.add(name, paper)(made)
    return made


Relu = add_activation("relu", F.relu, "max(x, 0)", "Nair & Hinton 2010")


@activations.add("gelu", paper="Hendrycks & Gimpel 2016")
class Gelu(nn.Module):
    """x Φ(x), Φ the normal distribution function; with `tanh` its approximation, as GPT-2 has it"""

    def __init__(self, tanh: bool = False) -> None:
        super().__init__()
        self.approximate = "tanh" if tanh else "none"

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate=self.approximate)


Swish = add_activation(
    "swish", F.silu, "x σ(x), with σ(x) = 1 / (1 + exp(−x))", "Ramachandran et al. 2017"
)
Sigmoid = add_activation("sigmoid", torch.sigmoid, "σ(x) = 1 / (1 + exp(−x))")
Elu = add_activation(
    "elu", F.elu, "x where it is positive, exp(x) − 1 elsewhere", "Clevert et al. 2016"
)
Selu = add_activation(
    "selu",
    F.selu,
    "λ x where it is positive, λ α (exp(x) − 1) elsewhere; λ ≈ 1.0507, α ≈ 1.6733",
    "Klambauer et al. 2017",
)


@activations.add("celu", paper="Barron 2017")
class Celu(nn.Module):
    """max(x, 0) + min(0, α (exp(x/α) − 1)), with one derivative from both sides of 0 for every `alpha`; with 1, as by default, it is `elu`"""

    def __init__(self, alpha: Annotated[float, Range(0.01, 100.0)] = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return F.celu(x, self.alpha)


Softplus = add_activation("softplus", F.softplus, "log(1 + exp(x))", "Dugas et al. 2001")
Linear = add_activation("linear", lambda x: x, "x, as it is")
RELU = Choice(Relu)
# a class or a name; in a recipe a name
Activating = Annotated[Callable[..., nn.Module] | str, activations]


def activation_of(given: Callable[..., nn.Module] | str) -> nn.Module:
    """An activation by its name, from its class, or as it is."""
    if isinstance(given, nn.Module):
        return given
    try:
        made = choose(activations, given, "activation")() if isinstance(given, str) else given()
    except TypeError:
        made = None
    if not isinstance(made, nn.Module):
        raise SaccadeError(
            f"expected an activation, got {given!r}; pass a name such as 'gelu', or a class such as torch.nn.GELU",
            code="unknown-activation",
        )
    return made


def initialize(*layers: nn.Linear) -> None:
    """Weights by Glorot & Bengio 2010, biases 0."""
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


@table.add("mlp", paper="Vaswani et al. 2017")
class MLP(nn.Module):
    """W₂ activation(W₁ x + b₁) + b₂"""

    def __init__(
        self,
        dim: int,
        hidden: int,
        dropout: float = 0.0,
        activation: Activating = RELU,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(dim, hidden, bias), nn.Linear(hidden, dim, bias)
        self.activation, self.dropout = activation_of(activation), Dropout(dropout)
        initialize(self.inner, self.outer)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))


@table.add("none")
class NoFeedForward(nn.Module):
    """0: a block without a feed-forward part, and without a residual around it; a control, to see what the part is for."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


class Gated(nn.Module):
    """W₂ (activation(W₁ x + b₁) ∘ (V x + c)) + b₂. With `hidden` at two thirds of an MLP's it has as many parameters."""

    gate: type[nn.Module]

    def __init__(self, dim: int, hidden: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.inner, self.linear = nn.Linear(dim, hidden, bias), nn.Linear(dim, hidden, bias)
        self.outer = nn.Linear(hidden, dim, bias)
        self.activation, self.dropout = self.gate(), Dropout(dropout)
        initialize(self.inner, self.linear, self.outer)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x)) * self.linear(x)))


for name, gate, formula, paper in (
    ("GLU", Sigmoid, "W₂ (σ(W₁ x) ∘ V x)", "Dauphin et al. 2017; Shazeer 2020"),
    ("ReGLU", Relu, "W₂ (max(W₁ x, 0) ∘ V x)", "Shazeer 2020"),
    ("SwiGLU", Swish, "W₂ (swish(W₁ x) ∘ V x)", "Shazeer 2020"),
    ("LiGLU", Linear, "W₂ (W₁ x ∘ V x)", "Shazeer 2020 (bilinear); Mnih & Hinton 2007"),
):
    table.add(name.lower(), paper)(
        type(name, (Gated,), {"gate": gate, "__doc__": formula, "__module__": __name__})
    )


@table.add("geglu", paper="Shazeer 2020")
class GeGLU(Gated):
    """W₂ (gelu(W₁ x) ∘ V x); with `tanh` by gelu's approximation, as T5 1.1 has it"""

    gate = Gelu

    def __init__(
        self, dim: int, hidden: int, dropout: float = 0.0, bias: bool = True, tanh: bool = False
    ) -> None:
        super().__init__(dim, hidden, dropout, bias)
        self.activation = Gelu(tanh)


@table.add(
    "experts",
    paper="Shazeer et al. 2017; Fedus et al. 2021 (Switch)",
    example={"count": 3, "top": 2},
)
class Experts(nn.Module):
    """Σ of the `top` likeliest of `count` MLPs, each weighted by the router's probability p = softmax(W x).

    With top = 1 it is the Switch Transformer's; with more, the probabilities are divided by their sum. In training an expert takes at
    most `capacity` times its even share of the choices, top · T / E; the residual carries what is beyond it. `balance` times the cost
    E · Σ_e f_e p̄_e (f_e: the share of tokens sent to e, p̄_e: the mean of its probability), least when all are used alike, joins the
    loss. Every `every`-th block of a stack has experts, the others an MLP; an expert is `expert_hidden` wide inside, as wide as the MLP
    by default. In training, `jitter` ε multiplies each number that the router reads by a factor drawn from [1 − ε, 1 + ε], and with a
    `threshold` t a choice after the first is used with probability gate / t (Lepikhin et al. 2021).
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        dropout: float = 0.0,
        count: Annotated[int, Range(2, 4096)] = 4,
        top: Annotated[int, Range(1, 64)] = 1,
        capacity: Annotated[float, Range(0.1, 4096.0)] = 1.25,
        balance: Annotated[float, Range(0.0, 100.0)] = 0.01,
        activation: Activating = RELU,
        bias: bool = True,
        every: Annotated[int, Range(1, 1000)] = 1,
        expert_hidden: Annotated[int | None, Range(1, 65_536)] = None,
        jitter: Annotated[float, Range(0.0, 0.99)] = 0.0,
        threshold: Annotated[float | None, Range(1e-6, 1.0)] = None,
        n: int = 0,
        depth: int = 1,
    ) -> None:
        super().__init__()
        if top > count:
            raise SaccadeError(
                f"top must be at most count, got {top} of {count} experts",
                code="experts-out-of-range",
            )
        if every > depth:
            raise SaccadeError(
                f"every={every} leaves no block with experts among {depth}; choose at most {depth}",
                code="experts-out-of-range",
            )
        self.dense = None if (n + 1) % every == 0 else MLP(dim, hidden, dropout, activation, bias)
        if self.dense is not None:
            return
        if threshold is not None and top == 1:
            raise SaccadeError(
                f"threshold={threshold} is for choices after the first, and top is 1; leave it out",
                code="setting-without-effect",
            )
        self.count, self.top, self.capacity, self.balance = count, top, capacity, balance
        self.jitter, self.threshold, hidden = jitter, threshold, expert_hidden or hidden
        self.router = nn.Linear(dim, count, bias=False)
        self.inner = nn.Parameter(torch.empty(count, dim, hidden))
        self.inner_bias = nn.Parameter(torch.zeros(count, 1, hidden)) if bias else None
        self.outer = nn.Parameter(torch.empty(count, hidden, dim))
        self.outer_bias = nn.Parameter(torch.zeros(count, 1, dim)) if bias else None
        self.activation, self.dropout = activation_of(activation), Dropout(dropout)
        nn.init.normal_(self.router.weight, std=0.02)
        for weight in (self.inner, self.outer):
            bound = math.sqrt(6 / (dim + hidden))
            nn.init.uniform_(weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        if self.dense is not None:
            return self.dense(x)
        tokens = x.flatten(0, -2)  # T dim
        gates, chosen, cost = self.route(tokens)
        even = self.training or x.is_meta  # on `meta` there are no choices to read
        output = (self.within_capacity if even else self.all_tokens)(
            tokens, gates.to(x.dtype), chosen
        ).view_as(x)
        return output if cost is None else add_loss(output, "balance", cost)

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The weights of each token's experts and their numbers, T top, and in training what an uneven use costs."""
        if self.training and self.jitter:
            tokens = tokens * torch.empty_like(tokens).uniform_(1 - self.jitter, 1 + self.jitter)
        fits = self.router(tokens)
        probabilities = fits.softmax(-1, dtype=torch.promote_types(fits.dtype, torch.float32))
        gates, chosen = probabilities.topk(self.top, -1)
        gates = gates / gates.sum(-1, keepdim=True) if self.top > 1 else gates
        if self.training and self.threshold is not None:
            used = torch.rand_like(gates) * self.threshold < gates
            gates = torch.cat([gates[:, :1], gates[:, 1:] * used[:, 1:]], -1)
        if not self.training or not self.balance:
            return gates, chosen, None
        sent = self.one_hot(chosen[:, 0]).float().mean(0)
        return gates, chosen, self.balance * self.count * (sent * probabilities.mean(0)).sum()

    def expert(self, x: Tensor, which: slice | int) -> Tensor:
        """E C dim through the experts' MLPs, or C dim through one."""
        if self.inner_bias is None or self.outer_bias is None:
            return self.dropout(self.activation(x @ self.inner[which])) @ self.outer[which]
        hidden = self.dropout(self.activation(x @ self.inner[which] + self.inner_bias[which]))
        return hidden @ self.outer[which] + self.outer_bias[which]

    def one_hot(self, chosen: Tensor) -> Tensor:
        """T → T E, without reading a number, as torch's own does on a CPU."""
        return (chosen.unsqueeze(-1) == torch.arange(self.count, device=chosen.device)).long()

    def within_capacity(self, tokens: Tensor, gates: Tensor, chosen: Tensor) -> Tensor:
        """Sizes that depend on no number: for compiled and captured updates."""
        size = min(math.ceil(self.capacity * self.top * len(tokens) / self.count), len(tokens))
        used = gates.t().flatten() > 0  # what `threshold` left
        # (top T) E: first choices before second ones
        wanted = self.one_hot(chosen.t().flatten()) * used.unsqueeze(-1)
        rank = ((wanted.cumsum(0) - 1) * wanted).sum(-1)  # how many came to the same expert before
        fits = used & (rank < size)
        # the last slot takes what is left over
        slot = torch.where(fits, chosen.t().flatten() * size + rank, self.count * size)
        rows = tokens.repeat(self.top, 1)
        taken = tokens.new_zeros(self.count * size + 1, tokens.shape[1]).index_copy(0, slot, rows)
        made = self.expert(taken[:-1].unflatten(0, (self.count, size)), slice(None)).flatten(0, 1)
        # autocast may have changed the type
        made = torch.cat([made, made.new_zeros(1, made.shape[1])])
        found = made[slot] * (gates.t().reshape(-1) * fits).unsqueeze(-1)
        return found.unflatten(0, (self.top, -1)).sum(0)

    def all_tokens(self, tokens: Tensor, gates: Tensor, chosen: Tensor) -> Tensor:
        output = torch.zeros_like(tokens)
        for n in range(self.count):
            at, rank = (chosen == n).nonzero(as_tuple=True)
            if len(at):
                made = self.expert(tokens[at], n)
                output = output.index_add(
                    0, at, (made * gates[at, rank].unsqueeze(-1)).to(output.dtype)
                )
        return output
