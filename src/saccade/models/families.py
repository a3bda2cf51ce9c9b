"""The table of model families: which settings a family takes, and which kinds of models it can build from them."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from ..errors import SaccadeError
from ..registry import Table

Sizes = dict[str, dict[str, float]]
Builds = dict[type[nn.Module], Callable[..., nn.Module]]


@dataclass(frozen=True)
class Family:
    """`config` is a dataclass of settings with defaults, ranges and meanings; `builds`: kind → build(*vocabulary sizes, config)."""

    config: type
    builds: Builds
    __doc__: str = ""

    def build(self, kind: type[nn.Module]) -> Callable[..., nn.Module] | None:
        """The builder of a kind of model, or None if not supported."""
        reads = getattr(kind, "reads", None)
        found = (
            build
            for made, build in self.builds.items()
            if issubclass(made, kind) and getattr(made, "reads", None) == reads
        )
        return next(found, None)


table: Table[Family] = Table("models", "model")


def named_sizes(**columns: tuple[float, ...]) -> Sizes:
    """The names of `model.size` and the settings of each."""
    names = ("tiny", "small", "medium", "base", "big")
    return {
        name: {key: column[n] for key, column in columns.items()} for n, name in enumerate(names)
    }


def add_family(name: str, paper: str, config: type, builds: Builds, summary: str) -> None:
    table.add(name, paper)(Family(config, builds, summary))


def check_prompts(source: Tensor, lengths: Tensor) -> None:
    """Checks that all prompts of a batch (B N) have one length."""
    if len(lengths) and int(lengths.min()) != source.shape[1]:
        raise SaccadeError(
            f"prompts must have one length, got {int(lengths.min())} to {source.shape[1]} tokens in one batch",
            code="prompt-lengths-differ",
        )
