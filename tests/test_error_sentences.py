"""The exact sentences of common errors: code, how to provoke it, sentence. Other tests assert codes."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from tests.support import raises, tiny_recipe

from saccade import (
    Mechanism,
    MultiHeadAttention,
    api,
    attend,
    masks,
    normalizers,
    positions,
    record,
    scores,
)
from saccade.config.recipes import device, read_recipe, recipe
from saccade.core import Positions
from saccade.data import corpora
from saccade.data.corpora import DOCUMENTS, LABELED, PAIRS, read
from saccade.data.download import fetch
from saccade.data.lines import one_file
from saccade.data.vocabulary import Vocabulary
from saccade.decoding import Beam, Sample
from saccade.experiments.grid import variations
from saccade.layers.embeddings import Tokens
from saccade.layers.feedforward import Experts, activation_of
from saccade.layers.linformer import Linformer
from saccade.layers.output_heads import LinearHead
from saccade.models.builder import Builder
from saccade.models.protocols import Seq2Seq
from saccade.system.system import System

X = torch.zeros(1, 2, 4, 8)
INPUT = torch.zeros(1, 4, 8)


def layer() -> MultiHeadAttention:
    return MultiHeadAttention(8, heads=2)


def read_without_call() -> None:
    with record(layer(), quiet=True) as seen:
        pass
    seen["attention"].weights()


def record_twice() -> None:
    model = layer()
    with record(model), record(model):
        pass


def read_index() -> None:
    model = layer()
    with record(model) as seen:
        model(INPUT)
    seen["attention"].weights(rows=[4])


def misnamed_site() -> None:
    model = layer()
    with record(model) as seen:
        model(INPUT)
    seen["attentoin"]


SENTENCES: list[tuple[str, Callable[[], object], str]] = [
    (
        "not-a-mechanism",
        lambda: attend(X, X, X, "dot"),
        "expected a Mechanism, got 'dot'; pass Mechanism(score, normalize, mask, position)",
    ),
    (
        "not-a-mask",
        lambda: attend(X, X, X, mask=torch.ones(4, 4)),
        "expected a mask, got Tensor; make one with saccade.masks, such as masks.matrix(allowed) of 0/1 numbers",
    ),
    (
        "not-positions",
        lambda: attend(X, X, X, positions=3),
        "expected Positions, got int; pass Positions(i, j), or Positions.line(Q, K)",
    ),
    (
        "dropout-out-of-range",
        lambda: attend(X, X, X, dropout=1.0),
        "dropout must be in [0, 1), got 1.0",
    ),
    (
        "positions-do-not-fit",
        lambda: attend(X, X, X, positions=Positions.line(3, 4)),
        "positions are given for 3 queries and 4 keys, got 4 and 4; pass one position per query and key",
    ),
    (
        "more-queries-than-keys",
        lambda: attend(X, X[:, :, :2], X[:, :, :2], mask=masks.causal()),
        "mask Causal() compares positions and needs Q ≤ K, got 4 queries and 2 keys; use a mask on keys alone, such as padding",
    ),
    (
        "dtypes-differ",
        lambda: attend(X, X.double(), X),
        "q, k and v must have one type, got torch.float32, torch.float64 and torch.float32; convert them first",
    ),
    (
        "not-a-float-tensor",
        lambda: attend(X.long(), X, X),
        "q must be a floating-point tensor such as float32 or bfloat16, got torch.int64",
    ),
    (
        "shapes-do-not-fit",
        lambda: attend(X, X[..., :4], X),
        "q (1, 2, 4, 8), k (1, 2, 4, 4), v (1, 2, 4, 8): this score compares equal widths; use bilinear, reduced-rank or additive, or project first",
    ),
    (
        "unknown-argument",
        lambda: attend(X, X, X, is_causal=True),
        "attend has no argument 'is_causal'; pass mask=masks.causal()",
    ),
    (
        "backend-refuses",
        lambda: attend(X, X, X, Mechanism(normalize=normalizers.Relu()), backend="sdpa"),
        "backend 'sdpa' refuses: the normalizer is not softmax; leave `backend` out to let one be chosen",
    ),
    (
        "mask-truth-value",
        lambda: masks.causal() and masks.full(),
        "the mask Causal() is neither true nor false; combine masks with & and |, not with `and` and `or`",
    ),
    (
        "mask-not-boolean",
        lambda: masks.matrix(torch.ones(4, 4)),
        "a mask must be booleans or 0/1 integers (1 = may attend), got floating-point numbers",
    ),
    (
        "not-a-predicate",
        lambda: masks.where(3),
        "expected a function of (b, h, i, j), got 3; for a 0/1 matrix use masks.matrix",
    ),
    (
        "window-out-of-range",
        lambda: masks.window(-1),
        "a window must reach 0 or more positions to each side, got -1 and -1",
    ),
    (
        "mask-batch-differs",
        lambda: attend(X, X, X, mask=masks.padding([4, 2])),
        "the padding mask was made for a batch of 2, got a batch of 1; make the mask from the same batch",
    ),
    (
        "mask-too-short",
        lambda: attend(X, X, X, mask=masks.documents([[0, 0]])),
        "document ids are given for 2 positions, got 4 keys; give one per key",
    ),
    (
        "mask-shape",
        lambda: attend(X, X, X, mask=masks.matrix(torch.ones(2, 3, dtype=torch.bool))),
        "the mask is 2 × 3, the scores are 4 × 4; give one row per query, one column per key",
    ),
    (
        "not-a-tensor",
        lambda: masks.matrix([[1], [1, 0]]),
        "a mask must be a tensor, or lists of equal lengths, got list",
    ),
    (
        "parts-do-not-combine",
        lambda: Mechanism(normalize=normalizers.Sum()),
        "the normalizer `sum` divides by the sum of scores that are never negative; use a kernel score such as elu-kernel and a position that adds no bias, or the normalizer softmax",
    ),
    (
        "wrong-kind-of-part",
        lambda: Mechanism(score="dot"),
        "expected a Score object, got 'dot'; build one from saccade.core.scores",
    ),
    (
        "position-out-of-range",
        lambda: attend(X, X, X, Mechanism(position=positions.Added(8, max_len=3))),
        "position 3 is beyond the learned table of 3; shorten the text, or train with a larger max_len or with sinusoidal positions",
    ),
    (
        "width-not-even",
        lambda: attend(X[..., :3], X[..., :3], X, Mechanism(position=positions.Rotary())),
        "rotary positions rotate pairs and need an even head width, got 3; change dim or heads",
    ),
    ("heads-out-of-range", lambda: positions.Alibi(0), "heads must be at least 1, got 0"),
    (
        "buckets-out-of-range",
        lambda: positions.T5Buckets(2, buckets=8, max_distance=8),
        "expected at least 4 buckets and max_distance > buckets, got 8 and 8",
    ),
    (
        "distance-out-of-range",
        lambda: positions.Shaw(8, max_distance=0),
        "max_distance must be at least 1, got 0",
    ),
    (
        "relation-missing",
        lambda: attend(X, X, X, Mechanism(position=positions.SyntaxDistance(8))),
        "syntax positions need parse trees; pass `Positions.line(Q, K, relation=tree_distances(heads))`",
    ),
    (
        "rank-out-of-range",
        lambda: scores.ReducedRank(8, 8, rank=0),
        "rank must be at least 1, got 0",
    ),
    (
        "width-differs",
        lambda: attend(X, X, X, Mechanism(scores.Bilinear(4, 8))),
        "the score expects vectors of width 4, got 8; build it with that width",
    ),
    (
        "heads-differ",
        lambda: attend(X, X, X, Mechanism(scores.Bilinear(8, 8, heads=4))),
        "the score expects 4 heads, got 2; build it with heads=2",
    ),
    (
        "sharpness-out-of-range",
        lambda: scores.Cosine(sharpness=0.0),
        "sharpness must be above 0, got 0.0",
    ),
    ("index-out-of-range", read_index, "row must be in 0 … 3, got 4"),
    ("unknown-site", misnamed_site, "no attention named 'attentoin'; did you mean 'attention'?"),
    (
        "site-not-called",
        read_without_call,
        "'attention' was not called while the record was open; run the model inside the `with`",
    ),
    ("record-already-open", record_twice, "a record of this model is already open; close it first"),
    ("not-a-module", lambda: record(3).__enter__(), "expected a model or a layer, got int"),
    (
        "not-a-number",
        lambda: MultiHeadAttention(INPUT),
        "expected dim, a number, got a tensor; make the layer first: MultiHeadAttention(dim, heads)(x)",
    ),
    (
        "heads-do-not-divide",
        lambda: MultiHeadAttention(8, heads=3),
        "dim must be a multiple of heads, got dim=8 and heads=3; choose heads that divide it",
    ),
    (
        "argument-order",
        lambda: layer()(INPUT, None, INPUT),
        "the third argument is the mask, got a tensor of shape (1, 4, 8); self-attention is layer(x), and layer(x, memory) reads keys and values from a memory",
    ),
    (
        "batch-sizes-differ",
        lambda: layer()(INPUT, torch.zeros(2, 4, 8)),
        "x is a batch of 1, memory a batch of 2; give one memory per row of x",
    ),
    (
        "mask-not-supported",
        lambda: Linformer(8, 2, 2, 8)(INPUT, masks.causal()),
        "a linformer knows padding masks alone, got Causal(); use mixer=attention for others",
    ),
    (
        "cannot-generate",
        lambda: Linformer(8, 2, 2, 8).start(INPUT),
        "a linformer cannot read position by position; choose mixer=attention for a model that generates",
    ),
    (
        "unknown-activation",
        lambda: activation_of(3),
        "expected an activation, got 3; pass a name such as 'gelu', or a class such as torch.nn.GELU",
    ),
    (
        "experts-out-of-range",
        lambda: Experts(8, 8, count=2, top=3),
        "top must be at most count, got 3 of 2 experts",
    ),
    (
        "not-token-ids",
        lambda: Tokens(5, 8)(torch.zeros(1, 2, 3, dtype=torch.long)),
        "this model reads token ids alone, batch × positions, got shape (1, 2, 3); or choose model.embedding=characters-cnn",
    ),
    (
        "vocabulary-differs",
        lambda: LinearHead(8, 6, tied=Tokens(5, 8)),
        "the head needs 6 tokens, the embedding it is tied to has 5; use one vocabulary",
    ),
    (
        "unknown-name",
        lambda: Builder({"family": "transformr"}),
        "no model named 'transformr'; did you mean 'transformer'?",
    ),
    (
        "unknown-setting",
        lambda: Builder({"family": "transformer", "dimm": 8}).make(Seq2Seq, 9, 9),
        "no setting named 'model.dimm' for transformer; did you mean 'dim'?",
    ),
    (
        "temperature-out-of-range",
        lambda: Sample(1, 2, temperature=-1.0),
        "temperature is -1.0; give a number of 0 or more (0 takes the likeliest token)",
    ),
    (
        "top-p-out-of-range",
        lambda: Sample(1, 2, top_p=0.0),
        "top_p is 0.0; give a number above 0 and at most 1, or leave it out",
    ),
    (
        "unknown-length-rule",
        lambda: Beam(2, 2, length_rule="gmnt"),
        "the length rule is 'gmnt'; give one of: power, gnmt",
    ),
    (
        "coverage-penalty-out-of-range",
        lambda: Beam(2, 2, coverage_penalty=-1),
        "a coverage penalty of -1; give a number from 0 to 100 (0 for none)",
    ),
]


def file(name: str, content: str | bytes) -> str:
    """A file in the current folder, which each test has for itself."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def folder(name: str) -> str:
    """A folder with a file that no command wrote."""
    return str(Path(file(f"{name}/notes.txt", "")).parent)


