"""Every command as people type it: what it prints, what it writes, with which code it ends."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from saccade import __version__, api
from saccade.cli import COMMANDS, NAMES, run
from saccade.data.pairs import parse_pharaoh
from saccade.training.signals import Stopped
from support import run_cli

TEXT = "the black cat ate the mouse"


def test_the_commands_in_the_order_of_a_first_visit() -> None:
    wanted = (
        "demo train consolidate average runs predict translate generate tag classify caption answer reconstruct info show heads evaluate report"
        " compare table bench reproduce explain draw symmetry lecture list config check fetch serve"
    )
    assert wanted.split() == NAMES


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_use_what_there_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed = run_cli(*name.split(), "--help")
    assert printed.code == 0
    above, examples = printed.out.split("Examples:")
    lines = [line.strip() for line in examples.splitlines() if "saccade" in line]
    assert lines
    for line in lines:
        command = line.split("| ")[-1]
        assert command.startswith(f"saccade {name}") or command in (
            "saccade explain",
            "saccade runs",
        )
        for flag in re.findall(r"--[a-z-]+", command):
            assert flag in above, f"{line}: there is no {flag}"
    assert "--json" in above or name == "config schema"  # which is JSON


def test_the_top_explains_where_to_start() -> None:
    printed = run_cli("--help")
    assert printed.code == 0
    assert "Start with:" in printed.out
    assert all(name in printed.out for name in NAMES)
    bare = run_cli()
    assert bare.out.strip() == printed.out.strip()
    assert (bare.code, bare.err) == (2, "saccade: no command was given; see saccade --help\n")


def test_the_version_in_a_process_of_its_own() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "saccade", "--version"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"saccade {__version__}\n", "")


# --- train


def test_a_training_run_is_reported_resumed_and_finished(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine"
    printed = run_cli("train", recipe, "--out", run, "--json")
    assert printed.code == 0
    facts = printed.json
    assert (facts["out"], facts["update"], facts["done"]) == (str(run), 4, True)
    assert set(facts) == {
        "out",
        "update",
        "epoch",
        "tokens",
        "seconds",
        "best",
        "best_update",
        "done",
        "metrics",
        "costs",
    }
    assert re.search(
        r"mine: .* here: [\d,]+ parameters, 4 updates at most, .* FLOPs per update", printed.err
    )
    assert "mine: update 4  dev loss" in printed.err
    again = run_cli("train", recipe, "training.updates=6", "--out", run, "--resume")
    assert again.code == 0
    assert "resuming from update 4" in again.err
    assert f"{run}: 6 updates, best dev loss" in again.out
    assert f'Use it: saccade translate {run} "your sentence"\n' in again.out
    assert (
        run_cli("train", recipe, "training.updates=6", "--out", run, "--resume", "--json").json[
            "update"
        ]
        == 6
    )


def test_the_run_folder_is_named_after_the_recipe(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli("train", recipe, "training.updates=1", "--json").json["out"] == "runs/small"
    assert (tmp_path / "runs" / "small" / "best" / "model.safetensors").is_file()


def test_own_data_train_a_model_from_files(recipe: Path, tmp_path: Path) -> None:
    """Two parallel files for training, TSV for dev, BPE over both languages."""
    pairs = [
        ("the cat eats", "le chat mange"),
        ("the dog eats", "le chien mange"),
        ("a cat", "un chat"),
        ("a dog", "un chien"),
    ]
    (tmp_path / "t.en").write_text("".join(f"{source}\n" for source, _ in pairs))
    (tmp_path / "t.fr").write_text("".join(f"{target}\n" for _, target in pairs))
    (tmp_path / "dev.tsv").write_text("the cat\tle chat\n")
    words = [
        f"data.train={tmp_path}/t.en,{tmp_path}/t.fr",
        f"data.dev={tmp_path}/dev.tsv",
        "training.updates=3",
    ]
    printed = run_cli(
        "train",
        recipe,
        *words,
        "vocabulary={kind: bpe, size: 270, joint: true}",
        "--out",
        tmp_path / "run",
        "--json",
    )
    assert printed.code == 0, printed.err
    assert run_cli("translate", tmp_path / "run", "the cat").code == 0


def test_bf16_on_a_cpu_comes_with_a_note(recipe: Path, tmp_path: Path) -> None:
    printed = run_cli(
        "train",
        recipe,
        "training.precision=bf16",
        "training.updates=2",
        "--out",
        tmp_path / "run",
        "--json",
    )
    assert printed.code == 0
    assert "ONEDNN_MAX_CPU_ISA" in printed.err


# --- translate


def test_a_text_a_file_and_stdin_give_the_same(models: Path, tmp_path: Path) -> None:
    lines = [TEXT, "", "the dog saw a bird", "the red house is big"]
    found = api.decode(api.load(models / "run"), lines)
    expected, cut = [one.text for one in found], sum(not one.finished for one in found)
    told = (
        f"note: {cut} of 4 outputs reached the length limit and were cut; raise it with --max-length\n"
        if cut
        else ""
    )
    assert expected[1] == ""
    assert all(expected[n] for n in (0, 2, 3))
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress("\r\n".join(lines).encode()))
    outputs = [
        run_cli("translate", models / "run", "\n".join(lines)),
        run_cli("translate", models / "run", "--input", tmp_path / "in.txt"),
        run_cli("translate", models / "run" / "best", "--input", tmp_path / "in.txt.gz"),
        run_cli("translate", models / "run", stdin="\n".join(lines) + "\n"),
    ]
    for printed in outputs:
        assert (printed.code, printed.out.split("\n")[:-1], printed.err) == (0, expected, told)


def test_only_a_line_feed_ends_a_line(models: Path) -> None:
    """So that line n of the output is the translation of line n, whatever separators the text holds."""
    printed = run_cli(
        "translate", models / "run", stdin="the cat\u2028saw\x85the\x0cdog\n\nthe dog\r\n"
    )
    assert len(printed.out.split("\n")) == 4


def test_json_has_a_line_for_each_line(models: Path) -> None:
    printed = run_cli(
        "translate", models / "run", f"{TEXT}\n\nthe dog", "--json", "--align", "--beam", "3"
    )
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert [row["source"] for row in rows] == [TEXT, "", "the dog"]
    assert all(
        set(row) == {"source", "translation", "log_prob", "finished", "alignment"} for row in rows
    )
    assert rows[0]["log_prob"] < 0
    assert rows[1] == {
        "source": "",
        "translation": "",
        "log_prob": 0.0,
        "finished": True,
        "alignment": [],
    }


def test_an_alignment_names_words_that_are_there(models: Path) -> None:
    printed = run_cli("translate", models / "run", TEXT, "--align")
    text, links = printed.out.rstrip("\n").split("\t")
    sure, possible = parse_pharaoh(links)
    assert sure
    assert not possible
    assert all(i < len(TEXT.split()) and j < len(text.split()) for i, j in sure)
    assert len({j for _, j in sure}) == len(sure), "one link at most for a target word"


def test_searches_and_samples_are_flags(models: Path) -> None:
    def text(*flags: object) -> str:
        printed = run_cli("translate", models / "run", TEXT, *flags)
        assert printed.code == 0, printed.err
        return str(printed.out)

    greedy = text()
    assert text("--top-k", 1) == text("--temperature", 0) == text("--beam", 1) == greedy
    assert text("--beam", 3, "--length-penalty", 0.5)
    drawn = [text("--temperature", 3, "--top-p", 0.99, "--seed", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_words_never_seen_are_named(models: Path, tmp_path: Path) -> None:
    expected = "note: the model has never seen 'zebra' and reads it as <unk>\n"
    assert run_cli("translate", models / "run", "the zebra saw the zebra").err.startswith(expected)
    printed = run_cli(
        "translate",
        models / "run",
        " ".join(f"unknownword{'ab'[n % 2] * n}" for n in range(1, 30)),
        "--json",
    )
    assert printed.code == 0
    assert printed.json["translation"]
    assert printed.err.startswith(
        "note: the model has never seen 'unknownwordb', 'unknownwordaa', "
    )
    assert printed.err.splitlines()[0].endswith(" … and reads each as <unk>")
    assert printed.err.count("never seen") == 1


# --- evaluate, show


def test_an_evaluation_is_printed_and_counted(models: Path) -> None:
    facts = run_cli("evaluate", models / "run", "phrasebook:test", "--lengths", "--json").json
    assert facts["sentences"] == 12
    assert {
        "model",
        "data",
        "beam",
        "bleu",
        "chrf",
        "bleu_signature",
        "chrf_signature",
        "loss",
        "aer",
        "by_length",
    } <= set(facts)
    assert len(facts["by_length"]) == 4
    printed = run_cli("evaluate", models / "run", "phrasebook:test", "--lengths")
    assert f"bleu            {facts['bleu']:.1f}" in printed.out
    assert facts["bleu_signature"] in printed.out
    assert printed.out.count("BLEU") == 4
    plain = run_cli("evaluate", models / "fixed", "phrasebook:test", "--json", "--beam", 2).json
    assert "aer" not in plain
    assert plain["beam"] == 2


def test_gold_links_in_a_file_give_an_error_rate(models: Path, tmp_path: Path) -> None:
    (tmp_path / "gold.jsonl").write_text(
        '{"source": "the cat", "target": "le chat", "alignment": "0-0 1-1"}\n'
    )
    (tmp_path / "none.tsv").write_text("the cat\tle chat\n")
    assert "aer" in run_cli("evaluate", models / "run", tmp_path / "gold.jsonl", "--json").json
    assert "aer" not in run_cli("evaluate", models / "run", tmp_path / "none.tsv", "--json").json


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.png", b"\x89PNG"),
        ("a.svg", b"<?xml"),
        ("a.pdf", b"%PDF"),
        ("deep/a.html", b"<!"),
        ("a.json", b"{"),
        ("A.PNG", b"\x89PNG"),
    ],
)
def test_a_picture_is_drawn_by_its_ending(
    models: Path, tmp_path: Path, name: str, start: bytes
) -> None:
    path = tmp_path / name
    facts = run_cli("show", models / "run", TEXT, "--out", path, "--json").json
    assert facts["out"] == str(path)
    assert (facts["source"], facts["site"]) == (TEXT, "decoder.cross")
    content = path.read_bytes()
    assert content.startswith(start)
    if name.endswith("html"):
        assert not re.search(rb"""(src|href)\s*=\s*["']?(https?:)?//""", content), (
            "the page needs nothing but itself"
        )
        assert b"mouse" in content
    assert [other.name for other in path.parent.iterdir()] == [path.name], (
        "no part of it is left over"
    )


