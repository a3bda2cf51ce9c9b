"""Beginning with what another model has learned: its embedding, encoder or decoder, by the names of the parameters."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..errors import SaccadeError
from .checkpoints import learned

# an embedding stands under one of these names: alone in an encoder or decoder, one a side in an encoder–decoder
EMBEDDINGS = {
    "embedding": ("embedding", "source", "target"),
    "source": ("source", "embedding", "target"),
    "target": ("target", "embedding", "source"),
}


def take_over(model: nn.Module, path: Path) -> list[str]:
    """Fills the parameters that a stored model has too (names below `body.` count as if it were not there); returns their names.

    Of a table of token vectors the rows that both have are taken: a pretrained one may have rows for masks behind its words.
    """
    wanted = learned(model)
    try:
        with safe_open(path, framework="pt") as file, torch.no_grad():
            stored = {name.removeprefix("body."): name for name in file.keys()}  # noqa: SIM118
            taken = []
            for name, parameter in wanted.items():
                found = next((stored[one] for one in spellings(name) if one in stored), None)
                if found is not None:
                    fill(parameter, file.get_tensor(found), name, path)
                    taken.append(name)
    except (SafetensorError, OSError) as error:
        raise SaccadeError(f"{path} cannot be read as safetensors ({error}); copy it again") from None
    if not any("encoder" in name or "decoder" in name for name in taken):
        raise SaccadeError(
            f"{path} has no encoder or decoder for this model; choose a model.family that has one of the same kind, "
            "such as transformer-encoder after a masked model"
        )
    return taken


def spellings(name: str) -> list[str]:
    """How a parameter may be named in the stored model, the likeliest first."""
    first, _, rest = name.removeprefix("body.").partition(".")
    return [f"{other}.{rest}" if rest else other for other in EMBEDDINGS.get(first, (first,))]


def fill(parameter: Tensor, value: Tensor, name: str, path: Path) -> None:
    rows = min(len(parameter), len(value)) if parameter.dim() and value.dim() else 0
    of_tokens = parameter.dim() == 2 and value.dim() == 2 and name.endswith(("tokens.weight", "head.weight"))
    if of_tokens and parameter.shape[1] == value.shape[1]:
        parameter[:rows] = value[:rows].to(parameter.device)
    elif parameter.shape == value.shape:
        parameter.copy_(value)
    else:
        raise SaccadeError(
            f"{path}: '{name}' is {tuple(value.shape)} there and {tuple(parameter.shape)} here; "
            "write the same model.dim, hidden, heads … as that model has"
        )
