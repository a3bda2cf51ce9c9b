"""Starting from what another model has learned: its embedding, encoder or decoder, by the names of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import SaccadeError
from .checkpoints import learned, open_tensors

# an embedding has one of these names: the first in an encoder or decoder alone, the others in an encoder–decoder
EMBEDDINGS = ("embedding", "source", "target")
STACKS = ("encoder", "decoder")


def take_over(model: nn.Module, path: Path, rename: Callable[[str], str] = str) -> list[str]:
    """Fills embedding, encoder and decoder from those of a stored model (`body.` in front of a name is ignored); returns the names
    that were filled. The head belongs to a task, and is taken only between models of the same kind and shape.

    Of a table of token vectors the rows that both have are taken: a pretrained one may have rows for masks after its words.
    """
    wanted, taken = learned(model), []
    alone = not any(top(name) == "encoder" for name in wanted)  # a decoder alone reads what an encoder–decoder's decoder reads
    with open_tensors(path) as file, torch.no_grad():
        stored = {rename(name.removeprefix("body.")): name for name in file.keys()}  # noqa: SIM118
        alike = set(stored) == {name.removeprefix("body.") for name in wanted}
        for name, parameter in wanted.items():
            found = next((stored[one] for one in spellings(name, alone) if one in stored), None)
            shared = top(name) in (*EMBEDDINGS, *STACKS)
            if found is None or not (shared or alike):
                continue
            value = file.get_tensor(found)
            if shared or value.shape == parameter.shape:
                fill(parameter, value, name, path)
                taken.append(name)
    check(list(wanted), taken, path)
    return taken


def check(wanted: list[str], taken: list[str], path: Path) -> None:
    """An encoder or decoder was taken as a whole, but for attention to a source that a decoder alone never had."""
    stacks = {top(name) for name in taken} & set(STACKS)
    if not stacks:
        raise SaccadeError(
            f"{path} has no encoder or decoder for this model; choose a model.family that has one of the same kind, "
            "such as transformer-encoder after a masked model"
        )
    missing = [name for name in wanted if top(name) in stacks and name not in taken and "cross" not in name]
    if missing:
        raise SaccadeError(f"{path} has no '{missing[0]}'; use the same model.depth and parts as that model")


def top(name: str) -> str:
    """Whether a parameter belongs to an `embedding`, `encoder`, `decoder`, `head` …"""
    return name.removeprefix("body.").partition(".")[0]


def spellings(name: str, alone: bool) -> list[str]:
    """How a parameter may be named in the stored model, the likeliest first; recurrent models have no `tokens` in between."""
    first, _, rest = name.removeprefix("body.").partition(".")
    if first not in EMBEDDINGS:
        return [name.removeprefix("body.")]
    order = [first, *(("target", "source") if alone else ("source", "target")), "embedding"]
    return [spelling for other in order for spelling in (f"{other}.{rest}", f"{other}.{rest.removeprefix('tokens.')}")]


def fill(parameter: Tensor, value: Tensor, name: str, path: Path) -> None:
    of_tokens = top(name) in EMBEDDINGS and name.endswith(("tokens.weight", "source.weight", "target.weight"))
    if of_tokens and value.dim() == 2 and parameter.shape[1] == value.shape[1]:
        rows = min(len(parameter), len(value))
        parameter[:rows] = value[:rows].to(parameter.device)
    elif parameter.shape == value.shape:
        parameter.copy_(value)
    else:
        raise SaccadeError(
            f"{path}: '{name}' is {tuple(value.shape)} there and {tuple(parameter.shape)} here; "
            "use the same model.dim, hidden, heads … as that model"
        )
