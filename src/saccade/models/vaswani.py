"""The two Transformers of Vaswani et al. 2017 by one word each. Their training: `warmup: 4000` and an `average` of checkpoints."""

from dataclasses import dataclass
from typing import ClassVar

from ..layers import residuals
from ..settings import Choice, number, part, setting
from .assembly import Config
from .families import add_family
from .transformer import pair


@dataclass(frozen=True)
class BaseConfig(Config):
    """The paper's base model: norms after each part, one embedding for source, target and output. 63 M parameters with 37,000 tokens."""

    joint: ClassVar[bool] = True  # `vocabulary.joint` by default

    shared: bool = setting(
        True,
        "one embedding for source and target (needs `vocabulary.joint`, which is the default here)",
    )
    residual: Choice = part(residuals.table, residuals.PostNorm)


@dataclass(frozen=True)
class BigConfig(BaseConfig):
    """The paper's big model: twice as wide, more dropout (0.1 for English–French). 214 M parameters with 37,000 tokens."""

    dim: int = number(1024, 1, 65_536, "width of a token's vector")
    hidden: int = number(4096, 1, 65_536, "width inside the feed-forward part")
    heads: int = number(
        16, 1, 65_536, "heads of each mixer; they must divide `dim` unless `head_width` is given"
    )
    dropout: float = number(0.3, 0.0, 0.99, "dropout between layers")


paper = "Vaswani et al. 2017"
add_family(
    "transformer-base",
    paper,
    BaseConfig,
    pair,
    "The base model as in the paper: post-norm, one embedding, joint vocabulary.",
)
add_family(
    "transformer-big",
    paper,
    BigConfig,
    pair,
    "The big model as in the paper: as transformer-base, twice as wide.",
)
