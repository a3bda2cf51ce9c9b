"""Small models of every family and kind of the catalogue, one changed slot at a time, and what the tests of models share."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from saccade import models
from saccade.layers.embeddings import spell
from saccade.models import (
    AttendingEncoder,
    CarryingLM,
    Decodable,
    Encoder,
    ImageEncoder,
    ImageToText,
    LookingEncoder,
    Seq2Seq,
    TextAutoencoder,
)
from saccade.models.builder import Builder, complete
from saccade.models.protocols import GraphLabeler, MeshLabeler
from saccade.registry import Entry
from saccade.settings import Choice

T = TypeVar("T", bound=nn.Module)
V = 13
SIZES: dict[str, Any] = {
    "dim": 8,
    "hidden": 6,
    "depth": 2,
    "heads": 2,
    "lstm_width": 9,
    "depths": [2, 1],
}
SOURCE, LENGTHS = (
    torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0], [7, 0, 0, 0, 0]]),
    torch.tensor([5, 3, 1]),
)
TARGET = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])
# How each token is spelled, for embeddings that read bytes.
BYTES = torch.tensor(spell([str(n) * (1 + n % 3) for n in range(V)]))
# as many as SOURCE has rows
IMAGES = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def settings(family: str, **changed: Any) -> dict[str, Any]:
    """A recipe's `model`: small and without dropout, with some settings changed."""
    fields = [f.name for f in dataclasses.fields(models.table[family].config)]
    small = {name: size for name, size in SIZES.items() if name in fields}
    return {
        "family": family,
        **small,
        **{name: 0.0 for name in fields if name.endswith("dropout")},
        **changed,
    }


def vocabularies(kind: type[nn.Module]) -> tuple[Any, ...]:
    """What a model of a kind is built for: sizes of vocabularies, and an image encoder where it looks at images."""
    if issubclass(kind, ImageToText | LookingEncoder):
        return Builder({"family": "cnn", "dim": 4, "depths": [1], "stem_stride": 4}).make(
            ImageEncoder
        ), V
    if issubclass(kind, TextAutoencoder):
        return V, 5
    return () if issubclass(kind, ImageEncoder) else (V, V) if issubclass(kind, Seq2Seq) else (V,)


def make(kind: type[T], family: str = "transformer", **changed: Any) -> T:
    """A small model of a kind, as it starts, in eval mode."""
    return Builder(settings(family, **changed)).make(kind, *vocabularies(kind)).eval()


def shake(model: T) -> T:
    """The model in float64 with parameters large enough for everything to matter, biases and gains too."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double()


@torch.no_grad()
def calibrate(model: Any) -> None:
    """Gives batch norms the means and variances of some images, as training would."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    model.train()(images_for(model))
    model.eval()


def stepped(model: Decodable, target: Tensor, source: Tensor, lengths: Tensor) -> Tensor:
    """The logits of one step after another."""
    state, logits = model.start(source, lengths), []
    for t in range(target.shape[1]):
        found, state = model.step(target[:, t], state)
        logits.append(found)
    return torch.stack(logits, 1)


def with_bytes(model: Encoder, tokens: Tensor) -> Tensor:
    """The tokens as the encoder reads them: with their bytes where it asks for them."""
    return (
        torch.cat([tokens.unsqueeze(-1), BYTES[tokens]], -1)
        if model.embedding.reads_bytes
        else tokens
    )


def images_for(model: ImageEncoder) -> Tensor:
    """Two images, as small as they can be with two rows and columns of places."""
    size = next(2**n for n in range(10) if min(model.grid(2**n, 2**n)) > 1)
    return torch.rand(
        2, 3, size, size, generator=torch.Generator().manual_seed(0), dtype=model.mean.dtype
    )


def read(model: Encoder, tokens: Tensor, lengths: Tensor) -> Tensor:
    """One vector per token; where the encoder asks for a relation of the tokens, steps between them and depths in a made-up tree."""
    if isinstance(model, LookingEncoder):
        return model(
            with_bytes(model, tokens),
            lengths,
            IMAGES[:1],
            torch.zeros(len(tokens), dtype=torch.long),
        )
    if not model.needs_relation:
        return model(with_bytes(model, tokens), lengths)
    assert isinstance(model, AttendingEncoder)
    relation = tree(tokens.shape[1]).expand(len(tokens), -1, -1)
    return model(with_bytes(model, tokens), lengths, relation=relation, depth=relation[:, 0])