def test_what_is_shown_can_be_chosen(models: Path, tmp_path: Path) -> None:
    words = (
        "--target",
        "le chat noir",
        "--site",
        "decoder.cross",
        "--heads",
        "--out",
        tmp_path / "x.png",
    )
    printed = run_cli("show", models / "run", "the black cat", *words)
    assert printed.code == 0, printed.err
    assert printed.out.startswith("the black cat\n→ le chat noir\n")


# --- explain, list, check


def test_the_worked_example_and_an_own_sentence() -> None:
    worked, own = (
        run_cli("explain", "--json").json,
        run_cli("explain", "the cat sat", "--json").json,
    )
    assert own["tokens"] == ["the", "cat", "sat"]
    assert worked["tokens"] != own["tokens"]
    assert run_cli("explain", "--scaled", "--json").json != worked
    assert "1. Inputs" in run_cli("explain").out


def test_the_catalogue_is_listed() -> None:
    rows = run_cli("list", "--json").json
    assert {"slot", "name", "paper", "what"} == set(rows[0])
    assert {row["slot"] for row in run_cli("list", "masks", "--json").json} == {"masks"}
    assert {row["name"] for row in run_cli("list", "--where", "bahdanau", "--json").json} >= {
        "additive",
        "bahdanau",
    }
    assert "scaled-dot" in run_cli("list").out
    assert run_cli("list", "--where", "no such thing", "--json").json == []


