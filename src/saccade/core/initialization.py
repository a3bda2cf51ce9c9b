"""Initialization of parameters from a normal distribution."""

import torch
from torch import nn


def normal_parameter(*size: int, std: float) -> nn.Parameter:
    """A parameter drawn from N(0, std²). On the meta device, `randn * std` would import the compiler, which takes seconds."""
    return nn.Parameter(nn.init.normal_(torch.empty(*size), std=std))
