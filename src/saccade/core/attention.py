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
# What people write who know PyTorch's functions and layers, and what it is called here.
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
# who is called by `attend`: open records of foreign models
attend_listeners: list[Callable[[Mechanism, Call, Mask | None], None]] = []


class UnknownArgument(SaccadeError, TypeError):
    """An argument that a function does not have; also a TypeError, as for any other function."""


def hint_unknown_arguments(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: an unknown keyword argument is refused with the way out, where it is one of PyTorch's or nearly one of ours."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*given: P.args, **named: P.kwargs) -> R:
            try:
                return function(*given, **named)
            except TypeError as error:
                known = [one for one in inspect.signature(function).parameters if one != "self"]
                wrong = next((one for one in named if one not in known), None)
                # not of this call
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
            raise UnknownArgument(f"{name} has no argument '{wrong}'{way_out}")

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
    """weights(q, k) @ v: B H Q D, B H K D, B H K E → B H Q E.

    q, k, v: queries, keys and values; k and v may have fewer heads than q, each shared by a group of q's heads.
    mechanism: score, normalizer, mask and position; scaled dot products with a softmax by default.
    mask: which queries may attend to which keys, combined (`&`) with the mechanism's own; a query that may attend nowhere gets zeros.
    positions: those of queries and keys; by default keys are at 0, 1, 2 … and the last query is at the last key.
    dropout: the probability that a weight is set to zero.
    backend: the name of one; by default the fastest that can run the mechanism here (see `which_backend`). Second derivatives and forward
        mode (`torch.func.jvp`) need "eager".

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
    """`attend` for keys and values that `mechanism.prepare` has made: nothing is checked or prepared again."""
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
    """The weights alone, B H Q K, by the definition."""
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
    """The call that backends run, from what a user passes: kinds and sizes checked."""
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
    """Queries encoded and projected; the mechanism's own mask and the given one as one, prepared for these sizes."""
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
    """What one backend says to a call: `reason` is None when it can run it."""

    backend: str
    reason: str | None
    chosen: bool

    def __str__(self) -> str:
        return f"{'→' if self.chosen else ' '} {self.backend:<7} {'can' if self.reason is None else 'refuses: ' + self.reason}"


class Explanation(list[Verdict]):
    """The verdicts of all backends, the best first; prints as a small table."""

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
    """Which backends can run the mechanism on these tensors, which one is taken, and why the others refuse."""
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
    """Raises when what is passed beside the tensors is of the wrong kind."""
    if not isinstance(mechanism, Mechanism):
        raise SaccadeError(
            f"expected a Mechanism, got {mechanism!r}; pass Mechanism(score, normalize, mask, position)"
        )
    if mask is not None and not isinstance(mask, Mask):
        raise SaccadeError(f"expected a mask, got {type(mask).__name__}; {mask_hint(mask)}")
    if positions is not None and not isinstance(positions, Positions):
        raise SaccadeError(
            f"expected Positions, got {type(positions).__name__}; pass Positions(i, j), or Positions.line(Q, K)"
        )
    if not 0.0 <= dropout < 1.0:
        raise SaccadeError(f"dropout must be in [0, 1), got {dropout}")


def check_order(
    own: Mask, mask: Mask | None, queries: int, keys: int, positions: Positions | None
) -> None:
    """Raises when a mask compares positions and there are more queries than keys, or positions are given for other numbers of both."""
    if positions is not None and (positions.i.shape[-1], positions.j.shape[-1]) != (queries, keys):
        given = f"positions are given for {positions.i.shape[-1]} queries and {positions.j.shape[-1]} keys"
        raise SaccadeError(
            f"{given}, got {queries} and {keys}; pass one position per query and key"
        )
    if (
        own.compares_positions or (mask is not None and mask.compares_positions)
    ) and queries > keys:
        got = f"got {queries} queries and {keys} keys; use a mask on keys alone, such as padding"
        raise SaccadeError(
            f"mask {own if mask is None else own & mask!r} compares positions and needs Q ≤ K, {got}"
        )


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raises when q, k and v are not tensors of one floating-point type."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            what = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise SaccadeError(
                f"{name} must be a floating-point tensor such as float32 or bfloat16, got {what}"
            )
    if not q.device == k.device == v.device:
        raise SaccadeError(
            f"q, k and v must be on one device, got {q.device}, {k.device} and {v.device}; move them with .to(device)"
        )
    # autocast converts them itself
    if not q.dtype == k.dtype == v.dtype and not torch.is_autocast_enabled(q.device.type):
        raise SaccadeError(
            f"q, k and v must have one type, got {q.dtype}, {k.dtype} and {v.dtype}; convert them first"
        )


def check_sizes(q: Tensor, k: Tensor, v: Tensor, mechanism: Mechanism) -> None:
    """Raises when the shapes of q, k and v do not go together."""
    wrong = mismatch(q.shape, k.shape, v.shape, mechanism)
    if wrong is not None:
        raise SaccadeError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: {wrong}")


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