@cache
def translator() -> System:
    return api.build(tiny_recipe())


@cache
def classifier() -> System:
    rows = file("reviews.tsv", "good\tpos\nbad\tneg\nfun\tpos\nsad\tneg\n")
    encoder = {"family": "transformer-encoder", "dim": 4, "hidden": 4, "heads": 2, "depth": 1}
    data = {"data": {"train": rows}, "vocabulary": {"kind": "words"}}
    return api.build({"task": "classification", **data, "model": encoder, "device": "cpu"})


# Each runs in an empty folder of its own.
SENTENCES += [
    (
        "not-a-setting",
        lambda: recipe(tiny_recipe(), ["training.updates"]),
        "expected key=value, such as training.updates=500, got 'training.updates'",
    ),
    (
        "unknown-setting",
        lambda: recipe(tiny_recipe(), ["training.updatess=3"]),
        "no setting named 'training.updatess'; did you mean 'updates'?",
    ),
    (
        "wrong-type",
        lambda: recipe(tiny_recipe(), ["training.updates=many"]),
        "training.updates is 'many'; it must be a whole number or auto",
    ),
    (
        "out-of-range",
        lambda: recipe(tiny_recipe(), ["training.updates=-1"]),
        "training.updates is -1; it must lie between 1 and 1,000,000,000",
    ),
    (
        "not-finite",
        lambda: recipe(tiny_recipe(), ["training.learning_rate=.nan"]),
        "training.learning_rate is nan; it must be a finite number",
    ),
    (
        "value-has-no-parts",
        lambda: recipe(tiny_recipe(), ["training.updates.most=3"]),
        "'training.updates.most=3': 'updates' is a value and has nothing inside it",
    ),
    (
        "unknown-choice",
        lambda: recipe(tiny_recipe(), ["task=translaton"]),
        "task is 'translaton'; did you mean 'translation'?",
    ),
    (
        "unknown-metric",
        lambda: recipe(tiny_recipe(), ["training.watch=blue"]),
        "training.watch is 'blue'; did you mean 'bleu'?",
    ),
    ("wrong-type", lambda: recipe(tiny_recipe(), ["model=3"]), "model is 3; it must be settings"),
    (
        "unknown-name",
        lambda: recipe(tiny_recipe(), ["model.family=transformr"]),
        "no model named 'transformr'; did you mean 'transformer'?",
    ),
    (
        "unknown-option",
        lambda: recipe(tiny_recipe(), ["model.score={name: dot, scale: 3}"]),
        "model.score: score 'dot' has no option 'scale'; there are none",
    ),
    (
        "empty-file",
        lambda: read_recipe(file("empty.yaml", "")),
        "empty.yaml is empty; write at least `data:` and `model:`",
    ),
    (
        "duplicate-key",
        lambda: read_recipe(file("twice.yaml", "seed: 1\nseed: 2\n")),
        "twice.yaml, line 2: duplicate key 'seed'; merge the two",
    ),
    (
        "bad-yaml",
        lambda: read_recipe(file("bad.yaml", "data: [1\n")),
        "bad.yaml, line 2: invalid YAML; write `key: value` lines",
    ),
    (
        "not-settings",
        lambda: read_recipe(file("list.yaml", "- 1\n")),
        "list.yaml holds a list, not settings; write `key: value` lines",
    ),
    (
        "not-utf8",
        lambda: read_recipe(file("latin.yaml", b"task: caf\xe9\n")),
        "latin.yaml is not UTF-8 text; give a YAML file",
    ),
    (
        "no-file",
        lambda: read_recipe("clasification"),
        "no recipe file 'clasification', and none of that name comes with saccade; did you mean 'classification'?",
    ),
    (
        "not-a-run",
        lambda: read_recipe("."),
        ". is a folder and holds no run; give a recipe file, or a recipe's name",
    ),
    (
        "unknown-device",
        lambda: device("gpu"),
        "no device named 'gpu'; write auto, cpu, cuda or mps",
    ),
    ("no-file", lambda: read(PAIRS, "none.tsv"), "no file 'none.tsv'; check the path"),
    (
        "empty-file",
        lambda: read(PAIRS, file("empty.tsv", "")),
        "empty.tsv is empty; it needs at least one line",
    ),
    (
        "line-columns",
        lambda: read(PAIRS, file("a.tsv", "one\tun\ntwo\n")),
        "a.tsv, line 2: 1 column instead of 2 or 3; a line is source<TAB>target, and may continue with <TAB>alignment",
    ),
    (
        "line-encoding",
        lambda: read(PAIRS, file("b.tsv", b"one\tun\ncaf\xe9\tcafe\n")),
        "b.tsv, line 2: not UTF-8 (byte 0xe9 at column 4); save the file as UTF-8",
    ),
    (
        "line-empty-line",
        lambda: read(PAIRS, file("c.tsv", "one\tun\n\ntwo\tdeux\n")),
        "c.tsv, line 2: the line is empty; remove it",
    ),
    (
        "cannot-unpack",
        lambda: read(PAIRS, file("d.tsv.gz", "one\tun\n")),
        "d.tsv.gz cannot be unpacked after line 0 (Not a gzipped file (b'on')); fetch it again or rename it",
    ),
    (
        "number-of-files",
        lambda: read(PAIRS, "a.en,a.fr,a.de"),
        "pairs cannot be read from 'a.en, a.fr, a.de'; give one .tsv, .csv or .jsonl file, or two text files as 'corpus.en,corpus.fr' (each may end in .gz or .xz)",
    ),
    (
        "unknown-split",
        lambda: read(PAIRS, "phrasebook:trian"),
        "'phrasebook:trian' is not a part of phrasebook; did you mean 'train'?",
    ),
    (
        "not-a-split",
        lambda: read(PAIRS, "hub:opus"),
        "'hub:opus' does not name a dataset and a split; write hub:NAME:SPLIT or hub:NAME:CONFIG:SPLIT, such as hub:wmt14:de-en:train",
    ),
    (
        "empty-file",
        lambda: read(DOCUMENTS, file("white.txt", " \n")),
        "white.txt holds no documents; add at least one",
    ),
    (
        "unknown-column",
        lambda: read(LABELED, file("e.csv", "text,label\ngood,pos\n") + "#txt,label"),
        "e.csv has no column 'txt' (line 1 has 2); did you mean 'text'?",
    ),
    (
        "unknown-ending",
        lambda: read(corpora.SENTENCES, file("g.xyz", "a\n")),
        "'g.xyz' does not end in .conllu, .tsv, .jsonl, .txt, so its format is not known; give a .conllu, .tsv (word<TAB>tag), .jsonl or .txt file of sentences (each may end in .gz or .xz)",
    ),
    (
        "line-columns",
        lambda: read(corpora.SENTENCES, file("h.conllu", "1\tw\n\n")),
        "h.conllu, line 1: 2 columns instead of 10; a line is ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC, separated by tabs",
    ),
    ("not-a-file", lambda: one_file(".", "a file"), ". is a folder, not a file; give a file"),
    (
        "unknown-set",
        lambda: fetch("conla"),
        "no set named 'conla' can be fetched; did you mean 'conala'?",
    ),
    (
        "size-out-of-range",
        lambda: Vocabulary.train(["a"], "words", 2),
        "a words vocabulary of size 2 is too small; it holds 4 specials and 1 or more pieces, so give at least 5",
    ),
    (
        "empty-text",
        lambda: Vocabulary.train([], "words", 50),
        "no text to learn a vocabulary from; give at least one line with a word",
    ),
    (
        "not-a-vocabulary",
        lambda: Vocabulary.from_json({"model": 3}),
        'not a vocabulary of saccade: "kind" is missing or not of type str; take the vocabularies.json of a model folder',
    ),
    (
        "no-folder",
        lambda: api.load("none"),
        "no model folder at none; give the path of a folder written by `saccade train`",
    ),
    (
        "folder-damaged",
        lambda: api.load(folder("there")),
        "there is not an intact model folder: it has no manifest.json; copy it again or use another",
    ),
    (
        "not-a-folder",
        lambda: api.load(file("model.txt", "")),
        "model.txt is a file, not a model folder; give the path of a folder written by `saccade train`",
    ),
    (
        "data-missing",
        lambda: api.prepared(recipe(tiny_recipe(data={"train": ""}))),
        "data.train is not set; name the data, such as data.train=train.tsv or phrasebook:train",
    ),
    (
        "no-file",
        lambda: api.prepared(recipe(tiny_recipe(data={"train": "none.tsv"}))),
        "no file 'none.tsv'; check the path",
    ),
    (
        "wrong-input",
        lambda: translator().translate(3),
        'expected a text or a list of texts, got int; write m.translate("your sentence")',
    ),
    (
        "beam-and-sampling",
        lambda: translator().translate("a", beam=2, temperature=1.0),
        "a beam and sampling were both asked for; leave out beam, or temperature, top_k and top_p",
    ),
    (
        "unknown-predict-option",
        lambda: translator().translate("a", bean=2),
        "a prediction of translation has no option 'bean'; did you mean 'beam'?",
    ),
    (
        "beam-out-of-range",
        lambda: translator().translate("a", beam=0),
        "a beam of 0; give a whole number from 1 to 1000",
    ),
    (
        "out-of-range",
        lambda: translator().translate("a", max_length=0),
        "a max_length of 0 tokens; give 1 to 100,000",
    ),
    (
        "wrong-task",
        lambda: translator().classify("a"),
        'a translation model cannot label a text; use m.translate("your sentence")',
    ),
    (
        "no-examples",
        lambda: translator().evaluate([]),
        "there are no examples to evaluate on; give data with at least one",
    ),
    ("no-file", lambda: translator().evaluate("none.tsv"), "no file 'none.tsv'; check the path"),
    (
        "unknown-option",
        lambda: translator().evaluate([("a", "b")], stride=3),
        "an evaluation of translation has no option 'stride'; leave it out",
    ),
    (
        "wrong-example",
        lambda: translator().align("the cat"),
        "example 1 is \"('the cat', None)\"; expected (source, target)",
    ),
    (
        "wrong-input",
        lambda: classifier().classify(3),
        'expected a text or a list of texts, got int; write m.classify("your text")',
    ),
    (
        "wrong-task",
        lambda: classifier().translate("a"),
        'a classification model cannot translate; use m.classify("your text")',
    ),
    (
        "unknown-label",
        lambda: classifier().evaluate([("a", "never")]),
        "line 1: the label 'never' was never seen in training; there are: neg, pos",
    ),
    (
        "not-a-folder",
        lambda: api.fit(tiny_recipe(), file("run.txt", "")),
        "run.txt is a file; give a folder for the run with out=…",
    ),
    (
        "foreign-files",
        lambda: api.fit(tiny_recipe(), folder("full")),
        "full contains other files and no run; choose an empty or new folder with out=…",
    ),
    (
        "no-models",
        lambda: api.average([], "mean"),
        "the mean of no models; give at least one model folder",
    ),
    (
        "not-a-variation",
        lambda: variations(["training.updates"], []),
        "--vary is 'training.updates'; write a key and several values, such as model.score=dot,additive",
    ),
]


@pytest.mark.parametrize(
    ("code", "provoke", "sentence"), SENTENCES, ids=[row[0] for row in SENTENCES]
)
def test_error_sentence(
    code: str,
    provoke: Callable[[], object],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(code) as error:
        provoke()
    assert str(error.value) == sentence


def test_sentences_name_the_rule_or_the_way_out() -> None:
    for _, _, sentence in SENTENCES:
        assert not sentence.endswith(".")
        assert sentence == sentence.strip()
