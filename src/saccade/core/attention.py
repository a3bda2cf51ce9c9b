"""`attend`: any mechanism, on the best backend that can run it. B batch, H heads, Q queries, K keys, D key width, E value width."""

import functools
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from ..errors import SaccadeError, did_you_mean
from . import backends
from .backends.call import Call
from .masks import Full, Mask, Prepared, mask_hint
from .mechanism import Mechanism, Ready
from .positions import NoPosition, Positions
from .query_chunks import attend_in_chunks, is_huge

DEFAULT = Mechanism()
EXPLAIN_RENAMED = "explain(q, k, …) is now called saccade.which_backend(q, k, …)"
# Arguments of PyTorch's attention, and their equivalents here.
TORCH_ARGUMENTS = {
    "is_causal": "pass mask=masks.causal()",
    "attn_mask": "pass mask=masks.matrix(allowed), where 1 or True means that a query may attend to a key",
    "key_padding_mask": "pass mask=masks.padding(lengths), or masks.matrix(~key_padding_mask[:, None, None])",
    "need_weights": "open a record: `with record(layer) as seen: layer(x)`, then seen['attention'].weights()",
    "average_attn_weights": "open a record: `with record(layer) as seen: layer(x)`, then seen['attention'].weights().mean(1)",
    "dropout_p": "pass dropout=",
    "scale": "pass a Mechanism whose score overrides `scale`",
    "enable_gqa": "leave it out: k and v may always have fewer heads",
    "batch_first": "leave it out: inputs are always batch × positions × dim",
    "embed_dim": "pass dim=",
    "num_heads": "pass heads=",
    "kdim": "pass dim_memory=",
    "vdim": "pass dim_memory=",
}
P = ParamSpec("P")
R = TypeVar("R")
# Callbacks of open records of foreign models.
attend_listeners: list[Callable[[Mechanism, Call, Mask | None], None]] = []


class UnknownArgument(SaccadeError, TypeError):
    """An unknown keyword argument. Also a TypeError, as in plain Python."""


def hint_unknown_arguments(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: the error about an unknown keyword argument suggests the right one."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*given: P.args, **named: P.kwargs) -> R:
            try:
                return function(*given, **named)
            except TypeError as error:
                known = [one for one in inspect.signature(function).parameters if one != "self"]
                wrong = next((one for one in named if one not in known), None)
                # The error comes from inside the function.
                if (
                    wrong is None
                    or error.__traceback__ is None
                    or error.__traceback__.tb_next is not None
                ):
                    raise
                way_out = (
                    f"; {TORCH_ARGUMENTS[wrong]}"
                    if wrong in TORCH_ARGUMENTS
                    else did_you_mean(wrong, known)
                )
            raise UnknownArgument(
                f"{name} has no argument '{wrong}'{way_out}", code="unknown-argument"
            )

        return call

    return decorate


@hint_unknown_arguments("attend")
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mechanism: Mechanism | None = None,
    mask: Mask | None = None,
    positions: Positions | None = None,
    dropout: float = 0.0,
    backend: str | None = None,
) -> Tensor:
    """Attention: weights(q, k) @ v.

    Args:
        q: Queries, B H Q D.
        k: Keys, B H' K D. With H' < H, each key head is shared by a group of query heads.
        v: Values, B H' K E.
        mechanism: Score, normalizer, mask and position. Default: scaled dot products with a softmax.
        mask: Which queries may attend to which keys, combined (`&`) with the mechanism's mask. A fully masked query gets zeros.
        positions: Positions of queries and keys. Default: keys at 0, 1, 2 …, the last query at the last key.
        dropout: Probability that a weight is set to zero.
        backend: Name of a backend. Default: the fastest that supports the call (see `which_backend`). Second derivatives and
            forward mode (`torch.func.jvp`) need "eager".

    Returns:
        The output, B H Q E.

    >>> import torch
    >>> from saccade import attend, masks
    >>> q = k = v = torch.randn(2, 4, 10, 16)  # batch, heads, positions, width
    >>> attend(q, k, v, mask=masks.causal()).shape
    torch.Size([2, 4, 10, 16])
    """
    call = build_call(q, k, v, mechanism, mask, positions, dropout)
    for hear in attend_listeners:
        hear(DEFAULT if mechanism is None else mechanism, call, mask)
    return backends.run(call, backend)


