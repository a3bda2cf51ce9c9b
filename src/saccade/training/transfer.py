"""Transfer of parameters from another model: embedding, encoder or decoder, matched by name."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import SaccadeError
from .checkpoints import open_tensors
from .parameters import model_tensors

# Names of embeddings: the first in encoders or decoders, the others in encoder–decoders.
EMBEDDINGS = ("embedding", "source", "target")
STACKS = ("encoder", "decoder")
# Buffers of hard attention, which may start from a model with soft attention.
BASELINE = ("normalize.mean_loss", "normalize.mean_weight")


def take_over(model: nn.Module, path: Path, rename: Callable[[str], str] = str) -> list[str]:
    """Copies embedding, encoder and decoder from a stored model and returns the names. Ignores a `body.` prefix."""
    wanted, taken = (
        {name.removeprefix("body."): parameter for name, parameter in model_tensors(model).items()},
        [],
    )
    # A decoder-only model reads the target embedding of an encoder–decoder.
    alone = not any(top_module(name) == "encoder" for name in wanted)
    with open_tensors(path) as file, torch.no_grad():
        stored = {rename(name.removeprefix("body.")): name for name in file.keys()}  # noqa: SIM118
        # A head belongs to its task and is copied only between models of the same kind.
        alike = {*map(required_name, stored), ""} == {*map(required_name, wanted), ""}
        for name, parameter in wanted.items():
            found = next((stored[one] for one in stored_names(name, alone) if one in stored), None)
            shared = top_module(name) in (*EMBEDDINGS, *STACKS)
            if found and (
                shared or (alike and file.get_slice(found).get_shape() == list(parameter.shape))
            ):
                copy_rows(parameter, file.get_tensor(found), name, path)
                taken.append(name)
    stacks = {top_module(name) for name in taken} & set(STACKS)
    # Stacks are copied whole, except cross-attention that a decoder-only model lacks.
    missing = [
        name
        for name in wanted
        if top_module(required_name(name)) in stacks and name not in taken and "cross" not in name
    ]
    if missing or not stacks:
        what = f"'{missing[0]}'" if missing else "encoder or decoder"
        kind = "a model.family of the same kind (such as transformer-encoder after a masked model)"
        raise SaccadeError(
            f"{path} has no {what} for this model; choose {kind}, with the same model.depth and parts",
            code="start-from-does-not-fit",
        )
    return taken


def required_name(name: str) -> str:
    """The name of a required parameter, or "" for an optional one."""
    return "" if name.endswith(BASELINE) else name


def top_module(name: str) -> str:
    """The top-level module of a parameter, such as `embedding` or `encoder`."""
    return name.partition(".")[0]


def stored_names(name: str, alone: bool) -> list[str]:
    """Possible names of a parameter in the stored model, likeliest first. Recurrent models lack the `tokens` part."""
    first, _, rest = name.partition(".")
    if first not in EMBEDDINGS:
        return [name]
    order = [first, *(("target", "source") if alone else ("source", "target")), "embedding"]
    return [
        spelling
        for other in order
        for spelling in (f"{other}.{rest}", f"{other}.{rest.removeprefix('tokens.')}")
    ]


def has_token_rows(name: str) -> bool:
    """Whether a parameter has one row per token (embeddings; factorized and adaptive tables)."""
    ends = ("tokens.weight", "tokens.table.weight", "source.weight", "target.weight")
    return top_module(name) in EMBEDDINGS and (name.endswith(ends) or ".tables." in name)


def copy_rows(parameter: Tensor, value: Tensor, name: str, path: Path) -> None:
    if has_token_rows(name) and value.dim() == 2 and parameter.shape[1] == value.shape[1]:
        # A pretrained model may have extra rows for mask tokens.
        rows = min(len(parameter), len(value))
        parameter[:rows] = value[:rows].to(parameter.device)
    elif parameter.shape == value.shape:
        parameter.copy_(value)
    else:
        sizes = f"{tuple(value.shape)} there and {tuple(parameter.shape)} here"
        raise SaccadeError(
            f"{path}: '{name}' is {sizes}; use the same model.dim, hidden, heads … as that model",
            code="start-from-does-not-fit",
        )
