"""Parameters that start as normal numbers."""

import torch
from torch import nn


def normal_parameter(*size: int, std: float) -> nn.Parameter:
    """Not `torch.randn(*size) * std`, which is the same: the sketch of a model has no memory, and for a product without numbers PyTorch would
    load its compiler, which takes seconds."""
    return nn.Parameter(nn.init.normal_(torch.empty(*size), std=std))