def read(
    q: Tensor,
    ready: Ready,
    mechanism: Mechanism,
    mask: Mask | None = None,
    positions: Positions | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend` with keys and values from `mechanism.prepare`. Arguments are not checked.

    >>> import torch
    >>> from saccade.core import Mechanism, read
    >>> mechanism, x = Mechanism(), torch.randn(1, 2, 5, 4)
    >>> read(x, mechanism.prepare(x, x), mechanism).shape
    torch.Size([1, 2, 5, 4])
    """
    call = call_of(q, ready, mechanism, mask, positions, dropout)
    if q.shape[2] > 1 and not torch.compiler.is_compiling() and is_huge(call):
        return attend_in_chunks(call, call_of, ready, mechanism, positions)
    return backends.run(call)


def weights(
    q: Tensor,
    k: Tensor,
    mechanism: Mechanism | None = None,
    mask: Mask | None = None,
    positions: Positions | None = None,
) -> Tensor:
    """The attention weights, B H Q K, by the eager backend.

    >>> import torch
    >>> from saccade.core import weights
    >>> q = k = torch.zeros(1, 1, 2, 4)
    >>> weights(q, k)
    tensor([[[[0.5000, 0.5000],
              [0.5000, 0.5000]]]])
    """
    return backends.eager.weights(build_call(q, k, k, mechanism, mask, positions, 0.0))


def build_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mechanism: Mechanism | None,
    mask: Mask | None,
    positions: Positions | None,
    dropout: float,
) -> Call:
    """Checks the arguments of a user and builds the call for the backends."""
    mechanism = DEFAULT if mechanism is None else mechanism
    check_kinds(mechanism, mask, positions, dropout)
    check_tensors(q, k, v)
    check_sizes(q, k, v, mechanism)
    check_order(mechanism.mask, mask, q.shape[-2], k.shape[-2], positions)
    if positions is None and mechanism.uses_positions:
        positions = Positions.line(q.shape[-2], k.shape[-2], q.device)
    return call_of(
        q, mechanism.prepare(k, v, positions, q.shape[1]), mechanism, mask, positions, dropout
    )


def call_of(
    q: Tensor,
    ready: Ready,
    mechanism: Mechanism,
    mask: Mask | None,
    positions: Positions | None,
    dropout: float,
) -> Call:
    """Encodes and projects the queries, and combines and prepares the masks."""
    score, position, key, own = mechanism.score, mechanism.position, ready.key, mechanism.mask
    (batch, heads, queries, _), keys = q.shape, key.shape[2]
    if type(position) is NoPosition or not mechanism.uses_positions:
        query, positions = score.query(q), None
    else:
        positions = Positions.line(queries, keys, q.device) if positions is None else positions
        query = score.query(position.encode_query(q, positions.i, positions))
    if score.kernel:
        query, key = score.features(query, key)
    sizes = (batch, heads, queries, keys)
    if type(mask) is Prepared and mask.sizes == sizes and not mask.computed and not own.computed:
        both = mask if type(own) is Full else mask.within(own)
    else:
        plain = own if mask is None else own & (mask.mask if isinstance(mask, Prepared) else mask)
        both = plain.given(query, key).prepare(*sizes, q.device)
    return Call(
        q, query, key, ready.value, score, mechanism.normalize, position, both, positions, dropout
    )


@dataclass(frozen=True)
class Verdict:
    """A backend's answer to a call. `reason` is None if the backend supports it."""

    backend: str
    reason: str | None
    chosen: bool

    def __str__(self) -> str:
        return f"{'→' if self.chosen else ' '} {self.backend:<7} {'can' if self.reason is None else 'refuses: ' + self.reason}"


class Explanation(list[Verdict]):
    """The verdicts of all backends, best first. Prints as a table."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    @property
    def chosen(self) -> str:
        return next(verdict.backend for verdict in self if verdict.chosen)


def which_backend(
    q: Tensor,
    k: Tensor,
    mechanism: Mechanism | None = None,
    mask: Mask | None = None,
    v: Tensor | None = None,
) -> Explanation:
    """Explains the choice of a backend.

    Args:
        q, k: Queries and keys, as in `attend`.
        mechanism, mask: As in `attend`.
        v: Values, `k` by default.

    Returns:
        For each backend, whether it is chosen and why it refuses, if it does.

    >>> import torch
    >>> from saccade import which_backend
    >>> q = k = torch.randn(1, 2, 8, 16)
    >>> which_backend(q, k).chosen
    'sdpa'
    """
    call = build_call(q, k, k if v is None else v, mechanism, mask, None, 0.0)
    chosen = backends.choose(call)
    found = sorted(
        (one.refuses(call) is not None, one.rank(call), name, one)
        for name, one in backends.all_named()
    )
    return Explanation(Verdict(name, one.refuses(call), one is chosen) for _, _, name, one in found)


def explain(*given: Any, **named: Any) -> Explanation:
    """The name of `which_backend` until 0.2."""
    warnings.warn(EXPLAIN_RENAMED, DeprecationWarning, stacklevel=2)
    return which_backend(*given, **named)


def check_kinds(
    mechanism: Mechanism, mask: Mask | None, positions: Positions | None, dropout: float
) -> None:
    """Checks the types of the arguments other than tensors."""
    if not isinstance(mechanism, Mechanism):
        raise SaccadeError(
            f"expected a Mechanism, got {mechanism!r}; pass Mechanism(score, normalize, mask, position)",
            code="not-a-mechanism",
        )
    if mask is not None and not isinstance(mask, Mask):
        raise SaccadeError(
            f"expected a mask, got {type(mask).__name__}; {mask_hint(mask)}", code="not-a-mask"
        )
    if positions is not None and not isinstance(positions, Positions):
        raise SaccadeError(
            f"expected Positions, got {type(positions).__name__}; pass Positions(i, j), or Positions.line(Q, K)",
            code="not-positions",
        )
    if not 0.0 <= dropout < 1.0:
        raise SaccadeError(f"dropout must be in [0, 1), got {dropout}", code="dropout-out-of-range")


def check_order(
    own: Mask, mask: Mask | None, queries: int, keys: int, positions: Positions | None
) -> None:
    """Checks that positions fit the sizes, and that masks on positions get Q ≤ K."""
    if positions is not None and (positions.i.shape[-1], positions.j.shape[-1]) != (queries, keys):
        given = f"positions are given for {positions.i.shape[-1]} queries and {positions.j.shape[-1]} keys"
        raise SaccadeError(
            f"{given}, got {queries} and {keys}; pass one position per query and key",
            code="positions-do-not-fit",
        )
    if (
        own.compares_positions or (mask is not None and mask.compares_positions)
    ) and queries > keys:
        got = f"got {queries} queries and {keys} keys; use a mask on keys alone, such as padding"
        raise SaccadeError(
            f"mask {own if mask is None else own & mask!r} compares positions and needs Q ≤ K, {got}",
            code="more-queries-than-keys",
        )


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Checks that q, k and v are floating-point tensors of one type on one device."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            what = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise SaccadeError(
                f"{name} must be a floating-point tensor such as float32 or bfloat16, got {what}",
                code="not-a-float-tensor",
            )
    if not q.device == k.device == v.device:
        raise SaccadeError(
            f"q, k and v must be on one device, got {q.device}, {k.device} and {v.device}; move them with .to(device)",
            code="devices-differ",
        )
    # Autocast converts them.
    if not q.dtype == k.dtype == v.dtype and not torch.is_autocast_enabled(q.device.type):
        raise SaccadeError(
            f"q, k and v must have one type, got {q.dtype}, {k.dtype} and {v.dtype}; convert them first",
            code="dtypes-differ",
        )


def check_sizes(q: Tensor, k: Tensor, v: Tensor, mechanism: Mechanism) -> None:
    """Checks the shapes of q, k and v."""
    wrong = mismatch(q.shape, k.shape, v.shape, mechanism)
    if wrong is not None:
        raise SaccadeError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: {wrong}",
            code="shapes-do-not-fit",
        )


def mismatch(q: torch.Size, k: torch.Size, v: torch.Size, mechanism: Mechanism) -> str | None:
    if not len(q) == len(k) == len(v) == 4:
        return "each must have four dimensions, batch × heads × positions × width"
    if q[0] != k[0] or k[:3] != v[:3]:
        return "q, k and v must share the batch, and k and v their heads and positions"
    if min(q[1:3] + k[1:3]) < 1:
        return "there must be at least one head, one query and one key"
    if q[1] % k[1]:
        return "the heads of q must be a multiple of those of k and v"
    heads = mechanism.position.heads
    if heads not in (None, q[1]):
        return f"the position is made for {heads} heads; build it with heads={q[1]}"
    if q[3] != k[3] and not mechanism.score.unequal_widths:
        return "this score compares equal widths; use bilinear, reduced-rank or additive, or project first"
    return None
