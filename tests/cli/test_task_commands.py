"""classify, tag, generate, compare, average, ensembles and evaluations of every task, as people type them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from saccade import api
from saccade.cli import attention_output
from saccade.cli.report import print_metrics
from saccade.data.conllu import Sentence
from saccade.errors import SaccadeError
from saccade.tasks.classification import Classification, Classified
from support import run_cli

# --- classify


def test_one_text_is_shown_with_its_weights_in_percent(shelf: Path) -> None:
    printed = run_cli("classify", shelf / "labels", "a good film")
    assert (printed.code, printed.err) == (0, "")
    [found] = api.classify(api.load(shelf / "labels"), ["a good film"])
    first, second, third = printed.out.splitlines()
    likeliest = sorted(found.probabilities.items(), key=lambda pair: -pair[1])
    assert (
        first
        == f"{found.label}   ({'  '.join(f'{name} {100 * chance:.1f} %' for name, chance in likeliest)})"
    )
    assert second.startswith("weight of each word in %")
    expected = [
        f"{piece} {100 * weight:.0f}"
        for piece, weight in zip(found.pieces, found.weights, strict=True)
    ]
    assert third.split("   ") == [f" {expected[0]}", *expected[1:-1], f"{expected[-1]} "]
    assert sum(int(word) for word in third.split()[1::2]) in range(97, 104)


def test_in_a_terminal_words_that_stand_out_are_shaded(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(
        attention_output,
        "out",
        Console(file=written, force_terminal=True, color_system="truecolor", width=80),
    )
    one = Classified(
        "good", {"good": 0.9, "bad": 0.1}, ["a", "good", "film"], np.array([0.1, 0.8, 0.1])
    )
    monkeypatch.setattr(Classification, "predict", lambda *_: iter([(0, one)]))
    printed = run_cli("classify", shelf / "labels", "a good film")
    assert "48;2;255;140;0m good 80 " in written.getvalue()
    assert written.getvalue().count("48;2;") == 1
    assert "weight of each word in %:" in printed.out
    flat = Classified("good", {"good": 1.0}, ["a", "good", "film"], np.array([0.34, 0.33, 0.33]))
    monkeypatch.setattr(Classification, "predict", lambda *_: iter([(0, flat)]))
    printed = run_cli("classify", shelf / "labels", "a good film")
    assert written.getvalue().count("48;2;") == 1, "a flat distribution looks flat"
    assert "weight of each word in %, nearly the same for all:" in printed.out


def test_the_effect_of_a_word_is_what_the_label_loses_without_it(shelf: Path) -> None:
    system = api.load(shelf / "labels")
    whole, without = api.classify(system, ["a good film", "a film"])
    facts = run_cli("classify", shelf / "labels", "a good film", "--effect", "--json").json
    assert [word for word, _ in facts["effects"]] == ["a", "good", "film"]
    assert facts["effects"][1][1] == pytest.approx(
        whole.probabilities[whole.label] - without.probabilities[whole.label], abs=1e-6
    )
    lines = run_cli("classify", shelf / "labels", "a good film", "--effect").out.splitlines()
    assert lines[3] == f"points by which {whole.label} falls when a word is left out:"
    assert f" good {100 * facts['effects'][1][1]:+.1f} " in lines[4]


def test_what_was_typed_comes_back_as_it_was(shelf: Path) -> None:
    printed = run_cli("classify", shelf / "labels", "a :cat: [bold]film")
    assert ":cat: " in printed.out
    assert "[bold]film " in printed.out
    assert "':cat:', '[bold]film'" in printed.err


def test_many_texts_come_as_label_tab_text_and_as_json(shelf: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a good film\nno fun\n")
    found = api.classify(api.load(shelf / "labels"), ["a good film", "no fun"])
    expected = "".join(
        f"{one.label}\t{text}\n" for one, text in zip(found, ("a good film", "no fun"), strict=True)
    )
    assert run_cli("classify", shelf / "labels", "--input", tmp_path / "in.txt").out == expected
    assert run_cli("classify", shelf / "labels", stdin="a good film\nno fun\n").out == expected
    lines = run_cli(
        "classify", shelf / "labels", stdin="a good film\nno fun\n", terminal=False
    ).out.splitlines()
    assert len(lines) == 2
    rows = [
        json.loads(line)
        for line in run_cli(
            "classify", shelf / "labels", "--input", tmp_path / "in.txt", "--json"
        ).out.splitlines()
    ]
    assert [row["label"] for row in rows] == [one.label for one in found]
    assert [row["weights"] for row in rows] == [
        [list(pair) for pair in zip(one.pieces, one.weights, strict=True)] for one in found
    ]
    assert set(rows[0]) == {"text", "label", "probabilities", "weights"}


def test_an_empty_line_stays_where_it_is(shelf: Path) -> None:
    text = "a good film\n\nno fun\n"
    first, empty, last = run_cli("classify", shelf / "labels", stdin=text).out.splitlines()
    assert (first.partition("\t")[2], empty, last.partition("\t")[2]) == (
        "a good film",
        "",
        "no fun",
    )
    rows = [
        json.loads(line)
        for line in run_cli("classify", shelf / "labels", "--json", stdin=text).out.splitlines()
    ]
    assert rows[1] == {"text": "", "label": None}
    assert [row["text"] for row in rows] == ["a good film", "", "no fun"]


def test_a_model_folder_can_be_used_from_within(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_cli("classify", shelf / "labels", "a good film").out
    folder = shelf / "labels"
    monkeypatch.chdir(folder / "best" if (folder / "best").exists() else folder)
    printed = run_cli("classify", ".", "a good film")
    assert (printed.code, printed.out) == (0, expected)


def test_an_unknown_word_is_noted(shelf: Path) -> None:
    assert (
        "the model has never seen 'zebra'" in run_cli("classify", shelf / "labels", "a zebra").err
    )


@pytest.mark.parametrize("ending", ["png", "html", "json", "svg"])
def test_weights_are_drawn_by_show(shelf: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"weights.{ending}"
    refused = run_cli("classify", shelf / "labels", "a good film", "--out", out)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "are drawn by `saccade show`" in refused.err
    words = ("show", shelf / "labels", "a good film", "--site", "pool", "--words", "--out", out)
    assert run_cli(*words).code == 0
    assert out.stat().st_size > 100


# --- tag


def test_a_tagged_file_is_the_file_with_other_tags(shelf: Path) -> None:
    printed = run_cli("tag", shelf / "tags", shelf / "words.conllu")
    assert (printed.code, printed.err) == (0, "")
    before, after = (shelf / "words.conllu").read_text().splitlines(), printed.out.splitlines()
    system = api.load(shelf / "tags")
    tags = iter(
        tag for row in api.tag(system, system.read(str(shelf / "words.conllu"))) for tag in row
    )
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        columns = old.split("\t")
        if columns[0].isdigit():
            columns[3] = next(tags)
            assert new == "\t".join(columns)
        else:
            assert new == old, "comments, ranges, empty nodes and empty lines stay"
    assert next(tags, None) is None


def test_sentences_of_other_forms_become_conllu(shelf: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cats sleep\ncats\n")
    expected = api.tag(
        api.load(shelf / "tags"),
        [Sentence(("the", "cats", "sleep"), None, 1), Sentence(("cats",), None, 2)],
    )
    for printed in (
        run_cli("tag", shelf / "tags", tmp_path / "in.txt"),
        run_cli("tag", shelf / "tags", "-", stdin="the cats sleep\n\ncats\n"),
    ):
        assert printed.code == 0
        rows = [line.split("\t") for line in printed.out.splitlines() if line and line[0] != "#"]
        assert [row[1] for row in rows] == ["the", "cats", "sleep", "cats"]
        assert [row[3] for row in rows] == [tag for tags in expected for tag in tags]
        assert printed.out.startswith("# text = the cats sleep\n")
    printed = run_cli("tag", shelf / "tags", tmp_path / "in.txt", "--json")
    assert [json.loads(line) for line in printed.out.splitlines()] == [
        {"words": words, "tags": tags}
        for words, tags in zip([["the", "cats", "sleep"], ["cats"]], expected, strict=True)
    ]


# --- generate


@pytest.mark.parametrize("name", ["words", "letters", "lines"])
def test_a_text_is_continued(shelf: Path, name: str) -> None:
    for prompt in ("the cat", ""):
        printed = run_cli("generate", shelf / name, prompt, "--limit", 12, "--seed", 3)
        assert (printed.code, printed.err) == (0, "")
        text = "".join(api.generate(api.load(shelf / name), prompt, 12, {"seed": 3}))
        assert printed.out == f"{prompt}{text}\n"
        facts = run_cli("generate", shelf / name, prompt, "--limit", 12, "--seed", 3, "--json").json
        assert facts == {"prompt": prompt, "text": text}
    if name == "words":
        assert run_cli("generate", shelf / name, "the cat", "--limit", 1, "--temperature", 0).out[
            :8
        ] in ("the cat ", "the cat\n")


def test_an_unseen_word_in_a_prompt_is_noted(shelf: Path) -> None:
    printed = run_cli("generate", shelf / "words", "the zebra", "--limit", 3)
    assert printed.code == 0
    assert "the model has never seen 'zebra'" in printed.err
    assert printed.out.startswith("the zebra")


# --- evaluate


BY_CLASS = {"macro_precision", "macro_recall", "macro_f1", "classes"}
LOSSES = {"loss", "perplexity", "unigram_loss"}


def test_every_task_has_its_metrics(shelf: Path) -> None:
    for name, data, figures in (
        (
            "labels",
            "reviews.tsv",
            {"texts", "loss", "accuracy", "commonest_label", *BY_CLASS, "confusion"},
        ),
        (
            "tags",
            "words.conllu",
            {
                "sentences",
                "loss",
                "accuracy",
                "unknown_words",
                "usual_accuracy",
                *BY_CLASS,
                "confusion",
            },
        ),
        (
            "letters",
            "text.txt",
            {"documents", "characters", *LOSSES, "tokens", "bits_per_character"},
        ),
        ("masked", "text.txt", {"documents", "characters", *LOSSES}),
    ):
        facts = run_cli("evaluate", shelf / name, shelf / data, "--json").json
        assert set(facts) == {"model", "data", *figures}
        shown = run_cli("evaluate", shelf / name, shelf / data).out.split("\n\n")[0]
        assert {line.split()[0] for line in shown.splitlines()} == figures - {
            "classes",
            "confusion",
        }


def test_classes_and_confusion_are_printed_and_drawn(shelf: Path, tmp_path: Path) -> None:
    words = ("evaluate", shelf / "tags", shelf / "words.conllu")
    facts = run_cli(*words, "--json").json
    system = api.load(shelf / "tags")
    sentences = system.read(str(shelf / "words.conllu"))
    wanted = [tag for one in sentences for tag in one.tags]
    guessed = [tag for tags in api.tag(system, sentences) for tag in tags]
    for row in facts["classes"]:
        label, right = (
            row["label"],
            sum(a == b == row["label"] for a, b in zip(wanted, guessed, strict=True)),
        )
        assert row["support"] == wanted.count(label)
        assert row["recall"] == pytest.approx(100 * right / max(wanted.count(label), 1))
        assert row["precision"] == pytest.approx(100 * right / max(guessed.count(label), 1))
    printed = run_cli(*words).out
    _, classes, confusion = printed.split("\n\n")
    lines = classes.splitlines()
    assert lines[0].split() == ["precision", "recall", "f1", "support"]
    assert [line.split()[0] for line in lines[1:-1]] == [row["label"] for row in facts["classes"]]
    assert lines[-1].split() == [
        "macro",
        "average",
        *(f"{facts[f'macro_{name}']:.1f}" for name in ("precision", "recall", "f1")),
        "6",
    ]
    head, names, *rows = confusion.splitlines()
    assert head == "confusion (rows: the right label, columns: the model's)"
    assert names.split() == facts["confusion"]["labels"] == [row.split()[0] for row in rows]
    assert [list(map(int, row.split()[1:])) for row in rows] == facts["confusion"]["counts"]
    for name in ("c.png", "c.svg"):
        assert run_cli(*words, "--confusion-out", tmp_path / name).code == 0
        assert (tmp_path / name).stat().st_size > 1000
    for more, sentence in (
        (("--confusion-out", tmp_path / "c.txt"), "name a file ending in .png, .svg or .pdf"),
        (
            ("--confusion",),
            "an evaluation of language-modelling has no option 'confusion'; leave it out",
        ),
    ):
        wrong = run_cli("evaluate", shelf / "letters", shelf / "text.txt", *more)
        assert wrong.code == 2
        assert sentence in wrong.err


def test_of_many_classes_the_commonest_are_printed_and_a_confusion_matrix_only_when_asked_for(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = api.load(shelf / "labels")
    many = [f"label {n:02}" for n in range(40)]
    monkeypatch.setattr(system.task, "labels", many)
    monkeypatch.setattr(system.task, "known", {name: n for n, name in enumerate(many)})
    wanted = torch.tensor([n for n in range(40) for _ in range(41 - n)])
    guessed = torch.where(torch.arange(len(wanted)) % 5 > 0, wanted, wanted.flip(0))
    metrics = {"accuracy": 1.0, **system.task.by_class(guessed, wanted)}
    assert (len(metrics["classes"]), "confusion" in metrics) == (40, False)
    asked = system.task.by_class(guessed, wanted, True)["confusion"]
    assert asked["counts"] == [
        [int(((wanted == a) & (guessed == b)).sum()) for b in range(40)] for a in range(40)
    ]
    printed = io.StringIO()
    monkeypatch.setattr("saccade.cli.report.write", lambda text="": print(text, file=printed))
    print_metrics({**metrics, "confusion": asked})
    lines = printed.getvalue().splitlines()
    assert sum(line.startswith("label ") for line in lines) == 30 + 40
    assert "the 30 commonest of 40 classes; --json prints all" in lines
    assert len(lines[-1].split()) == 2 + 40, "wide rows are neither wrapped nor cut"
    monkeypatch.setattr(system.task, "labels", [str(n) for n in range(201)])
    with pytest.raises(
        SaccadeError,
        match="a confusion matrix of 201 labels cannot be read; leave it out above 200",
    ):
        system.task.by_class(torch.arange(201), torch.arange(201), True)


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("labels", "reviews.tsv", {}),
        ("tags", "words.conllu", {}),
        ("letters", "text.txt", {}),
        ("lines", "text.txt", {}),
        ("masked", "text.txt", {}),
        ("run", "phrasebook:test", {}),
        ("run", "phrasebook:test", {"beam": 2}),
    ],
)
def test_what_metrics_add_up_from_adds_up_to_them(
    shelf: Path, name: str, data: str, options: dict[str, int]
) -> None:
    system = api.load(shelf / name)
    examples = system.read(str(shelf / data) if (shelf / data).exists() else data)
    each = system.task.per_example(system.model, examples, **options)
    measured = system.evaluate(examples, **options)
    assert set(each.sums) & {"accuracy", "perplexity", "bleu"}
    for metric, (sums, score) in each.sums.items():
        assert score(sums.sum(0)) == pytest.approx(measured[metric], rel=1e-5)
        assert len(sums) > 1
    assert len(each.rows) in (0, len(examples))


def test_a_stride_adds_the_metrics_of_a_sliding_window(shelf: Path) -> None:
    facts = run_cli("evaluate", shelf / "letters", shelf / "text.txt", "--stride", 2, "--json").json
    system = api.load(shelf / "letters")
    found = api.evaluate(system, system.read(str(shelf / "text.txt")), stride=2)
    assert facts["sliding_loss"] == found["sliding_loss"]
    assert facts["stride"] == 2
    assert facts["loss"] == found["loss"] != facts["sliding_loss"]


def test_moses_and_peers_go_into_the_result(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sacremoses")
    monkeypatch.chdir(tmp_path)
    words = (
        "--moses",
        "fr",
        "--result",
        "mine",
        "--peer",
        "paper:bleu=30.5@A 2020",
        "--peer",
        "paper:loss=1@A 2020",
        "--peer",
        "b:bleu=2@B",
    )
    facts = run_cli("evaluate", shelf / "run", "phrasebook:test", *words, "--json").json
    written = json.loads((tmp_path / "benchmarks" / "results" / "mine.json").read_text())
    assert written["peers"] == {
        "paper": {"bleu": 30.5, "published": "A 2020", "loss": 1.0},
        "b": {"bleu": 2.0, "published": "B"},
    }
    assert written["rows"]["mine"]["bleu_tok_lc"] == facts["bleu_tok_lc"] > 0


# --- several models


def test_an_ensemble_translates(shelf: Path) -> None:
    printed = run_cli(
        "translate", shelf / "run", "the black cat", "--with", shelf / "other", "--beam", 2
    )
    assert (printed.code, printed.err) == (0, "")
    both = api.ensemble([api.load(shelf / "run"), api.load(shelf / "other")])
    assert printed.out == api.decode(both, ["the black cat"], beam=2)[0].text + "\n"
    itself = run_cli(
        "translate",
        shelf / "run",
        "the black cat",
        "--with",
        shelf / "run",
        "--with",
        shelf / "run",
        "--align",
    )
    assert itself.out == run_cli("translate", shelf / "run", "the black cat", "--align").out


def test_the_mean_of_models_is_a_model(shelf: Path, tmp_path: Path) -> None:
    printed = run_cli("average", shelf / "run", shelf / "other", "--out", tmp_path / "mean")
    assert (printed.code, printed.out) == (0, f"{tmp_path / 'mean'}: the mean of 2 models\n")
    assert run_cli("translate", tmp_path / "mean", "the black cat").code == 0
    facts = run_cli("average", shelf / "run", "--out", tmp_path / "same", "--json").json
    assert facts == {
        "out": str(tmp_path / "same"),
        "models": [str(shelf / "run")],
        "family": "bahdanau",
    }
    assert (
        run_cli("translate", tmp_path / "same", "the cat").out
        == run_cli("translate", shelf / "run", "the cat").out
    )


def test_recipes_are_set_side_by_side(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = api.load(shelf / "labels").recipe.to_dict()
    for pool in ("mean", "attention"):
        (tmp_path / f"by-{pool}.yaml").write_text(
            json.dumps({**made, "model": {"family": "bag", "dim": 4, "pool": pool}})
        )
    words = (
        "by-mean.yaml",
        "by-attention.yaml",
        "--seeds",
        2,
        "training.updates=2",
        "--out",
        "runs",
    )
    printed = run_cli(
        "compare", *words, "--json", "--result", "pools", "--peer", "zero:accuracy=50@nowhere"
    )
    assert printed.code == 0
    found = printed.json
    [compared] = found.pop("comparisons")
    assert set(found) == {"by-mean", "by-attention"} == {compared["best"], compared["other"]}
    assert all(len(values) == 2 for row in found.values() for values in row.values())
    assert compared["metric"] == "accuracy"
    assert 0 < compared["p"] <= 1
    assert compared["low"] <= compared["high"]
    assert {path.name for path in (tmp_path / "runs").iterdir() if path.is_file()} == {
        "compare.png",
        "curves.png",
        "report.html",
    }
    page = (tmp_path / "runs" / "report.html").read_text()
    assert "by-attention" in page
    assert "runs/by-mean-0" in page
    written = json.loads((tmp_path / "benchmarks" / "results" / "pools.json").read_text())
    assert (written["seeds"], written["recipe"], written["peers"]) == (
        [0, 1],
        "by-mean by-attention",
        {"zero": {"accuracy": 50.0, "published": "nowhere"}},
    )
    best = written["best"]
    accuracies = {name: sum(row["accuracy"]) for name, row in found.items()}
    assert accuracies[best] == max(accuracies.values())
    shown = run_cli("compare", *words)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0].split() == ["by-mean", "by-attention"], "a column each"
    assert [line.split()[0] for line in lines[1:4]] == ["texts", "loss", "accuracy"]
    assert "±" in lines[2]
    assert "±" not in lines[1], "as many texts with every seed"
    assert "4 training runs" not in shown.err
    assert "2 × 2 training runs into runs, judged on" in shown.err
    assert lines[-1].startswith("accuracy: no clear difference between by-"), (
        "four texts prove nothing"
    )
    assert "p = " in lines[-1]


def test_a_changed_recipe_gets_folders_of_its_own_and_old_runs_stay(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = api.load(shelf / "labels").recipe.to_dict()
    (tmp_path / "mean.yaml").write_text(
        json.dumps({**made, "model": {"family": "bag", "dim": 4, "pool": "mean"}})
    )
    assert run_cli("compare", "mean.yaml", "training.updates=2", "--picture", "x.svg").code == 0
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")
    first = (tmp_path / "runs/compare/mean-0/recipe.json").read_bytes()
    other = run_cli("compare", "mean.yaml", "training.updates=2", "training.learning_rate=0.5")
    assert other.code == 0
    assert (
        "runs/compare/mean-0 has a different training.learning_rate and stays; this run goes to mean-0-"
        in other.err
    )
    assert (tmp_path / "runs/compare/mean-0/recipe.json").read_bytes() == first
    folders = {path.name for path in (tmp_path / "runs/compare").iterdir() if path.is_dir()}
    assert len(folders) == 2
    again = run_cli("compare", "mean.yaml", "training.updates=2", "training.learning_rate=0.5")
    assert "already finished at update 2" in again.err
    assert {path.name for path in (tmp_path / "runs/compare").iterdir() if path.is_dir()} == folders
    wrong = run_cli("compare", "mean.yaml", "--picture", "x.gif")
    assert wrong.code == 2
    assert "cannot draw to 'x.gif'; name a file ending in .png, .svg or .pdf" in wrong.err


# --- show


@pytest.mark.parametrize(
    ("name", "text"), [("labels", "a good film"), ("letters", "the cat"), ("words", "the cat saw")]
)
def test_what_every_model_looks_at_is_drawn(
    shelf: Path, tmp_path: Path, name: str, text: str
) -> None:
    facts = run_cli("show", shelf / name, text, "--out", tmp_path / "x.json", "--json").json
    assert facts["sites"]
    assert facts["site"] == facts["sites"][0] == ("pool" if name == "labels" else "decoder.0.mixer")


def test_a_training_run_reports_how_its_model_is_used(shelf: Path, tmp_path: Path) -> None:
    for name, command in (("labels", "classify"), ("tags", "tag"), ("words", "generate")):
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(api.load(shelf / name).recipe.to_dict()))
        printed = run_cli(
            "train", path, "training.updates=1", "training.average=2", "--out", tmp_path / name
        )
        assert printed.code == 0
        assert f" {command} {tmp_path / name} " in printed.out
        assert "mean of the last evaluation " in printed.err
