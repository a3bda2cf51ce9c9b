"""Embeddings: spelling, features by plain loops over one word at a time, padding that does not show, word dropout."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises
from torch import Tensor, nn

from saccade.errors import SaccadeError
from saccade.layers.embeddings import (
    WIDTHS,
    CharacterCnn,
    CharacterRnn,
    Characters,
    Embedding,
    Factorized,
    Tokens,
    spell,
    spelling_ids,
    table,
)
from saccade.settings import Choice, choose

VOCAB, DIM = 11, 6
SMALL = {
    "characters-cnn": {"byte_dim": 3, "filters": 2},
    "characters-rnn": {"byte_dim": 3, "hidden": 2},
}
READERS = [name for name in table.names() if table[name].reads_bytes]
each_reader = pytest.mark.parametrize("name", READERS)


def made(name: str, **more: float) -> Characters:
    reader = Choice(table[name], {**SMALL[name], **more})(vocab=VOCAB, dim=DIM).double()
    with torch.no_grad():
        for parameter in reader.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.7)  # the padding byte's vector too
    return reader


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def batch(texts: list[list[str]], extra_words: int = 0, extra_bytes: int = 0) -> Tensor:
    """Words as B N (1+C); a word's id is its length."""
    size = max(map(len, texts)) + extra_words
    columns = spell([word for text in texts for word in text])
    width = max(map(len, columns)) + 1 + extra_bytes
    found, at = torch.zeros(len(texts), size, width, dtype=torch.long), 0
    for b, text in enumerate(texts):
        for n, word in enumerate(text):
            row = [min(len(word), VOCAB - 1), *columns[at]]
            found[b, n, : len(row)] = torch.tensor(row)
            at += 1
    return found


# --- spelling


def test_spelling_by_hand() -> None:
    assert spell(["ab", "é", ""]) == [[1, 100, 101, 2], [1, 0xC3 + 3, 0xA9 + 3, 2], [1, 2, 0, 0]]
    assert spell(["abcdefgh"], most=5) == [[1, *(ord(c) + 3 for c in "abcgh"), 2]], (
        "the first and the last half"
    )
    assert spell([]) == []
    with raises("size-out-of-range"):
        spell(["a"], most=1)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5), st.integers(2, 40))
