"""Recording: `with record(model) as seen:` (core/recorder.py) stores q and k of each attention and computes weights on demand.

No overhead when no recording is active: a site tests one attribute for None. `torch.compile` guards that attribute, so opening a record
compiles a second version once; closing it returns to the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from ..errors import SaccadeError, did_you_mean
from . import auxiliary_losses
from .attention import call_of, read
from .backends import eager
from .masks import Mask
from .mechanism import Mechanism, Ready
from .normalizers import Softmax
from .positions import Positions
from .query_chunks import Shifted

# Numbers computed at a time: 64 MB in float32.
CHUNK_NUMBERS = 1 << 24


class Site(nn.Module):
    """A layer with attention. All of it goes through `look`, which a record observes."""

    mechanism: Mechanism
    cross = False  # cross-attention: keys come from another sequence
    in_order = False  # query t is output t of the model, and earlier outputs do not depend on it
    tape: list[Look] | None = None

    def look(
        self,
        q: Tensor,
        ready: Ready,
        mask: Mask | None = None,
        positions: Positions | None = None,
        dropout: float = 0.0,
        first: int = 0,
        factor: Tensor | None = None,
    ) -> Tensor:
        """`read` with this site's mechanism, visible to an open record.

        `first` is the number of queries of this pass in earlier calls. `factor` (B H Q K) multiplies the weights.
        """
        mechanism = self.mechanism
        seen = None
        if self.tape is not None:
            key = ready.key.detach() if ready.key.requires_grad else ready.key
            seen = Look(
                mechanism, q.detach() if q.requires_grad else q, key, mask, positions, first, factor
            )
            self.tape.append(seen)
        normalize = mechanism.normalize
        sampled = normalize.samples and normalize.training
        if (
            not sampled
            and factor is None
            and not (self.cross and auxiliary_losses.weights_requested())
        ):
            return read(q, ready, mechanism, mask, positions, dropout)
        call = call_of(q, ready, mechanism, mask, positions, dropout)
        scores, allowed = eager.scores(call), call.allowed()
        with auxiliary_losses.locate_samples(first, self.in_order):
            weights = normalize(scores, allowed)
        if seen is not None and sampled:
            # Recomputing would draw another sample.
            seen.kept = weights.detach()
        output = eager.weighted_sum(call, weights if factor is None else weights * factor)
        if not (self.cross and auxiliary_losses.weights_requested()):
            return output
        # A sample has no gradient; its distribution has.
        soft = Softmax()(scores, allowed) if sampled else weights
        values = (soft if factor is None else soft * factor).mean(1)
        return auxiliary_losses.add_weights(
            output, self, values, None if allowed is None else allowed.any(2).any(1), first
        )


def sites(model: nn.Module) -> dict[str, Site]:
    """The attention layers of a model by path.

    >>> from saccade import MultiHeadAttention
    >>> from saccade.core import sites
    >>> list(sites(MultiHeadAttention(8, heads=2)))
    ['attention']
    """
    return sites_of(paths_in(model))


def sites_of(paths: dict[nn.Module, str]) -> dict[str, Site]:
    return {
        path_of(path) or "attention": module
        for module, path in paths.items()
        if isinstance(module, Site)
    }


def paths_in(
    module: nn.Module, path: str = "", found: dict[nn.Module, str] | None = None
) -> dict[nn.Module, str]:
    """The paths of a module and its submodules, each once. Twice as fast as `named_modules`."""
    found = {} if found is None else found
    found[module] = path
    for name, inner in module._modules.items():
        if inner is not None and inner not in found:
            found[inner] = f"{path}.{name}" if path else name
            if inner._modules:
                paths_in(inner, found[inner], found)
    return found


def path_of(path: str) -> str:
    """A path without the `_orig_mod` that torch.compile inserts."""
    if "_orig_mod" not in path:
        return path
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


class Look:
    """One call of a site: q and the prepared keys, from which weights are computed."""

    def __init__(
        self,
        mechanism: Mechanism,
        q: Tensor,
        key: Tensor,
        mask: Mask | None,
        positions: Positions | None,
        first: int,
        factor: Tensor | None = None,
    ) -> None:
        self.mechanism, self.q, self.key, self.mask = mechanism, q, key, mask
        self.positions, self.first = positions, first
        self.factor = None if factor is None else factor.detach()
        # Sampled weights, B H Q K.
        self.kept: Tensor | None = None

    @property
    def numbers_per_score(self) -> int:
        """Numbers per score during computation. Scores other than dot products may need a vector per pair."""
        return 1 if self.mechanism.score.dot else self.key.shape[-1]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B H Q K"""
        return self.q.shape[0], self.q.shape[1], self.q.shape[2], self.key.shape[2]

    @torch.no_grad()
    def weights(
        self, rows: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> Tensor:
        """Weights, B × heads × rows × K. Memory: the result and one chunk.

        Args:
            rows: Indices of queries, all by default; negative indices count from the end.
            heads: Indices of heads, all by default.
        """
        batch, n_heads, queries, keys = self.sizes
        asked = indices(rows, queries, "row")
        chosen = (
            None
            if heads is None
            else torch.tensor(indices(heads, n_heads, "head"), device=self.q.device)
        )
        step = max(1, CHUNK_NUMBERS // (batch * n_heads * keys * self.numbers_per_score))
        parts = [self._rows(asked[at : at + step]) for at in range(0, len(asked), step)]
        parts = parts if chosen is None else [part.index_select(1, chosen) for part in parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)

    def _rows(self, rows: list[int]) -> Tensor:
        """Weights of these rows for all heads, computed over the range that contains them."""
        first, last = min(rows), max(rows)
        # Sparse rows are computed one by one.
        if last - first + 1 > 4 * len(rows):
            return torch.cat([self._rows([row]) for row in rows], 2)
        _, _, queries, keys = self.sizes
        cut = slice(first, last + 1)
        positions = (self.positions or Positions.line(queries, keys, self.q.device)).rows(cut)
        whole = self.mechanism.mask if self.mask is None else self.mechanism.mask & self.mask
        mask = whole if last - first + 1 == queries else Shifted(whole, queries - 1 - last)
        plain = Mechanism(
            self.mechanism.score, self.mechanism.normalize, None, self.mechanism.position
        )
        if self.kept is not None:
            found = self.kept[:, :, cut]
        else:
            found = eager.weights(
                call_of(self.q[:, :, cut], Ready(self.key, self.key), plain, mask, positions, 0.0)
            )
        found = found if self.factor is None else found * self.factor[:, :, cut]
        if rows == list(range(first, last + 1)):
            return found
        return found.index_select(
            2, torch.tensor([row - first for row in rows], device=found.device)
        )


def indices(asked: Sequence[int] | None, size: int, what: str) -> list[int]:
    """The given indices, all by default; negative ones count from the end."""
    if asked is None:
        return list(range(size))
    numbers = [int(n) for n in ([asked] if isinstance(asked, int) else asked)]
    wrong = [n for n in numbers if not -size <= n < size]
    if wrong or not numbers:
        raise SaccadeError(
            f"{what} must be in 0 … {size - 1}, got {wrong[0] if wrong else 'none'}",
            code="index-out-of-range",
        )
    return [n % size for n in numbers]


class Looks:
    """All calls of one site within a record, in order."""

    def __init__(self, name: str, cross: bool, tape: list[Look]) -> None:
        self.name, self.calls, self.cross = name, tape, cross

    def __repr__(self) -> str:
        sizes = "×".join(map(str, self.calls[-1].sizes)) if self.calls else ""
        calls = (
            "not called"
            if not self.calls
            else f"{len(self.calls)} call{'s' * (len(self.calls) > 1)}, the last B×H×Q×K = {sizes}"
        )
        return f"Looks({self.name}{', cross' * self.cross}: {calls})"

    @property
    def passes(self) -> list[list[Look]]:
        """Calls grouped by forward pass: one call, or the consecutive steps of a decoder."""
        found: list[list[Look]] = []
        rows: list[int] = []
        for call in self.calls:
            at = next(
                (n for n, count in enumerate(rows) if call.first and count == call.first), None
            )
            if at is None:
                found.append([])
                rows.append(0)
                at = len(rows) - 1
            found[at].append(call)
            rows[at] += call.sizes[2]
        return found

    def weights(
        self, rows: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> Tensor:
        """Weights of all calls, B × heads × rows × K.

        Decoder steps become rows, padded with zeros at the end. Several passes are stacked along a new first dimension.

        Args:
            rows: Indices of queries, all by default.
            heads: Indices of heads, all by default.
        """
        if not self.calls:
            raise SaccadeError(
                f"'{self.name}' was not called while the record was open; run the model inside the `with`",
                code="site-not-called",
            )
        each = self.passes
        if (
            len(
                {
                    (one[0].sizes[0], sum(call.sizes[2] for call in one), one[-1].sizes[3])
                    for one in each
                }
            )
            > 1
        ):
            one = f"seen['{self.name}'].calls[0].weights()"
            raise SaccadeError(
                f"'{self.name}' saw batches of different sizes; look at one call: {one}",
                code="batch-sizes-differ",
            )
        found = [pass_weights(one, rows, heads) for one in each]
        return found[0] if len(found) == 1 else torch.stack(found)


def pass_weights(
    calls: list[Look], rows: Sequence[int] | None, heads: Sequence[int] | None
) -> Tensor:
    """The weights of one pass."""
    if len(calls) == 1:
        return calls[0].weights(rows, heads)
    starts = list(accumulate((call.sizes[2] for call in calls), initial=0))
    longest = max(call.sizes[3] for call in calls)
    found = []
    for row in indices(rows, starts[-1], "row"):
        at = next(n for n in range(len(calls)) if row < starts[n + 1])
        one = calls[at].weights([row - starts[at]], heads)
        found.append(nn.functional.pad(one, (0, longest - one.shape[-1])))
    return torch.cat(found, 2)


class Seen(dict[str, Looks]):
    """The result of a record: site name → calls. Names are module paths, such as `decoder.2.cross`."""

    def __missing__(self, name: str) -> Looks:
        raise SaccadeError(
            f"no attention named '{name}'{did_you_mean(name, self)}", code="unknown-site"
        )

    def __repr__(self) -> str:
        some = list(self) if len(self) < 5 else [*list(self)[:2], "…", list(self)[-1]]
        return f"Seen({len(self)} site{'s' * (len(self) != 1)}{': ' * bool(some)}{', '.join(some)})"


def source_weights(seen: Seen) -> Tensor:
    """Cross-attention weights averaged over sites, heads and passes: B T N."""
    found = [site.weights().mean(-3) for site in seen.values() if site.cross]
    if not found:
        raise SaccadeError(
            "this model does not attend to the source, so it has no alignment; use a model with attention",
            code="no-attention-to-source",
        )
    # Sites with several passes have one more dimension in front.
    return torch.stack([one.mean(0) if one.dim() == 4 else one for one in found]).mean(0)


def stretch_weights(weights: Tensor, rows: int, columns: int) -> Tensor:
    """Weights (… Q K) of a model that pools its input, expanded to all positions.

    The row of a pooled query is repeated. The weight of a pooled key is divided among its positions.
    """
    if weights.shape[-2:] == (rows, columns):
        return weights
    row, column = (
        pooled_index(*sizes).to(weights.device)
        for sizes in zip((rows, columns), weights.shape[-2:], strict=True)
    )
    return weights[..., row, :][..., column] / torch.bincount(column)[column]


def pooled_index(size: int, short: int) -> Tensor:
    """The pooled index (below `short`) of each of `size` positions, with pooling by pairs."""
    stride = 1
    while -(-size // stride) > short:
        stride *= 2
    return torch.arange(size) // stride