def tree(size: int) -> Tensor:
    """1 N N: steps between tokens in the tree where the head of n is (n − 1) // 2."""
    above = [{n} for n in range(size)]
    for n in range(1, size):
        above[n] |= above[(n - 1) // 2]
    return torch.tensor([[[len(a ^ b) for b in above] for a in above]])


MADE: dict[str, nn.Module] = {}
# kinds that read graphs and meshes: tests/tasks/test_nodes.py and test_mesh_nodes.py
NODES = (GraphLabeler, MeshLabeler)


@dataclass(frozen=True)
class Case:
    """A model of the catalogue: a family, a kind that it builds, and what differs from the family's defaults."""

    family: str
    kind: type[nn.Module]
    changed: dict[str, Any]

    def __str__(self) -> str:
        what = [
            f"{slot} {' '.join(map(str, v.values())) if isinstance(v, dict) else v}"
            for slot, v in self.changed.items()
        ]
        return ", ".join([f"{self.kind.__name__} {self.family}", *what])

    def make(self) -> Any:
        """The model in float64 and eval mode, made once: tests do not change it."""
        if str(self) not in MADE:
            # with 0 or 1, scores of a model are below 0, where a ReLU learns nothing
            torch.manual_seed(2)
            MADE[str(self)] = shake(make(self.kind, self.family, **self.changed))
            for part in MADE[str(self)].modules():
                if isinstance(part, ImageEncoder):
                    calibrate(part)
        return MADE[str(self)]


# Pairs of settings that meet in code: concatenated positions, shared heads, norms after each part, groups of blocks, one layer.
TOGETHER: list[dict[str, Any]] = [
    {"residual": "post-norm", "norm": "rms"},
    {"residual": {"name": "rezero", "normed": True}, "norm": "rms"},
    {"position_embedding": {"name": "learned", "max_len": 30, "join": "concatenate"}},
    {"heads": 4, "kv_heads": 2},
    {"heads": 4, "kv_heads": 1, "score": "additive"},
    {"position": {"name": "added", "max_len": 20}},
    {
        "position": {"name": "syntax", "max_distance": 3, "signed": True},
        "position_embedding": "depth",
    },
    {"score": "elu-kernel", "normalize": "sum"},
    {"score": {"name": "favor", "features": 6}, "normalize": "sum"},
    {"mixer": {"name": "synthesizer", "kind": "random", "max_len": 8}},
    {"mixer": {"name": "synthesizer", "kind": "factorized", "max_len": 8, "rank": 2}},
    {
        "mixer": {"name": "synthesizer", "kind": "factorized-dense", "max_len": 8, "rank": 3},
        "position": "rotary",
    },
    {
        "mixer": {"name": "synthesizer", "plus": "add", "max_len": 8},
        "position": "shaw",
        "heads": 4,
        "head_width": 3,
    },
    {
        "mixer": {"name": "synthesizer", "kind": "random", "plus": "alpha", "max_len": 8},
        "score": "additive",
        "position": "t5",
    },
    {"heads": 4, "head_width": 3, "cross_heads": 2, "cross_width": 5, "score": "bilinear"},
    {"stack": {"name": "shared", "groups": 2}, "depth": 3, "position": "rotary"},
    {"mixer": "light-convolution", "stack": "shared"},
    {"embedding": {"name": "factorized", "rank": 3}, "head": {"name": "mixture", "count": 2}},
    {"embedding": {"name": "adaptive", "growth": 1.5}, "head": "adaptive"},
    {"tied": False, "head": "adaptive"},
    {"feedforward": {"name": "experts", "count": 3, "top": 1}},
    {"feedforward": {"name": "experts", "count": 3, "top": 1}, "residual": "deepnorm"},
    {"mixer": "light-convolution", "feedforward": "swiglu", "residual": "fixup"},
    {"tied": False},
    {"depth": 1},
    {"depth": 1, "cell": "lstm"},
    {"bidirectional": False, "cell": "lstm"},
    {"input_feeding": True, "depth": 2},
    {"separator": "|", "memory": 4},
    {"input_feeding": True, "window": {"name": "predicted", "reach": 1}},
]


# Slots of parts that see one position at a time, and of parts that see two: what they can meet in a model is the same in many.
ALONE, PAIRS = (
    {"embedding", "head", "feedforward", "norm", "tied"},
    {"score", "normalize", "position"},
)


def cases() -> list[Case]:
    """Every family and kind, plain and with each member of each slot that has an effect on it, less what repeats."""
    found, seen, times = [], set[int](), Counter[Any]()
    for entry in models.table:
        decodes = any(issubclass(kind, Decodable) for kind in entry.make.builds)
        for kind, build in entry.make.builds.items():
            if id(build) in seen or kind in NODES:  # two families may build the same model
                continue
            seen.add(id(build))
            used = complete(
                settings(entry.name),
                lambda b, kind=kind: b.make(kind, *vocabularies(kind)),
                strict=False,
            )
            causal = issubclass(kind, Decodable) or not getattr(build, "sees_ahead", True)
            # a language model without its head
            headless = decodes and not issubclass(kind, Decodable) and causal
            for changed in changes(entry.make.config, used, kind, causal):
                if not repeats(entry.make.config, kind, headless, changed, times):
                    found.append(Case(entry.name, kind, changed))
    return found


def repeats(
    config: type,
    kind: type[nn.Module],
    headless: bool,
    changed: dict[str, Any],
    times: Counter[Any],
) -> bool:
    """Whether other cases have shown what a change can do; counts it.

    Families whose settings have one base class are made of the same code: a part that sees one position at a time is tried in one of
    them, scores and normalizers in two of each use (as encoder, causal, in pairs), and a language model without its head has
    been tried with it.
    """
    base = [one for one in config.__mro__ if dataclasses.is_dataclass(one)][-1]
    alone, pair = (base, str(changed)), (base, use(kind).replace("images", "pair"), str(changed))
    if headless and changed:
        return times[pair] > 0
    times.update([alone, pair])
    return bool(changed) and (
        (set(changed) <= ALONE and times[alone] > 1) or (set(changed) <= PAIRS and times[pair] > 2)
    )


def changes(
    config: type, used: dict[str, Any], kind: type[nn.Module], causal: bool
) -> list[dict[str, Any]]:
    """One member of one slot at a time, and settings that meet."""
    found: list[dict[str, Any]] = [{}]
    together = [dict(changed) for changed in TOGETHER if set(changed) <= set(used)]
    for changed in together:
        if changed.get("normalize") == "sum" and "position" in used:
            changed["position"] = "none"  # a family's own may add a bias, which a sum does not take
        if changed.get("normalize") == "sum" and "relative_bias" in used:
            changed["relative_bias"] = False
    for f in dataclasses.fields(config):
        if "table" not in f.metadata or f.name not in used:
            continue
        for entry in f.metadata["table"]:
            skip = entry.make is default(f).make or not fits(entry, kind, causal)
            # a state does not know where its text began
            if getattr(entry.make, "absolute", False) and issubclass(kind, CarryingLM):
                skip = True
                together = [
                    changed
                    for changed in together
                    if member_name(changed.get(f.name)) != entry.name
                ]
            if not skip:
                found.append({f.name: {"name": entry.name, **entry.example}})
    return found + [
        one for one in together if issubclass(kind, AttendingEncoder) or "syntax" not in str(one)
    ]


def fits(entry: Entry[Any], kind: type[nn.Module], causal: bool) -> bool:
    """Whether a member of a slot can be in a model of a kind by itself."""
    made = entry.make
    # for kernel scores: see TOGETHER
    alone = not entry.per_batch and entry.name != "sum" and not getattr(made, "needs_sum", False)
    related = getattr(made, "needs_relation", False) is True  # a stack's is a property
    spelled = getattr(made, "reads_bytes", False) and issubclass(kind, Decodable)
    if (
        not alone
        or spelled
        or (related and not issubclass(kind, AttendingEncoder))
        or (causal and not getattr(made, "causal", True))
    ):
        return False
    return use(kind) in getattr(made, "uses", (use(kind),))  # stacks for some kinds alone


def use(kind: type[nn.Module]) -> str:
    """What a stack is for in a model of a kind."""
    if issubclass(kind, ImageToText | LookingEncoder):
        return "images"
    return (
        "pair"
        if issubclass(kind, Seq2Seq)
        else "encoder"
        if issubclass(kind, AttendingEncoder | ImageEncoder)
        else "causal"
    )


def member_name(value: Any) -> Any:
    return value["name"] if isinstance(value, dict) else value


def default(f: dataclasses.Field[Any]) -> Choice:
    assert isinstance(f.default, Choice)
    return f.default
