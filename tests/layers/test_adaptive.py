"""Adaptive embeddings and softmax: against loops and PyTorch's own, what they cost, and a loss that computes the asked clusters alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.core.auxiliary_losses import collect
from saccade.data.vocabulary import SPECIALS, Vocabulary
from saccade.errors import SaccadeError
from saccade.layers.embeddings import Adaptive, Factorized, Tokens, clusters_of, table
from saccade.layers.output_heads import AdaptiveSoftmax
from saccade.models import CausalLM, Seq2Seq
from saccade.models.builder import Builder
from saccade.settings import choose
from saccade.training.flops import counter
from saccade.training.losses import Batch, batch_loss, each_loss, token_loss

VOCAB, DIM = 40, 16


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


# --- clusters


def test_clusters_grow_and_cover_every_token_of_any_vocabulary() -> None:
    assert clusters_of(40, 3, 2.5) == [(0, 4), (4, 14), (14, 40)]
    assert clusters_of(32128, 3, 2.5) == [(0, 3077), (3077, 10769), (10769, 32128)]
    assert clusters_of(8000, 3, 2.5)[:2] == clusters_of(8100, 3, 2.5)[:2]
    for vocab in range(2, 60):
        for count in (2, 3, 7):
            for growth in (1.0, 3.0, 100.0):
                found = clusters_of(vocab, count, growth)
                assert [token for first, end in found for token in range(first, end)] == list(
                    range(vocab)
                )
                assert 2 <= len(found) <= count
                assert all(end > first for first, end in found)


def test_clusters_and_widths_may_be_listed() -> None:
    """As in the code of Narang et al. 2021: 2,500 tokens of width 768, 6,000 of 256, 23,628 of 64."""
    assert clusters_of(32128, 3, [2.4, 3.5833]) == [(0, 2500), (2500, 8500), (8500, 32128)]
    assert clusters_of(40, 3, [2.5, 2.5]) == clusters_of(40, 3, 2.5)
    with torch.device("meta"):
        made = Adaptive(32128, 768, growth=[2.4, 3.5833], factor=[3, 4])
    assert [tuple(one.weight.shape) for one in made.tables] == [
        (2500, 768),
        (6000, 256),
        (23628, 64),
    ]
    for wrong, sentence in (
        (
            {"growth": [2.0]},
            r"growth lists 1 numbers, and 2 clusters follow the first; list one for each of these",
        ),
        ({"factor": [2, 2, 2]}, r"factor lists 3 numbers, and 2 clusters follow the first"),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            Adaptive(VOCAB, DIM, **wrong)
    for given, sentence in (
        ([2.0, "x"], r"e\.growth is \[2\.0, 'x'\]; it must be a list of numbers"),
        ([2.0, float("nan")], r"it must be a list of numbers"),
        ([2.0, 0.5], r"its numbers must lie between 1\.0 and 100\.0, at least one"),
        ([], r"its numbers must lie between 1\.0 and 100\.0, at least one"),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            choose(table, {"name": "adaptive", "growth": given}, "e")


def test_ids_of_words_and_characters_are_in_the_order_of_their_counts() -> None:
    lines = ["the cat saw the dog", "the dog saw a bird", "a cat and the bird", "the end"]
    for kind, pieces in (("words", " ".join(lines).split()), ("characters", list("".join(lines)))):
        made = Vocabulary.train(lines, kind)
        tokens = [made.token(n) for n in range(len(made))]
        assert tokens[:4] == list(SPECIALS.values())
        counts = [pieces.count(token) for token in tokens[4:]]
        assert counts == sorted(counts, reverse=True), kind
    bpe = Vocabulary.train(lines * 3, "bpe", size=300)
    assert all(len(bpe.token(n)) == 1 for n in range(4, 260)), "the bytes first"
    assert bpe.token(260) in ("he", "Ġt", "th"), (
        "then merges, the most frequent first: `the` occurs most often"
    )


# --- the embedding


def test_an_adaptive_embedding_is_its_formula_token_by_token_and_its_logits_are_dot_products() -> (
    None
):
    made, x = Adaptive(VOCAB, DIM).double(), some(2, 3, DIM)
    made.initialize(0.5)
    assert [tuple(one.weight.shape) for one in made.tables] == [(4, 16), (10, 4), (26, 1)]
    tokens, vectors = torch.arange(VOCAB).view(2, 20), []
    for token in range(VOCAB):
        if token < 4:
            vectors.append(made.tables[0].weight[token])
        elif token < 14:
            vectors.append(made.projects[1].weight @ made.tables[1].weight[token - 4])
        else:
            vectors.append(made.projects[2].weight @ made.tables[2].weight[token - 14])
    matrix = torch.stack(vectors)
    torch.testing.assert_close(made(tokens), matrix.view(2, 20, DIM))
    torch.testing.assert_close(made.logits(x), x @ matrix.T)
    for within in (slice(0, 4), slice(2, 30), slice(14, 40), slice(39, 40), slice(5, None)):
        torch.testing.assert_close(made.logits(x, within), (x @ matrix.T)[..., within])
    parameters = list(made.parameters())
    assert torch.autograd.gradcheck(lambda *_: made(tokens[:, ::5]), parameters, fast_mode=True)


def test_parameters_operations_and_the_size_of_the_first_vectors() -> None:
    made = Adaptive(4000, 64)
    made.initialize(0.125)
    sizes = [end - first for first, end in made.clusters]
    assert sum(p.numel() for p in made.parameters()) == sizes[0] * 64 + sizes[1] * 16 + sizes[
        2
    ] * 4 + 64 * (16 + 4)
    with counter() as counted:
        found = made(torch.arange(4000))
    assert counted.get_total_flops() == 2 * 4000 * 64 * (16 + 4)
    for first, end in made.clusters:
        assert found[first:end].std().item() == pytest.approx(0.125, rel=0.2), (
            "alike in every cluster"
        )
    plain = Adaptive(40, 16, factor=1)
    assert [type(one) for one in plain.projects] == [nn.Identity] * 3
    assert sum(p.numel() for p in plain.parameters()) == 40 * 16


# --- the head


def peer(head: AdaptiveSoftmax) -> nn.AdaptiveLogSoftmaxWithLoss:
    """PyTorch's, with a copy of the head's parameters; its clusters have no biases."""
    assert head.own is not None
    cutoffs = [first for first, _ in head.rest]
    made = nn.AdaptiveLogSoftmaxWithLoss(
        DIM, VOCAB, cutoffs, div_value=4.0, head_bias=head.bias is not None
    ).double()
    with torch.no_grad():
        made.head.weight.copy_(torch.cat([head.own.tables[0].weight, head.cluster.weight]))
        for (narrow, wide), table, project in zip(
            made.tail, head.own.tables[1:], head.own.projects[1:], strict=True
        ):
            narrow.weight.copy_(project.weight.T)
            wide.weight.copy_(table.weight)
        if head.bias is not None:
            made.head.bias.copy_(torch.cat([head.bias[: head.first], head.cluster.bias]))
            head.bias[head.first :] = 0
    return made


@pytest.mark.parametrize("bias", [False, True])
def test_the_head_is_pytorchs_with_the_same_parameters(bias: bool) -> None:
    head, x, target = (
        AdaptiveSoftmax(DIM, VOCAB, bias=bias).double(),
        some(60, DIM),
        torch.randint(0, VOCAB, (60,)),
    )
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn_like(parameter))
    theirs = peer(head)
    torch.testing.assert_close(head(x), theirs.log_prob(x))
    expected, loss = theirs(x, target)
    with collect(target):
        found = head(x)
    torch.testing.assert_close(found, expected)
    ours = torch.autograd.grad(
        token_loss(found, target, -100) / 60, [head.own.tables[2].weight, head.cluster.weight]
    )
    tail, top = torch.autograd.grad(loss, [theirs.tail[1][1].weight, theirs.head.weight])
    torch.testing.assert_close(ours, (tail, top[head.first :]))


def test_a_head_tied_to_any_embedding_is_the_same_for_targets_as_for_all_tokens() -> None:
    x, target = some(5, 9, DIM), torch.randint(0, VOCAB, (5, 9))
    for tied in (
        Tokens(VOCAB, DIM),
        Factorized(VOCAB, DIM, 5),
        Adaptive(VOCAB, DIM, clusters=4, growth=1.5),
        None,
    ):
        head = AdaptiveSoftmax(
            DIM, VOCAB, None if tied is None else tied.double(), bias=True
        ).double()
        whole = head(x)
        torch.testing.assert_close(whole.exp().sum(-1), torch.ones(5, 9, dtype=torch.float64))
        with collect(target):
            torch.testing.assert_close(head(x), whole.gather(-1, target.unsqueeze(-1)).squeeze(-1))
        with collect(target[:, :3]):
            assert head(x).shape == (5, 9, VOCAB), "rows that are not the asked ones"
    assert len(AdaptiveSoftmax(DIM, VOCAB, Adaptive(VOCAB, DIM, clusters=4, growth=1.5)).rest) == 3


def test_parameters_and_operations_by_formulas() -> None:
    n0, sizes, widths = 4, (10, 26), (4, 1)
    head = AdaptiveSoftmax(DIM, VOCAB)
    parameters = DIM * (n0 + 2) + sum(n * w + w * DIM for n, w in zip(sizes, widths, strict=True))
    assert sum(p.numel() for p in head.parameters()) == parameters
    x, target = torch.randn(50, DIM), torch.tensor([0] * 30 + [5] * 15 + [20] * 5)
    with counter() as whole:
        head(x)
    assert whole.get_total_flops() == 2 * 50 * parameters
    with counter() as asked, collect(target):
        head(x)
    rows = (15, 5)
    tails = sum(r * (n * w + w * DIM) for r, n, w in zip(rows, sizes, widths, strict=True))
    assert asked.get_total_flops() == 2 * (50 * DIM * (n0 + 2) + tails)


@pytest.mark.parametrize("option", [{"clusters": 4}, {"growth": 3.0}, {"factor": 2}])
def test_an_option_that_a_tied_head_cannot_have_is_refused(option: dict[str, Any]) -> None:
    [name] = option
    sentence = f"expected a head with the embedding's {name}, to which it is tied, got its own; leave head.{name} out"
    with pytest.raises(SaccadeError, match=sentence):
        AdaptiveSoftmax(DIM, VOCAB, Adaptive(VOCAB, DIM), **option)
    if name == "factor":
        with pytest.raises(SaccadeError, match=sentence):
            AdaptiveSoftmax(DIM, VOCAB, Tokens(VOCAB, DIM), **option)
    else:
        assert str(AdaptiveSoftmax(DIM, VOCAB, Tokens(VOCAB, DIM), **option).rest) != str(
            AdaptiveSoftmax(DIM, VOCAB).rest
        )
    assert str(AdaptiveSoftmax(DIM, VOCAB, **option)) != str(AdaptiveSoftmax(DIM, VOCAB))


# --- the loss of whole models

SIZES = {"dim": 16, "hidden": 20, "depth": 1, "heads": 2, "dropout": 0.0}
SOURCE, LENGTHS = torch.randint(4, VOCAB, (6, 7)), torch.tensor([7, 7, 5, 3, 2, 1])
READ, TARGET = torch.randint(4, VOCAB, (6, 8)), torch.randint(4, 30, (6, 8))
TARGET[2:, 5:] = 0
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"embedding": "adaptive", "shared": True},
    "transformer-decoder": {"tied": True},
    "rnn-decoder": {"tied": False, "heads": None, "size_penalty": 0.0, "change_penalty": 0.0},
    "bahdanau": {"heads": None},
}


def model_and_batch(family: str, head: str) -> tuple[nn.Module, Batch]:
    torch.manual_seed(1)
    given = {key: one for key, one in {**SIZES, **MODELS[family]}.items() if one is not None}
    given |= {
        key: 0.0
        for key in ("embedding_dropout", "input_dropout", "layer_dropout", "weight_dropout")
        if family == "rnn-decoder"
    }
    pair = family in ("transformer", "bahdanau")
    builder = Builder({"family": family, "head": head, **given})
    model = builder.make(Seq2Seq, VOCAB, VOCAB) if pair else builder.make(CausalLM, VOCAB)
    inputs = (SOURCE, LENGTHS, READ) if pair else (READ,)
    return model.double(), Batch(inputs, TARGET, 0, int((TARGET != 0).sum()), range(6))


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("head", ["adaptive", "linear"])
def test_the_loss_and_every_gradient_are_those_of_all_logits(
    family: str, smoothing: float, head: str
) -> None:
    model, batch = model_and_batch(family, head)
    expected = token_loss(model(*batch.inputs), batch.target, 0, smoothing)
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    found = batch_loss(model, batch, smoothing)
    gradients = torch.autograd.grad(found, list(model.parameters()))
    for one, other in zip((found, *gradients), (expected, *wanted), strict=True):
        if head == "linear":
            assert torch.equal(one, other), "nothing changes for a head without a loss of its own"
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)  # losses are in float32


def test_training_saves_operations_and_a_cluster_that_nobody_asked_for_still_has_gradients() -> (
    None
):
    model, batch = model_and_batch("transformer-decoder", "adaptive")
    with counter() as whole:
        token_loss(model(*batch.inputs), batch.target, 0).backward()
    model.zero_grad()
    near = Batch(batch.inputs, TARGET % 4, 0, batch.tokens, batch.lines)
    with counter() as asked:
        batch_loss(model, near).backward()
    # forward and two in the backward pass, of the 36 tokens beyond the first cluster
    saved = 6 * 6 * 8 * DIM * 36
    assert whole.get_total_flops() - asked.get_total_flops() == saved
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_where_the_whole_distribution_is_needed_it_is_computed() -> None:
    model, batch = model_and_batch("transformer-decoder", "adaptive")
    plain, agreeing = batch_loss(model, batch), batch_loss(model, batch, agreement=1.0)
    torch.testing.assert_close(plain, agreeing)  # without dropout both readings agree
    logits = model(*batch.inputs)
    log_p = logits.gather(-1, TARGET.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(each_loss(log_p, TARGET, 0), each_loss(logits, TARGET, 0))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(batch_loss(compiled, batch), plain)
    torch._dynamo.reset()
