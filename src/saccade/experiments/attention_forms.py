"""Attention and its cheaper relatives as settings of models: what tables and figures of cost compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import models
from ..settings import options_of
from .study import Values

ENCODER, DECODER = {"family": "transformer-encoder"}, {"family": "transformer-decoder"}
FORMS: dict[str, Values] = {
    "full": ENCODER,
    "window": {**ENCODER, "mask": {"name": "window", "left": 64}},
    "big-bird": {**ENCODER, "mask": {"name": "blocks", "size": 64}},
    "linear": {**ENCODER, "score": "elu-kernel", "normalize": "sum"},
    "performer": {**ENCODER, "score": "favor", "normalize": "sum"},
    "linformer": {**ENCODER, "mixer": {"name": "linformer"}},
    "convolution": {**ENCODER, "mixer": "light-convolution"},
    "lstm": {"family": "rnn-encoder"},
    "full-causal": DECODER,
    "transformer-xl": {"family": "transformer-xl"},
    "lstm-causal": {"family": "rnn-decoder"},
}


def settings_of(form: str, length: int, sizes: Mapping[str, int]) -> Values:
    """The settings of a form for texts of a length, with the sizes that its family has."""
    known = getattr(models.table[FORMS[form]["family"]].config, "__dataclass_fields__", {})
    given = {name: value for name, value in sizes.items() if name in known}
    return for_length({**FORMS[form], **given, "dropout": 0.0}, known, length)


def for_length(model: Values, fields: Mapping[str, Any], length: int) -> Values:
    """The settings, in which a part that must know the length of its texts (option `length` or `max_len`) is given it."""
    found = dict(model)
    for key in ("mask", "mixer", "score"):
        if key in model and key in fields:
            slot = fields[key].metadata["table"]
            given = model[key] if isinstance(model[key], dict) else {"name": model[key]}
            known = options_of(slot, slot[given["name"]]) if given["name"] in slot else ()
            found[key] = {
                **given,
                **{option: length for option in ("length", "max_len") if option in known},
            }
    return found