def test_data_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("the cat\tle chat\nno tab\nthe cat\tle chat\n\tx\n")
    printed = run_cli("check", tmp_path / "bad.tsv")
    assert printed.code == 2, "broken lines must stop a chain of commands"
    assert "2 pairs" in printed.out
    assert run_cli("check", tmp_path / "bad.tsv", "--json").json
    (tmp_path / "a.en").write_text("the cat\n")
    (tmp_path / "a.fr").write_text("le chat\n")
    good = run_cli("check", tmp_path / "a.en", tmp_path / "a.fr")
    assert (good.code, "1 pair" in good.out) == (0, True)
    assert "500 pairs" in run_cli("check", "phrasebook:test").out


def test_data_of_every_kind_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("the\tDET\ncat\tNOUN\n")
    assert run_cli("check", tmp_path / "a.tsv").out.startswith("a.tsv: 2 pairs")
    assert run_cli("check", tmp_path / "a.tsv", "--as", "tags", "--json").json["tags"] == {
        "DET": 1,
        "NOUN": 1,
    }
    assert run_cli("check", tmp_path / "a.tsv", "--as", "labels").out.startswith("a.tsv: 2 texts")
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert run_cli("check", tmp_path / "a.txt", "--documents", "blank").out.startswith(
        "a.txt: 2 documents"
    )
    (tmp_path / "a.conllu").write_text("1\tone\n")
    bad = run_cli("check", tmp_path / "a.conllu")
    assert (bad.code, "line 1: 2 columns instead of 10" in bad.out) == (2, True)
    wrong = run_cli("check", tmp_path / "a.txt", "--as", "label")
    assert (wrong.code, "did you mean 'labels'?" in wrong.err) == (2, True)


