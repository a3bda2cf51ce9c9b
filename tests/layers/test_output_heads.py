"""Heads: tied and untied, the mixture of softmaxes against explicit probabilities, BERT's transform."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.support import raises
from torch import Tensor, nn

from saccade.layers.embeddings import Adaptive, CharacterCnn, Embedding, Factorized, Tokens
from saccade.layers.output_heads import (
    AdaptiveSoftmax,
    LinearHead,
    MixtureOfSoftmaxes,
    TransformHead,
    table,
)
from saccade.settings import Choice

VOCAB, DIM = 7, 4
EMBEDDINGS: dict[str, Callable[[], Embedding]] = {
    "tokens": lambda: Tokens(VOCAB, DIM),
    "factorized": lambda: Factorized(VOCAB, DIM, rank=3),
    "adaptive": lambda: Adaptive(VOCAB, DIM, factor=2),
    "characters": lambda: CharacterCnn(VOCAB, DIM, byte_dim=3, filters=2),
}


def vectors(tied: Embedding) -> Tensor:
    """V × D: the vector of each token in a tied head."""
    if isinstance(tied, Factorized):
        return tied.table.weight @ tied.project.weight.T
    if isinstance(tied, Adaptive):
        each = zip(tied.tables, tied.projects, strict=True)
        return torch.cat(
            [one.weight @ p.weight.T if isinstance(p, nn.Linear) else one.weight for one, p in each]
        )
    return tied.weight if isinstance(tied, Tokens) else tied.table.weight


def linear(head: LinearHead, matrix: Tensor, x: Tensor) -> Tensor:
    return x @ matrix.T + (0 if head.bias is None else head.bias)


def mixture(head: MixtureOfSoftmaxes, matrix: Tensor, x: Tensor) -> Tensor:
    """log Σ_k π_k softmax(W tanh(A_k x)), one vector and one component at a time."""
    rows = []
    for vector in x.reshape(-1, DIM):
        prior = (head.prior.weight @ vector).softmax(0)
        total = torch.zeros(VOCAB, dtype=torch.float64)
        for k in range(head.count):
            part = slice(k * DIM, (k + 1) * DIM)
            latent = torch.tanh(head.latent.weight[part] @ vector + head.latent.bias[part])
            total = total + prior[k] * (
                matrix @ latent + (0 if head.bias is None else head.bias)
            ).softmax(0)
        rows.append(total.log())
    return torch.stack(rows).view(*x.shape[:-1], VOCAB)


def adaptive(head: AdaptiveSoftmax, matrix: Tensor, x: Tensor) -> Tensor:
    """log p(cluster) p(token | cluster), one vector and one token at a time, by sums of exponentials."""
    rows, bias = [], torch.zeros(VOCAB, dtype=torch.float64) if head.bias is None else head.bias
    for vector in x.reshape(-1, DIM):
        logits, clusters = matrix @ vector + bias, head.cluster(vector)
        top = logits[: head.first].exp().sum() + clusters.exp().sum()
        found = [logits[n].exp() / top for n in range(head.first)]
        for k, (first, end) in enumerate(head.rest):
            found += [
                clusters[k].exp() / top * logits[n].exp() / logits[first:end].exp().sum()
                for n in range(first, end)
            ]
        rows.append(torch.stack(found).log())
    return torch.stack(rows).view(*x.shape[:-1], VOCAB)


ORACLES: dict[str, Callable[..., Tensor]] = {
    "linear": linear,
    "mixture": mixture,
    "adaptive": adaptive,
}


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def made(name: str, tied: Embedding | None = None, bias: bool = False) -> LinearHead:
    head = Choice(table[name], table.entry(name).example)(
        dim=DIM, vocab=VOCAB, tied=tied, bias=bias
    ).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return head


def test_every_head_has_its_formula() -> None:
    assert set(ORACLES) == set(table.names())


@pytest.mark.parametrize("name", table.names())
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("to", [None, *EMBEDDINGS])
def test_a_head_is_its_formula_tied_or_with_a_matrix_of_its_own(
    name: str, bias: bool, to: str | None
) -> None:
    tied = None if to is None else EMBEDDINGS[to]().double()
    head, x = made(name, tied, bias), some(2, 3, DIM).requires_grad_()
    matrix = (
        vectors(tied or head.own)
        if tied is not None or isinstance(head, AdaptiveSoftmax)
        else head.weight
    )
    torch.testing.assert_close(head(x), ORACLES[name](head, matrix, x))
    parameters = [
        *head.parameters(),
        *([] if tied is None else getattr(tied, "table", tied).parameters()),
    ]
    assert torch.autograd.gradcheck(lambda x, *_: head(x), (x, *parameters), fast_mode=True)
    assert (
        not any(key.startswith("_tied") or key == "weight" for key in head.state_dict())
        or tied is None
    )
    assert ("bias" in head.state_dict()) == bias


def test_a_mixture_gives_probabilities_that_a_softmax_leaves_as_they_are_and_of_a_higher_rank() -> (
    None
):
    head, x = MixtureOfSoftmaxes(2, 9, count=3).double(), some(40, 2)
    nn.init.normal_(head.weight, std=2)
    found = head(x)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(40, dtype=torch.float64))
    torch.testing.assert_close(found.log_softmax(-1), found)
    plain = LinearHead(2, 9).double()(x).log_softmax(-1)
    assert torch.linalg.matrix_rank(plain, rtol=1e-6) <= 3
    assert torch.linalg.matrix_rank(found, rtol=1e-6) > 3


@pytest.mark.parametrize("name", ["mixture", "adaptive"])
def test_low_precision_keeps_the_digits_of_probabilities(name: str) -> None:
    head = made(name).to(torch.bfloat16)
    found = head(some(2, 3, DIM).bfloat16())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(2, 3))


def test_a_tied_head_follows_its_embedding_and_owns_none_of_it() -> None:
    tied = Tokens(VOCAB, DIM)
    head, x = LinearHead(DIM, VOCAB, tied), torch.randn(2, DIM)
    assert list(head.parameters()) == []
    with torch.no_grad():
        tied.weight.mul_(2)
    torch.testing.assert_close(head(x), x @ tied.weight.T)
    both = nn.ModuleDict({"tokens": tied, "head": head}).double()  # moved together
    torch.testing.assert_close(both["head"](x.double()), x.double() @ tied.weight.T)


def test_berts_head_transforms_before_it_names() -> None:
    tied = Tokens(VOCAB, 3).double()
    head, x = TransformHead(DIM, VOCAB, tied, 3).double(), some(2, 5, DIM)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn_like(parameter))
    between = nn.functional.layer_norm(
        nn.functional.gelu(x @ head.transform.weight.T + head.transform.bias),
        [3],
        head.norm.weight,
        head.norm.bias,
    )
    torch.testing.assert_close(head(x), between @ tied.weight.T + head.bias)


def test_mistakes_are_answered_with_sentences() -> None:
    for make in (LinearHead, MixtureOfSoftmaxes, AdaptiveSoftmax):
        with raises("vocabulary-differs"):
            make(DIM, 8, Tokens(VOCAB, DIM))
