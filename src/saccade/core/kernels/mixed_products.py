"""Matrix products added to sums of more digits within the product: nothing of 16 bits is written and read again."""

import torch
from torch import Tensor
from torch.library import custom_op


def compute(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += aᵀ b, of float32 and 16 bits on a GPU; or of each matrix of a batch."""
    product = torch.baddbmm if total.dim() == 3 else torch.addmm
    product(total, a.mT, b, out_dtype=total.dtype, out=total)


run = custom_op("saccade::add_product", compute, mutates_args=("total",))


@run.register_fake
def fake(total: Tensor, a: Tensor, b: Tensor) -> None:
    return None


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += aᵀ b, of matrices or of batches of them; total may have more digits than a and b."""
    if total.dtype == a.dtype:
        (total.baddbmm_ if total.dim() == 3 else total.addmm_)(a.mT, b)
    elif (
        not total.is_cuda or torch._C._len_torch_dispatch_stack()
    ):  # whoever counts operations may not know this one
        total += a.mT @ b
    elif torch.compiler.is_compiling():
        run(total, a, b)
    else:
        compute(total, a, b)