def test_any_word_is_spelled_and_a_short_one_can_be_read_back(texts: list[str], most: int) -> None:
    rows = spell(texts, most)
    assert len({len(row) for row in rows}) == 1
    for text, row in zip(texts, rows, strict=True):
        filled = [symbol for symbol in row if symbol]
        assert row == filled + [0] * (len(row) - len(filled))
        assert filled[0] == 1
        assert filled[-1] == 2
        assert all(3 <= symbol < 259 for symbol in filled[1:-1])
        plain = text.encode()
        kept = bytes(symbol - 3 for symbol in filled[1:-1])
        assert (
            kept == plain
            if len(plain) <= most
            else (len(kept) == most and plain.startswith(kept[: most - most // 2]))
        )


# --- features


def cnn_feature(reader: CharacterCnn, word: list[int]) -> Tensor:
    """Windows from each byte of the word on, zeros behind its end, the largest answer of each filter."""
    vectors = [reader.bytes.weight[symbol] for symbol in word]
    found = []
    for width, filters in zip(WIDTHS, reader.filters, strict=True):
        padded = torch.stack([*vectors, *[torch.zeros(3, dtype=torch.float64)] * (width - 1)])
        answers = [
            torch.stack(
                [
                    (filters.weight[f].T * padded[n : n + width]).sum() + filters.bias[f]
                    for f in range(2)
                ]
            )
            for n in range(len(word))
        ]
        found.append(torch.stack(answers).amax(0).relu())
    return torch.cat(found)


def rnn_feature(reader: CharacterRnn, word: list[int]) -> Tensor:
    """PyTorch's cells over the bytes from the left, and from the right."""
    ends = []
    for side, symbols in ((reader.reader.forwards, word), (reader.reader.backwards, word[::-1])):
        cell = nn.LSTMCell(3, 2).double()
        cell.load_state_dict(
            {key: getattr(side[0].layers, f"{key}_l0") for key in cell.state_dict()}
        )
        h = c = torch.zeros(1, 2, dtype=torch.float64)
        for symbol in symbols:
            h, c = cell(reader.bytes.weight[[symbol]], (h, c))
        ends.append(h[0])
    return torch.cat(ends)


FEATURES = {"characters-cnn": cnn_feature, "characters-rnn": rnn_feature}


def test_every_embedding_of_the_table_is_tested_here() -> None:
    assert {*FEATURES, *ORACLES} == set(table.names())


@each_reader
@torch.no_grad()
def test_a_word_is_its_vector_and_the_feature_of_its_bytes_joined(name: str) -> None:
    reader, tokens = made(name), batch([["a", "naïve", "zz"], ["saccades"]])
    found = reader(tokens)
    for b, n in ((0, 0), (0, 1), (0, 2), (1, 0)):
        word = [symbol for symbol in tokens[b, n, 1:].tolist() if symbol]
        joined = torch.cat([reader.table.weight[tokens[b, n, 0]], FEATURES[name](reader, word)])
        torch.testing.assert_close(found[b, n], reader.join.weight @ joined + reader.join.bias)


@each_reader
@given(
    texts=st.lists(st.lists(st.text(max_size=6), min_size=1, max_size=3), min_size=1, max_size=3),
    more=st.tuples(st.integers(0, 2), st.integers(0, 4)),
)
def test_padding_bytes_and_padding_words_do_not_show(
    name: str, texts: list[list[str]], more: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    reader = made(name)
    found, padded = reader(batch(texts)), reader(batch(texts, *more))
    assert padded.isfinite().all()
    for b, text in enumerate(texts):
        torch.testing.assert_close(padded[b, : len(text)], found[b, : len(text)])
        for n, word in enumerate(text):
            torch.testing.assert_close(reader(batch([[word]]))[0, 0], found[b, n])


@each_reader
def test_a_word_that_occurs_often_is_read_once_and_learns_from_every_occurrence(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, tokens, seen = made(name), batch([["ab", "c", "ab", "ab"]]), []
    plain = type(reader).feature
    monkeypatch.setattr(
        type(reader),
        "feature",
        lambda self, bytes: (seen.append(len(bytes)), plain(self, bytes))[1],
    )
    reader(tokens).square().sum().backward()
    assert seen == [2]
    expected = [parameter.grad.clone() for parameter in reader.parameters()]
    reader.zero_grad()
    for n in range(4):  # one word at a time
        reader(tokens[:, n : n + 1]).square().sum().backward()
    for parameter, gradient in zip(reader.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dynamo makes one of torch itself
def test_a_compiled_reader_is_one_graph() -> None:
    torch._dynamo.reset()
    reader, tokens = made("characters-cnn"), batch([["ab", "c", "ab"]])
    torch.testing.assert_close(
        torch.compile(reader, backend="eager", fullgraph=True)(tokens), reader(tokens)
    )
    torch._dynamo.reset()


@each_reader
def test_gradients(name: str) -> None:
    reader, tokens = made(name), batch([["ab", "c"]], extra_bytes=2)
    parameters = [
        parameter
        for key, parameter in reader.named_parameters()
        if not key.startswith(("bytes", "table"))
    ]
    assert torch.autograd.gradcheck(lambda *_: reader(tokens), tuple(parameters))
    reader(tokens).square().sum().backward()
    used = set(tokens[..., 1:].flatten().tolist()) - {0}
    assert set(reader.bytes.weight.grad.any(-1).nonzero().flatten().tolist()) == used, (
        "the padding byte learns nothing"
    )
    assert set(reader.table.weight.grad.any(-1).nonzero().flatten().tolist()) == {1, 2}


@each_reader
def test_dropped_words_are_read_by_their_bytes_in_training_alone(name: str) -> None:
    reader, tokens = made(name, word_dropout=0.5), batch([["abc", "defg", "hi"] * 40])
    unknown = tokens.clone()
    unknown[..., 0] = 1
    reader.eval()
    plain, without = reader(tokens), reader(unknown)
    assert torch.equal(reader(tokens), plain)
    found = reader.train()(tokens)
    kept, dropped = ((found - other).abs().amax(-1) < 1e-9 for other in (plain, without))
    assert (kept | dropped).all()
    assert 30 < dropped.sum() < 90
    assert not torch.equal(without[0, 0], without[0, 1]), (
        "unknown words still differ from each other"
    )


# --- embeddings of ids


ORACLES: dict[str, Callable[[Embedding], Tensor]] = {  # V × D: the vector of each token
    "tokens": lambda one: one.weight,
    "factorized": lambda one: torch.stack([one.project.weight @ row for row in one.table.weight]),
    "adaptive": lambda one: torch.stack(
        [
            project.weight @ row if isinstance(project, nn.Linear) else row
            for vectors, project in zip(one.tables, one.projects, strict=True)
            for row in vectors.weight
        ]
    ),
}


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_an_embedding_looks_up_its_vectors_and_gives_logits_by_them(name: str) -> None:
    one, tokens, x = (
        Choice(table[name], table.entry(name).example)(vocab=VOCAB, dim=DIM).double(),
        torch.tensor([[1, 5], [2, 3]]),
        some(2, 3, DIM),
    )
    vectors = ORACLES[name](one)
    torch.testing.assert_close(one(tokens), vectors[tokens])
    torch.testing.assert_close(one.logits(x), x @ vectors.T)
    pull = some(2, 2, DIM), some(2, 3, VOCAB)
    parameters = list(one.parameters())
    found = torch.autograd.grad([one(tokens), one.logits(x)], parameters, pull)
    for gradient, expected in zip(
        found, torch.autograd.grad([vectors[tokens], x @ vectors.T], parameters, pull), strict=True
    ):
        torch.testing.assert_close(gradient, expected)
    assert (one.vocab, one.dim, one.reads_bytes) == (VOCAB, DIM, False)


@pytest.mark.parametrize("name", table.names())
def test_an_embedding_starts_with_the_asked_width(name: str) -> None:
    one = Choice(table[name])(vocab=2000, dim=64)
    one.initialize(0.3)
    vectors = ORACLES[name](one) if name in ORACLES else one.table.weight
    assert vectors.std().item() == pytest.approx(0.3, abs=0.02)


@each_reader
def test_logits_of_a_reader_are_by_the_vectors_of_words(name: str) -> None:
    reader, x = made(name), some(2, DIM)
    torch.testing.assert_close(reader.logits(x), x @ reader.table.weight.T)


def test_the_plain_embedding_is_pytorchs() -> None:
    one = Tokens(VOCAB, DIM)
    assert isinstance(one, nn.Embedding)
    assert list(one.state_dict()) == ["weight"]
    tokens = torch.tensor([[1, 5], [2, 3]])
    assert torch.equal(one(tokens), nn.functional.embedding(tokens, one.weight))
    assert spelling_ids(tokens) is tokens
    assert spelling_ids(batch([["ab", "c"]])).tolist() == [[2, 1]]


def test_a_factorized_embedding_has_few_parameters() -> None:
    assert sum(p.numel() for p in Factorized(1000, 64, rank=4).parameters()) == 1000 * 4 + 4 * 64
    assert [name for name, _ in Factorized(10, 6, rank=2).named_parameters()] == [
        "table.weight",
        "project.weight",
    ]


def test_mistakes_are_answered_with_sentences() -> None:
    for one in (Tokens(VOCAB, DIM), Factorized(VOCAB, DIM)):
        with raises("not-token-ids"):
            one(batch([["ab", "c"]]))
    with raises("bytes-missing"):
        CharacterCnn(VOCAB, DIM)(torch.tensor([[1, 2]]))
    with raises("size-out-of-range"):
        CharacterCnn(VOCAB, DIM, byte_dim=0)
    with raises("size-out-of-range"):
        CharacterRnn(VOCAB, DIM, word_dropout=1.0)
    with pytest.raises(SaccadeError, match=r"e\.scale is 0\.0; it must lie between 1e-06 and"):
        choose(table, {"name": "tokens", "scale": 0}, "e")
