"""Plain loops for mixers that have a test file of their own, shared with the tests over the whole table."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from saccade.layers.linformer import Linformer
from saccade.layers.synthesizers import Synthesizer

DIM, HEADS = 6, 2


def shaken(mixer: Any) -> Any:
    """In float64, with parameters for which everything matters."""
    with torch.no_grad():
        for parameter in mixer.double().parameters():
            parameter.copy_(torch.randn_like(parameter))
    return mixer


def own_score(layer: Synthesizer, q: Tensor, h: int, i: int, j: int) -> Tensor:
    """The synthesized score of head h, query i (its vector is q) and key j."""
    position = layer.mechanism.position
    tables, active = list(position.tables), q.clamp_min(0)
    if position.kind == "dense":
        return sum(active[d] * tables[0][d, j] for d in range(len(q)))
    if position.kind == "random":
        return tables[0][h, i, j]
    if position.kind == "factorized":
        return sum(tables[0][h, i, r] * tables[1][h, j, r] for r in range(tables[0].shape[-1]))
    rank = tables[0].shape[-1]
    # the short one again and again, each score of the other in a row
    tiled = torch.cat([active @ tables[0]] * tables[1].shape[-1])
    return tiled[j] * (active @ tables[1]).repeat_interleave(rank)[j]


def synthesizer_loop(layer: Synthesizer, x: Tensor, causal: bool, lengths: list[int]) -> Tensor:
    found, width = torch.zeros_like(x), layer.width
    q, k, v = (part(x).unflatten(-1, (layer.heads, width)) for part in (layer.q, layer.k, layer.v))
    alpha = layer.mechanism.position.alpha
    plus = type(layer.k).__name__ != "Nothing"
    share = None if alpha is None else 1 / (1 + (-alpha).exp())
    for b, length in enumerate(lengths):
        for n in range(x.shape[1]):
            seen = [m for m in range(length) if m <= n or not causal]
            heads = []
            for h in range(layer.heads):
                fits = []
                for m in seen:
                    own, dot = (
                        own_score(layer, q[b, n, h], h, n, m),
                        q[b, n, h] @ k[b, m, h] / width**0.5,
                    )
                    fits.append(
                        own
                        if not plus
                        else own + dot
                        if share is None
                        else share * own + (1 - share) * dot
                    )
                heads.append(
                    sum(
                        w * v[b, m, h]
                        for w, m in zip(torch.stack(fits).softmax(0), seen, strict=True)
                    )
                )
            found[b, n] = layer.out(torch.cat(heads))
    return found


def linformer_loop(layer: Linformer, x: Tensor, causal: bool, lengths: list[int]) -> Tensor:
    assert not causal
    found, width = torch.zeros_like(x), layer.width
    q, k, v = (part(x).unflatten(-1, (layer.heads, width)) for part in (layer.q, layer.k, layer.v))
    for b, length in enumerate(lengths):
        for n in range(x.shape[1]):
            heads = []
            for h in range(layer.heads):
                plane = h if len(layer.project_keys) > 1 else 0
                to_keys, to_values = layer.project_keys[plane], layer.project_values[plane]
                slots = range(len(to_keys))
                keys = [sum(to_keys[s, m] * k[b, m, h] for m in range(length)) for s in slots]
                values = [sum(to_values[s, m] * v[b, m, h] for m in range(length)) for s in slots]
                fits = torch.stack([q[b, n, h] @ one for one in keys]) / width**0.5
                heads.append(sum(w * one for w, one in zip(fits.softmax(0), values, strict=True)))
            found[b, n] = layer.out(torch.cat(heads))
    return found
