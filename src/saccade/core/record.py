"""Looking: `with record(model) as seen:` keeps the q and k that pass each site and computes weights when they are asked for.

Nothing is kept while no record is open: a site then has one `is None` to test. Sites hold their tape as an attribute, which
`torch.compile` guards: opening a record compiles a second version once, closing it goes back to the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import SaccadeError, did_you_mean
from .attention import attend, weights
from .masks import Mask
from .mechanism import Keys, Mechanism
from .places import Places

CHUNK_NUMBERS = 1 << 24  # weights computed at a time: 64 MB in float32


class Site(nn.Module):
    """A layer that attends; all of its attention passes `look`, where a record can listen."""

    mechanism: Mechanism
    cross = False  # it reads a memory (the source), not its own sequence
    tape: list[tuple[Tensor, Tensor, Mask | None, Places | None]] | None = None

    def look(
        self, q: Tensor, keys: Keys, v: Tensor, mask: Mask | None = None, places: Places | None = None, dropout: float = 0.0
    ) -> Tensor:
        """`attend` with this site's mechanism, noticed by an open record."""
        if self.tape is not None:
            self.tape.append((q.detach(), keys.tensor.detach(), mask, places))
        return attend(q, keys, v, self.mechanism, mask, places, dropout)


class Look:
    """One call of a site: q and the ready keys, from which any row's weights can be computed."""

    def __init__(self, mechanism: Mechanism, q: Tensor, keys: Tensor, mask: Mask | None, places: Places | None) -> None:
        self.mechanism, self.q, self.keys, self.mask, self.places = mechanism, q, keys, mask, places

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B H Q K"""
        return self.q.shape[0], self.q.shape[1], self.q.shape[2], self.keys.shape[2]

    @torch.no_grad()
    def weights(self, rows: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> Tensor:
        """Weights of the asked heads and rows (queries), all when not given: B × heads × rows × K. Holds no more than it returns and a chunk."""
        batch, n_heads, queries, keys = self.sizes
        asked = checked(rows, queries, "row")
        chosen = torch.tensor(checked(heads, n_heads, "head"), device=self.q.device)
        step = max(1, CHUNK_NUMBERS // (batch * n_heads * keys))
        parts = [self._rows(asked[at : at + step]).index_select(1, chosen) for at in range(0, len(asked), step)]
        return torch.cat(parts, 2)

    def _rows(self, rows: list[int]) -> Tensor:
        """All heads' weights of these rows: the problem is posed from the first of them on, and the rest is left out."""
        first, last = min(rows), max(rows)
        if last - first + 1 > 4 * len(rows):  # far apart: one by one
            return torch.cat([self._rows([row]) for row in rows], 2)
        _, _, queries, keys = self.sizes
        places = self.places or Places.in_line(queries, keys, self.q.device)
        cut = slice(first, last + 1)
        tree = None if places.tree is None else places.tree[:, cut]
        places = Places(places.i[..., cut], places.j, tree)
        whole = self.mechanism.mask if self.mask is None else self.mechanism.mask & self.mask
        mask = whole if last - first + 1 == queries else Shifted(whole, queries - 1 - last)
        found = weights(self.q[:, :, cut], Keys(self.keys), without_mask(self.mechanism), mask, places)
        return found.index_select(2, torch.tensor([row - first for row in rows], device=found.device))


class Shifted(Mask):
    """A mask for some of its queries, the last of which stands `back` places before the last key."""

    def __init__(self, inner: Mask, back: int) -> None:
        self.inner, self.back = inner, back
        self.by_batch, self.by_head, self.in_line = inner.by_batch, inner.by_head, inner.in_line

    @property
    def key(self) -> tuple[Any, ...]:
        return ("shifted", self.inner.key, self.back)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.inner.tensors

    def to(self, device: torch.device | str) -> Mask:
        return Shifted(self.inner.to(device), self.back)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.inner(b, h, i - self.back, j)


def without_mask(mechanism: Mechanism) -> Mechanism:
    return Mechanism(mechanism.score, mechanism.normalize, None, mechanism.position)


def checked(asked: Sequence[int] | None, size: int, what: str) -> list[int]:
    """The asked numbers, negative ones counted from the end."""
    if asked is None:
        return list(range(size))
    numbers = [int(n) for n in ([asked] if isinstance(asked, int) else asked)]
    wrong = [n for n in numbers if not -size <= n < size]
    if wrong or not numbers:
        raise SaccadeError(f"no {what} {wrong[0] if wrong else 'was named'}; there are {size}, counted from 0")
    return [n % size for n in numbers]


class Looks:
    """All calls of one site within a record, in order. Steps of a decoder follow one another as rows."""

    def __init__(self, name: str, site: Site, tape: list[tuple[Tensor, Tensor, Mask | None, Places | None]]) -> None:
        self.name, self.cross, self._mechanism, self._tape = name, site.cross, site.mechanism, tape

    @property
    def calls(self) -> list[Look]:
        return [Look(self._mechanism, *kept) for kept in self._tape]

    def weights(self, rows: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> Tensor:
        """B × heads × rows × K over all calls: the rows of later calls follow those of earlier ones, shorter rows end in zeros."""
        calls = self.calls
        if not calls:
            raise SaccadeError(f"'{self.name}' was not called while the record was open; run the model inside the `with`")
        if len(calls) == 1:
            return calls[0].weights(rows, heads)
        if len({call.sizes[0] for call in calls}) > 1:
            raise SaccadeError(
                f"'{self.name}' saw batches of different sizes; look at one call: seen['{self.name}'].calls[0].weights()"
            )
        starts = [0]
        for call in calls:
            starts.append(starts[-1] + call.sizes[2])
        longest = max(call.sizes[3] for call in calls)
        found = []
        for row in checked(rows, starts[-1], "row"):
            at = next(n for n in range(len(calls)) if row < starts[n + 1])
            one = calls[at].weights([row - starts[at]], heads)
            found.append(nn.functional.pad(one, (0, longest - one.shape[-1])))
        return torch.cat(found, 2)


class Seen(Mapping[str, Looks]):
    """What a record saw: site name → looks. Names are the paths of the layers in the model, such as `decoder.2.cross`."""

    def __init__(self, sites: dict[str, Looks]) -> None:
        self._sites = sites

    def __getitem__(self, name: str) -> Looks:
        if name not in self._sites:
            raise SaccadeError(f"no attention named '{name}'{did_you_mean(name, self._sites)}")
        return self._sites[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sites)

    def __len__(self) -> int:
        return len(self._sites)


def site_name(path: str) -> str:
    """A site's path in the model, without what `torch.compile` puts into it; a layer recorded by itself is called `attention`."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod") or "attention"


def sites(model: nn.Module) -> dict[str, Site]:
    """Every site of a model under its name."""
    return {site_name(name): module for name, module in model.named_modules() if isinstance(module, Site)}


@contextmanager
def record(model: nn.Module) -> Iterator[Seen]:
    """Within the `with`, every site of the model keeps q and k; afterwards the record can still be read."""
    if not isinstance(model, nn.Module):
        raise SaccadeError(f"a record of {type(model).__name__}; hand in a model or a layer")
    found = sites(model)
    if any(site.tape is not None for site in found.values()):
        raise SaccadeError("a record of this model is open already; close it first")
    seen = {}
    for name, site in found.items():
        site.tape = []
        seen[name] = Looks(name, site, site.tape)
    try:
        yield Seen(seen)
    finally:
        for site in found.values():
            site.tape = None