# --- how commands end


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (
            Stopped(signal.SIGINT, 7),
            130,
            "stopped by SIGINT after update 7; a checkpoint was written, continue with saccade train --resume runs/small",
        ),
        (Stopped(signal.SIGTERM, 7), 143, "stopped by SIGTERM after update 7"),
        (KeyboardInterrupt(), 130, "stopped"),
        (MemoryError(), 2, "there is not enough memory for this; use smaller sizes"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …"),
            2,
            "there is not enough memory",
        ),
        (RuntimeError("CUDA out of memory. Tried …"), 2, "there is not enough memory"),
        (
            OSError(28, "No space left on device", "log.jsonl"),
            2,
            "log.jsonl: No space left on device; check the path",
        ),
    ],
)
def test_a_command_that_is_cut_short_reports_why(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, sentence: str
) -> None:
    monkeypatch.chdir(recipe.parent)

    def fit(_: object, folder: Path, *more: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recipe.json").write_text("{}")  # written before the first update
        raise error

    monkeypatch.setattr(api, "fit", fit)
    printed = run_cli("train", recipe)
    assert (printed.code, printed.out) == (code, "")
    assert printed.err.startswith(f"saccade: {sentence}")
    assert printed.err.count("\n") == 1


def test_a_training_cut_short_before_its_own_run_began_continues_with_the_same_command(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recipe.parent)

    def fit(*_: object) -> None:
        raise Stopped(signal.SIGINT, 7)

    monkeypatch.setattr(api, "fit", fit)
    assert run_cli("train", recipe).err.endswith(
        "a checkpoint was written, continue with the same command\n"
    )


def test_a_defect_shows_itself(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(api, "fit", fit)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        run_cli("train", recipe)


def test_the_hints_name_the_command_as_the_user_can_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saccade.cli.shared import command_name

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(tmp_path / ".venv/bin/saccade"), "demo"])
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert command_name() == ".venv/bin/saccade"
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/saccade")
    assert command_name() == "saccade"


def test_what_cannot_go_together_is_refused(models: Path, tmp_path: Path) -> None:
    printed = run_cli("translate", models / "run", TEXT, "--beam", "4", "--temperature", "1")
    assert (printed.code, "a beam and sampling were both asked for" in printed.err) == (2, True)
    printed = run_cli("show", models / "run", TEXT, "--target", " ", "--out", tmp_path / "x.png")
    assert (printed.code, "the target is empty" in printed.err) == (2, True)


def test_resuming_nothing_reports_that_a_new_run_starts(recipe: Path, tmp_path: Path) -> None:
    printed = run_cli(
        "train", recipe, "training.updates=2", "--out", tmp_path / "none", "--resume", "--json"
    )
    assert (printed.code, "no run to resume in" in printed.err) == (0, True)


def test_of_several_processes_one_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert run(["list", "cells"]) == 0
    assert not capsys.readouterr().out
    monkeypatch.setenv("RANK", "0")
    assert run(["list", "cells"]) == 0
    assert "lstm" in capsys.readouterr().out
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "1")  # left over from something else: this process is alone
    assert run(["list", "cells"]) == 0
    assert "lstm" in capsys.readouterr().out
