"""Tensors of a model by name: read, write and average them."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from ..errors import SaccadeError

Tensors = dict[str, Tensor]


def model_tensors(model: nn.Module) -> Tensors:
    """Name → tensor of all parameters and persistent buffers. Shared tensors are listed once, under their first name."""
    model = getattr(model, "_orig_mod", model)
    persistent = model.state_dict(keep_vars=True)
    return {
        **dict(model.named_parameters()),
        **{name: one for name, one in model.named_buffers() if name in persistent},
    }


def buffers(model: nn.Module) -> set[str]:
    """The names of the persistent buffers."""
    return {*model_tensors(model)} - {
        name for name, _ in getattr(model, "_orig_mod", model).named_parameters()
    }


def mean_parameters(each: Sequence[Tensors], unlearned: Collection[str] = ()) -> Tensors:
    """Averages the tensors of several models in float64 (Junczys-Dowmunt et al. 2016).

    Integers and tensors in `unlearned` are taken from the last model: a mean of random features is meaningless.
    """
    sizes = [{name: tensor.shape for name, tensor in one.items()} for one in each]
    odd = next(
        (
            name
            for one in sizes
            for name in sorted({*one, *sizes[-1]})
            if one.get(name) != sizes[-1].get(name)
        ),
        None,
    )
    if odd is not None:
        raise SaccadeError(
            f"these models differ in the size of '{odd}', or one lacks it; average models of the same shape",
            code="models-differ",
        )
    found = {}
    for name, last in each[-1].items():
        mean = torch.stack([one[name].detach().double().cpu() for one in each]).mean(0)
        averaged = last.is_floating_point() and name not in unlearned
        found[name] = mean.to(last.dtype) if averaged else last.detach().cpu()
    return found


def set_parameters(model: nn.Module, values: Tensors) -> Tensors:
    """Writes values into the model and returns the previous ones."""
    wanted = model_tensors(model)
    before = {name: tensor.detach().cpu().clone() for name, tensor in wanted.items()}
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(values[name])
    return before
