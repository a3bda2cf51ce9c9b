"""What is hidden, asked and wanted: counted, put back together, and against each document read alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises
from torch import nn

from saccade.config import recipes
from saccade.core import auxiliary_losses
from saccade.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from saccade.recipe import LanguageRecipe
from saccade.tasks.objectives import (
    Causal,
    Denoising,
    Masked,
    Objective,
    Permutation,
    restart_positions,
    split_total,
)
from saccade.tasks.objectives import table as objectives
from saccade.tasks.token_stream import Stream
from saccade.training.losses import Batch, batch_loss

CPU, VOCAB = torch.device("cpu"), 30
TEXT = Vocabulary.train([" ".join(f"w{n}" for n in range(VOCAB - 4))], "words")
WORDS = st.lists(st.integers(EOS + 1, VOCAB - 1), min_size=2, max_size=60)


def documents(*sizes: int, seed: int = 0) -> list[np.ndarray]:
    """<bos> words <eos>, so many words each."""
    chance = np.random.default_rng(seed)
    return [np.array([BOS, *chance.integers(EOS + 1, VOCAB, size), EOS]) for size in sizes]


def stream(each: list[np.ndarray], block: int = 8, seed: int = 0) -> Stream:
    return Stream(each, block, several=True, seed=seed, device=CPU)


def builder(family: str, **more: Any) -> recipes.Builder:
    sizes: dict[str, Any] = (
        {"heads": 2, "depth": 2} if family.startswith("transformer") else {"depth": 1}
    )
    sizes |= {"size_penalty": 0.1, "change_penalty": 0.1} if family == "rnn-decoder" else {}
    return recipes.Builder(
        {"family": family, "dim": 8, "hidden": 12, "dropout": 0.0, **sizes, **more}
    )


def every(kind: type[Objective], flow: Stream, epoch: int, how: LanguageRecipe) -> Batch:
    return kind(TEXT, how).batch(flow.blocks(flow.starts(epoch), epoch))


# --- masked


def test_masked_asks_for_a_rounded_share_of_each_row_and_for_what_stood_there() -> None:
    flow = stream(documents(30, 3, 1, 50, 2))
    for share in (0.15, 0.5, 0.9):
        blocks = flow.blocks(flow.starts(0), 0)
        batch = Masked(TEXT, LanguageRecipe(block=8, share=share)).batch(blocks)
        read, lengths, at, *_ = batch.inputs
        real = (blocks.here[:, :-1] >= EOS).sum(1)
        asked = (batch.target != PAD).sum(1)
        assert asked.tolist() == [
            min(max(1, round(share * count)), count) for count in real.tolist()
        ]
        assert batch.tokens == int(asked.sum())
        assert lengths.tolist() == (blocks.here[:, :-1] != PAD).sum(1).tolist()
        for row in range(len(read)):
            places = at[row, : asked[row]]
            assert len(set(places.tolist())) == len(places), "no place is asked for twice"
            original = blocks.tokens[row, places]
            assert torch.equal(batch.target[row, : asked[row]], original)
            assert bool((original >= EOS).all()), "never padding or <bos>"
            others = np.setdiff1d(np.arange(8), places.numpy())
            assert torch.equal(read[row, others], blocks.tokens[row, others]), (
                "what is not asked for stays as it is"
            )


def test_of_what_is_asked_for_eight_in_ten_are_hidden_one_replaced_one_kept() -> None:
    flow = stream([np.concatenate([[BOS], np.full(20_000, 7), [EOS]])], block=100)
    objective = Masked(TEXT, LanguageRecipe(block=100, share=0.5))
    blocks = flow.blocks(flow.starts(0), 0)
    batch = objective.batch(blocks)
    shown = batch.inputs[0].gather(1, batch.inputs[2])[batch.target == 7]
    seen = Counter(shown.tolist())
    hidden, kept = seen[VOCAB] / len(shown), seen[7] / len(shown)
    assert hidden == pytest.approx(0.8, abs=0.02)
    assert kept == pytest.approx(0.1 + 0.1 / 26, abs=0.02), "a replacement may be the token itself"
    assert set(seen) == {VOCAB, *range(EOS + 1, VOCAB)}, "any word may stand in, no special"
    torch.testing.assert_close(
        torch.tensor([seen[n] / len(shown) for n in range(8, VOCAB)]),
        torch.full((22,), 0.1 / 26),
        atol=0.003,
        rtol=0,
    )


def test_a_row_with_nothing_to_ask_for_has_no_loss_and_no_nan() -> None:
    flow = stream([np.array([BOS, UNK, UNK, UNK, UNK])], block=4)
    for kind, family in ((Masked, "transformer-encoder"), (Permutation, "transformer-encoder")):
        batch = every(kind, flow, 0, LanguageRecipe(objective="masked", block=4))
        assert batch.tokens == 0
        model = kind(TEXT, LanguageRecipe(block=4)).build(builder(family))
        assert batch_loss(model, batch).item() == 0.0


# --- denoising


@given(WORDS, st.floats(0.01, 0.9), st.floats(1.0, 20.0), st.integers(0, 1000))
def test_the_source_with_its_spans_put_back_is_the_text(
    tokens: list[int], share: float, span: float, seed: int
) -> None:
    objective = Denoising(TEXT, LanguageRecipe(block=60, share=share, span=span))
    source, target = objective.cut(tokens, np.random.PCG64(seed))
    noise, spans = objective.spans(len(tokens))
    marks = [token for token in source if token >= VOCAB]
    assert (
        marks == list(range(VOCAB, VOCAB + spans)) == [token for token in target if token >= VOCAB]
    )
    assert spans <= objective.extra, "there is a vector for every mark"
    assert len(target) == noise + spans
    assert len(source) == len(tokens) - noise + spans
    assert source[0] < VOCAB, "the text begins with something that stays"
    put_back: dict[int, list[int]] = {}
    for token in target:
        if token >= VOCAB:
            put_back[token] = []
        else:
            put_back[max(put_back)].append(token)
    assert all(put_back.values()), "no span is empty"
    assert [one for token in source for one in put_back.get(token, [token])] == tokens


def test_a_text_of_one_token_is_its_own_span() -> None:
    objective = Denoising(TEXT, LanguageRecipe(block=8))
    assert objective.cut([9], np.random.PCG64(0)) == ([9], [VOCAB, 9])
    assert objective.cut([], np.random.PCG64(0)) == ([EOS], [VOCAB])


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 100))
def test_parts_are_at_least_one_and_add_up(total: int, parts: int, seed: int) -> None:
    parts = min(parts, total)
    found = split_total(total, parts, np.random.PCG64(seed))
    assert (len(found), sum(found), min(found) >= 1) == (parts, total, True)


def test_all_ways_to_part_a_number_are_equally_likely() -> None:
    chance = np.random.PCG64(3)
    seen = Counter(tuple(split_total(5, 3, chance)) for _ in range(6000))
    assert len(seen) == 6, "4 over 2"
    assert max(seen.values()) < 1.15 * min(seen.values())


def test_a_denoising_batch_reads_its_target_one_step_behind() -> None:
    flow = stream(documents(12, 9, 30))
    batch = every(Denoising, flow, 0, LanguageRecipe(block=8, share=0.4, span=2.0))
    source, lengths, read = batch.inputs
    for row in range(len(read)):
        size = int((batch.target[row] != PAD).sum())
        assert read[row, 0] == BOS
        assert read[row, 1:size].tolist() == batch.target[row, : size - 1].tolist()
        assert batch.target[row, size - 1] == EOS
        assert (source[row] != PAD).sum() == lengths[row]
    assert batch.tokens == int((batch.target != PAD).sum())


# --- permutation


def test_what_is_asked_for_comes_last_in_the_order() -> None:
    flow = stream(documents(40, 11, 3, 25))
    batch = every(Permutation, flow, 0, LanguageRecipe(block=8, share=0.4))
    tokens, lengths, rank, at, _ = batch.inputs
    for row in range(len(tokens)):
        count = int((batch.target[row] != PAD).sum())
        assert sorted(rank[row].tolist()) == list(range(8)), "a rank for every place"
        assert sorted(rank[row, at[row, :count]].tolist()) == list(range(8 - count, 8))
        assert torch.equal(batch.target[row, :count], tokens[row, at[row, :count]])
        assert lengths[row] == (tokens[row] != PAD).sum()


# --- causal


@pytest.mark.parametrize("position", ["none", "rotary", "alibi"])
def test_packed_documents_have_the_losses_of_each_read_alone(position: str) -> None:
    """With restarted places it is as if each document had a row of its own."""
    each = documents(5, 9, 3, 6)
    flow = stream(each, block=64)
    objective = Causal(TEXT, LanguageRecipe(block=64))
    model = (
        objective.build(
            builder("transformer-decoder", position=position, position_embedding="sinusoidal")
        )
        .double()
        .eval()
    )
    batch = objective.batch(flow.blocks([0], 0))
    together = batch_loss(model, batch).item()
    alone = 0.0
    for one in each:
        row = torch.from_numpy(one).unsqueeze(0)
        logits = model(row[:, :-1])
        alone += nn.functional.cross_entropy(logits[0].float(), row[0, 1:], reduction="sum").item()
    assert together == pytest.approx(alone, rel=1e-5)
    assert batch.tokens == sum(len(one) - 1 for one in each)


def test_no_gradient_crosses_the_border_of_a_document() -> None:
    each = documents(5, 6)
    flow = stream(each, block=16)
    objective = Causal(TEXT, LanguageRecipe(block=16))
    model = objective.build(builder("transformer-decoder"))
    batch = objective.batch(flow.blocks([0], 0))
    seen: list[torch.Tensor] = []
    model.embedding.register_forward_hook(
        lambda module, given, out: seen.append(out) or out.retain_grad()
    )
    logits = model(*batch.inputs)
    border = len(each[0])
    logits[0, border : border + len(each[1])].square().sum().backward()
    gradient = seen[0].grad
    assert gradient is not None
    assert bool((gradient[0, :border] == 0).all())
    assert bool((gradient[0, border : border + len(each[1])] != 0).any(-1).all())


def test_where_a_document_begins_is_not_asked_for() -> None:
    flow = stream(documents(3, 3), block=20)
    batch = every(Causal, flow, 0, LanguageRecipe(block=20))
    assert BOS not in batch.target.tolist()[0]
    assert (batch.tokens, int((batch.target != PAD).sum())) == (8, 8)
    rnn = Causal(TEXT, LanguageRecipe(block=20))
    rnn.build(builder("rnn-decoder"))
    assert len(rnn.batch(flow.blocks([0], 0)).inputs) == 1, "a recurrent model gets no mask"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_places_restart_with_each_document(numbers: list[int]) -> None:
    expected, count = [], 0
    for place, number in enumerate(numbers):
        count = count + 1 if place and numbers[place - 1] == number else 0
        expected.append(count)
    assert restart_positions(torch.tensor([numbers])).tolist() == [expected]


# --- all of them


@pytest.mark.parametrize(
    "kind", [entry.make for entry in objectives], ids=lambda kind: kind.__name__
)
def test_a_block_is_a_function_of_seed_epoch_and_start(kind: type[Objective]) -> None:
    how = LanguageRecipe(block=8, share=0.4, span=2.0)
    objective, each = kind(TEXT, how), documents(40, 25, 11, 60)

    def made(starts: list[int], epoch: int, seed: int = 0) -> Batch:
        flow = stream(each, seed=seed)
        return objective.batch(flow.blocks(starts, epoch))

    def rows(batch: Batch) -> list[Any]:
        plain = [
            part for part in batch.inputs if isinstance(part, torch.Tensor) and part.dim() == 2
        ]
        return [
            [[n for n in part[row].tolist() if n != PAD] for part in (*plain, batch.target)]
            for row in range(len(batch.target))
        ]

    together = rows(made([0, 8, 24], 3))
    assert together == rows(made([0, 8, 24], 3)), "the same on every call"
    assert together[1] == rows(made([8], 3))[0], "whichever others it comes with"
    assert together == [
        rows(made([24, 0], 3))[1],
        rows(made([8, 24], 3))[0],
        rows(made([24], 3))[0],
    ]
    if kind is not Causal:
        assert together != rows(made([0, 8, 24], 4))
        assert together != rows(made([0, 8, 24], 3, seed=1))


@pytest.mark.parametrize(
    ("kind", "family", "sentence"),
    [
        (
            Causal,
            "transformer-encoder",
            "model.family is 'transformer-encoder', which is not a causal language model; choose one of",
        ),
        (
            Causal,
            "transformer",
            "model.family is 'transformer', which is not a causal language model",
        ),
        (
            Denoising,
            "transformer-decoder",
            "model.family is 'transformer-decoder', which is not an encoder–decoder; choose one of: ",
        ),
        (
            Masked,
            "bahdanau",
            "model.family is 'bahdanau', which is not an encoder; choose one of: ",
        ),
        (
            Masked,
            "rnn-decoder",
            "rnn-decoder is causal and cannot be trained with the masked objective; choose another",
        ),
        (
            Permutation,
            "rnn-encoder",
            "two streams need a transformer-encoder or an xlnet, got a RnnEncoder",
        ),
    ],
)
def test_a_family_that_cannot_learn_this_is_told(
    kind: type[Objective], family: str, sentence: str
) -> None:
    with raises("family-not-supported") as error:
        kind(TEXT, LanguageRecipe(objective=objectives.name_of(kind), block=8)).build(
            builder(family)
        )
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("kind", "family"),
    [(Causal, "transformer-decoder"), (Causal, "rnn-decoder"), (Masked, "transformer-encoder"), (Masked, "rnn-encoder"),
     (Denoising, "transformer"), (Denoising, "bahdanau"), (Permutation, "transformer-encoder")],
)  # fmt: skip
def test_each_objective_can_be_learned(kind: type[Objective], family: str) -> None:
    """A text that repeats itself: its loss falls, and the loss of fresh parameters is about that of guessing."""
    text = np.concatenate([[BOS], np.tile(np.arange(EOS + 1, EOS + 9), 8), [EOS]])
    how = LanguageRecipe(block=16, share=0.3, span=2.0)
    objective, flow = kind(TEXT, how), stream([text], block=16)
    model = objective.build(builder(family))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for epoch in range(12):
        batch = objective.batch(flow.blocks(flow.starts(epoch), epoch))
        loss = batch_loss(model, batch) / batch.tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(parameter.grad is not None for name, parameter in model.named_parameters()), (
        "nothing is left out of learning"
    )


def test_what_a_model_asks_for_is_added_for_each_wanted_token() -> None:
    text = np.concatenate([[BOS], np.arange(EOS + 1, EOS + 9), [EOS]] * 3)
    objective, flow = Causal(TEXT, LanguageRecipe(block=16)), stream([text], block=16)
    model = objective.build(
        builder(
            "rnn-decoder",
            input_dropout=0.0,
            layer_dropout=0.0,
            weight_dropout=0.0,
            embedding_dropout=0.0,
        )
    )
    batch = objective.batch(flow.blocks(flow.starts(0), 0))
    with auxiliary_losses.collect() as left:
        model.train()(*batch.inputs)
    found = batch_loss(model, batch)
    wanted = (batch.target != PAD).sum(1)
    assert wanted.tolist() == [15, 12], "rows that want unequally many"
    torch.testing.assert_close(found, batch_loss(model.eval(), batch) + left.total(wanted))
    apart = [
        batch_loss(model.train(), objective.batch(flow.blocks([start], 0)))
        for start in flow.starts(0)
    ]
    torch.testing.assert_close(
        found, sum(apart), msg="which rows are read together does not matter"
    )
