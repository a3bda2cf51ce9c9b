"""Every number in the tables of the pages is a value of a result file, under the name that it is printed with.

The pages are read as Markdown, with tables of names of this file's own; nothing of `benchmarks/tables.py`, which makes some of them, is used.
"""

# ruff: noqa: E501
from __future__ import annotations

import csv
import json
import re
import statistics
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
NUMBER = r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?"
Rows = list[dict[str, str]]  # column → cell; "" is the first column


@cache
def result(name: str) -> dict[str, Any]:
    """A result file, and its `figures`: ROW.METRIC → values, or METRIC for the best or the only row."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    rows = found["rows"]
    own = found.get("best") or (found["recipe"] if found["recipe"] in rows else name)
    bare = rows[own] if own in rows else next(iter(rows.values())) if len(rows) == 1 else {}
    found["figures"] = bare | {
        f"{row}.{metric}": values
        for row, metrics in rows.items()
        for metric, values in metrics.items()
    }
    return found


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(text: str, start: str, end: str) -> str:
    assert start in text
    return text.split(start, 1)[1].split(end, 1)[0]


def rows_of(text: str) -> Rows:
    """The rows of the first Markdown table of a text; the first column's name is ""."""
    lines = [line.strip() for line in text.splitlines()]
    first = next(n for n, line in enumerate(lines) if line.startswith("|"))
    table = [line for line in lines[first:] if line.startswith("|")]
    table = table[
        : next((n for n, line in enumerate(lines[first:]) if not line.startswith("|")), len(table))
    ]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    head = ["", *cells[0][1:]]
    return [dict(zip(head, row, strict=True)) for row in cells[2:]]


def agrees(text: str, value: float, scale: float = 1.0) -> bool:
    """Whether a printed number is this value, rounded to the digits that it shows."""
    digits = text.replace(",", "").replace("−", "-")
    mantissa, _, exponent = digits.partition("e")
    half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(float(digits) - value * scale) <= half * (1 + 1e-6)


def wrong(printed: str, value: Any, scale: float = 1.0) -> str:
    """What is wrong with a printed value: one number, or mean ± standard deviation of several."""
    values = [float(one) for one in (value if isinstance(value, list) else [value])]
    numbers = re.findall(NUMBER, printed)
    want = (
        [statistics.fmean(values)]
        if len(values) == 1
        else [statistics.fmean(values), statistics.stdev(values)]
    )
    if len(numbers) != len(want) or (len(want) == 2) != ("±" in printed):
        return f"{printed}: the file has {len(values)} values, {want}"
    return (
        ""
        if all(map(lambda text, one: agrees(text, one, scale), numbers, want))
        else f"{printed}: the file has {want}"
    )


class Check:
    """Collects what has no source, and counts what has one."""

    def __init__(self) -> None:
        self.count, self.found = 0, list[str]()

    def value(self, where: str, printed: str, of: Callable[[], Any], scale: float = 1.0) -> None:
        if printed in ("–", ""):
            return
        self.count += 1
        try:
            said = wrong(printed, of(), scale)
        except (KeyError, IndexError, OSError, ValueError, StopIteration) as error:
            said = f"{printed}: no source ({type(error).__name__}: {error})"
        self.found += [f"{where}: {said}"] if said else []

    def done(self, least: int) -> None:
        assert self.found == []
        assert self.count >= least, "the tables were not found"


def named(file: str, row: str, metric: str) -> Any:
    """A metric of a row of a result file; of a file of one training without a row's name."""
    figures = result(file)["figures"]
    alias = {"bleu_cased": "bleu", "val_loss": "loss"}.get(metric, metric)
    for name in (metric, alias):
        key = f"{row}.{name}" if row else name
        if key in figures:
            if not row:
                assert "best" not in result(file), (
                    f"{file}.json compares several trainings; name the one"
                )
            return figures[key]
    raise KeyError(f"{file}.json: {row}.{metric}")


LINK = re.compile(r"\[([^\]]+)\]\(\.\./benchmarks/results/([a-z0-9.-]+)\.json\)")


def check_results(text: str) -> Check:
    check = Check()
    for row in rows_of(section(text, "**Dev and test.**", "\n## ")):
        label, file = LINK.search(row[""]).groups()  # type: ignore[union-attr]
        training = row[""].partition("json)")[2].removeprefix(" †").removeprefix(":").strip()
        assert label == result(file)["name"] == file
        assert (" †" in row[""]) == bool(result(file).get("commit_dirty"))
        if row["on"] != result(file)["device"]:
            check.found.append(
                f"{file} was measured on {result(file)['device']}, not on {row['on']}"
            )
        if many := re.fullmatch(r"(\d+) numbers", row["metrics"]):
            check.value(
                file, many[1], lambda file=file: sum(map(len, result(file)["rows"].values()))
            )  # type: ignore[misc]
            continue
        for metric, printed in re.findall(
            rf"([\w.-]+) ({NUMBER}(?: ± {NUMBER})?)(?:, |$)", row["metrics"]
        ):
            check.value(
                f"{file}: {training} {metric}",
                printed,
                lambda f=file, t=training, m=metric: named(f, t, m),
            )  # type: ignore[misc]
        assert len(re.findall(", ", row["metrics"])) + 1 == len(
            re.findall(rf"[\w.-]+ {NUMBER}(?: ± {NUMBER})?(?:, |$)", row["metrics"])
        )
        published = row["published elsewhere"] if "published elsewhere" in row else row["others"]
        for who, facts in re.findall(r"([^;:]+): ([^;(]+)", published.split("tables.md")[0]):
            for metric, printed in re.findall(rf"(\w+) ({NUMBER})", facts):
                check.value(
                    f"{file}: {who} {metric}",
                    printed,
                    lambda f=file, w=who, m=metric: result(f)["peers"][w.strip()][m],
                )  # type: ignore[misc]
    return check


def test_results() -> None:
    check_results(page("docs/results.md")).done(150)


def test_a_row_that_no_file_has_is_found() -> None:
    """Names that were cut at commas inside brackets, and a value of another row."""
    text = page("docs/results.md")
    [right] = re.findall(
        r"^\| \[joins\]\S+: position_embedding=sinusoidal,join=concatenate .*$", text, re.M
    )
    for false in (
        right.replace("sinusoidal,join=concatenate", "{name: sinusoidal"),
        right.replace(
            "position_embedding=sinusoidal,join=concatenate",
            "position_embedding= join: concatenate}",
        ),
        re.sub(r"accuracy [\d.]+", "accuracy 82.40", right),
    ):
        assert len(check_results(text.replace(right, false)).found) == 1, false


def test_systems() -> None:
    check = Check()
    for file, metric, printed in re.findall(
        rf"(?:(?:recorded|shown): |[<>;] )([a-z][\w/.-]*):(\S+) ({NUMBER}(?: ± {NUMBER})?)(?=\n|,|:|;| (?!±))",
        page("docs/systems.md"),
    ):
        check.value(f"{file}: {metric}", printed, lambda f=file, m=metric: recorded(f, m))  # type: ignore[misc]
    check.done(350)


def recorded(file: str, metric: str) -> Any:
    if not file.endswith(".csv"):
        row, _, last = metric.rpartition(".")
        alias = {"bleu_cased": "bleu", "val_loss": "loss"}.get(last, last)
        figures = result(file)["figures"]
        return figures[metric] if metric in figures else figures[f"{row}.{alias}".strip(".")]
    row, _, column = metric.partition(".")
    with (RESULTS / file).open(encoding="utf-8") as lines:
        return float(next(one for one in csv.DictReader(lines) if one["row"] == row)[column])


DEMO = {
    "BLEU": ("bleu_fixed_context", "bleu"),
    "BLEU, the longest quarter of the sentences": ("bleu_long_fixed_context", "bleu_long"),
    "alignment error rate": ("", "aer"),
}


def test_readme() -> None:
    check, text = Check(), page("README.md")
    for row in rows_of(section(text, "<!-- demo results", "<!-- end")):
        for column, key in zip(("fixed context", "with attention"), DEMO[row[""]], strict=True):
            check.value(row[""], row[column], lambda key=key: result("demo")["figures"][key])  # type: ignore[misc]
    [seconds] = re.findall(r"^(\d+) seconds for the whole demo", text, re.M)
    check.value("seconds", seconds, lambda: statistics.fmean(result("demo")["figures"]["seconds"]))
    check.done(6)


SERVING = {
    "answers per second to 32 clients, relative to one client's, median of three runs; a process per core": "load.throughput_ratio",
    "answers per second, 1 client": "load.per_second_1_client",
    "answers per second, 32 clients, a process per core": "load.per_second_32_clients",
    "answers per second, 32 clients, one process": "load.one_process_per_second_32_clients",
    "the same model by CTranslate2 behind FastAPI: 1 client": "load.ctranslate2_per_second_1_client",
    "the same model by CTranslate2 behind FastAPI: 32 clients": "load.ctranslate2_per_second_32_clients",
    "median time of a lone client, relative to a call without HTTP": "load.p50_ratio",
    "4 × capacity: wrong answers": "overload.wrong",
    "4 × capacity: right answers": "overload.right",
    "4 × capacity: refused with 429 or 503": "overload.refused",
    "milliseconds to a refusal, 99 of 100": "overload.refused_p99_ms",
    "growth of memory": "overload.memory_growth",
    "seconds until answers are as quick as before": "overload.seconds_to_normal",
    "restarts by SIGTERM under load": "restarts.restarts",
    "accepted requests that were lost": "restarts.lost",
    "seconds until a stopped service has ended, at most": "restarts.seconds_to_end",
    "cases of schemathesis over all routes": "fuzz.cases",
    "failures that it found": "fuzz.failures",
}


def test_serving() -> None:
    check = Check()
    for row in rows_of(section(page("docs/serving.md"), "<!-- serving, measured", "<!-- end")):
        if where := SERVING.get(row[""]):
            part, _, key = where.partition(".")
            scale = 100 if row["measured"].endswith("%") else 1
            check.value(
                row[""],
                row["measured"],
                lambda p=part, k=key: result(f"serve-{p}")["figures"][k],
                scale,
            )  # type: ignore[misc]
    check.done(len(SERVING))


PICTURES = {
    "captions": {
        "exact": "exact",
        "pointing": "pointing",
        "object words right": "object_words_right",
        "BLEU-4": "bleu_4",
        "updates": "updates",
        "updates per second": "updates_per_second",
    },
    "flickr8k": {f"BLEU-{n}": f"bleu_{n}" for n in (1, 2, 3, 4)},
    "questions": {"accuracy": "accuracy", "without looking": "blind_accuracy"},
    "cifar10": {
        "accuracy": "accuracy",
        "parameters": "parameters",
        "updates": "updates",
        "seconds, three side by side": "seconds",
    },
}


def test_pictures() -> None:
    check, text = Check(), page("docs/pictures.md")
    for name, columns in PICTURES.items():
        rows = rows_of(section(text, f"<!-- {name}:", f"<!-- end of {name}"))
        for row in rows:
            found = LINK.match(row[""])
            for column, key in columns.items():
                if found:
                    several = "best" in result(found[2])
                    check.value(
                        f"{found[2]}: {found[1]} {column}",
                        row[column],
                        lambda f=found, s=several, k=key: named(f[2], f[1] if s else "", k),
                    )  # type: ignore[misc]
                else:
                    file = {"questions": "easy-vqa"}.get(name, name)
                    check.value(
                        f"{file}: {row['']} {column}",
                        row[column],
                        lambda f=file, w=row[""], k=key: result(f)["peers"][w][k],
                    )  # type: ignore[misc]
    kinds = {
        "q·k / √D": "dot",
        "vᵀ tanh(W q + U k)": "additive",
        "what follows the scores alone": "after_scores",
    }
    for row in rows_of(section(text, "<!-- reads:", "<!-- end of reads")):
        sizes = "-".join([*re.findall(r"\d+", row[""]), row["positions"], row["width"]])
        kind = kinds[row["score"]]
        read = lambda how, s=sizes, k=kind: result("hard")["rows"][s][f"{k}_{how}"]
        check.value(f"{sizes} soft", row["soft"], lambda read=read: read("soft"))  # type: ignore[misc]
        check.value(f"{sizes} hard", row["hard"], lambda read=read: read("hard"))  # type: ignore[misc]
        check.value(
            f"{sizes} ratio", row["soft / hard"], lambda read=read: read("soft") / read("hard")
        )  # type: ignore[misc]
    check.done(100)


def case(file: str, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = result(file)["rows"][f"{kind}: {name}"]
    return found


def test_speed() -> None:
    check, text = Check(), page("docs/speed.md")
    for row in rows_of(section(text, "Attention, forward and backward:", "Training,")):
        name = row[""] if row[""].startswith("record") else f"{row['']}, forward + backward"
        one = case("bench-attention", "attention", name)
        assert (row["best peer"], row["by"]) == (
            one.get("peer", "–"),
            one.get("about") or one["ours"],
        )
        for column, key, scale in (
            ("ms", "milliseconds", 1),
            ("MiB", "mebibytes", 1),
            ("its ms", "peer_milliseconds", 1),
            ("ratio", "ratio", 1),
            ("of the limit", "of_limit", 100),
        ):
            check.value(f"{name} {column}", row[column], lambda one=one, key=key: one[key], scale)  # type: ignore[misc]
    for row in rows_of(section(text, "Training, thousands", "Decoding,")):
        one = case("bench-train", "train", row[""])
        rate = lambda who, one=one: one["all"][who]["tokens_per_second"]
        for printed, how in re.findall(rf"({NUMBER}) (with graphs|compiled)", row["ours"]):
            who = "saccade" if how == "with graphs" else "saccade, compiled"
            check.value(f"{row['']} {how}", printed, lambda rate=rate, who=who: rate(who), 1e-3)  # type: ignore[misc]
        peer, printed = re.fullmatch(rf"(.+) ({NUMBER})", row["best peer"]).groups()  # type: ignore[union-attr]
        check.value(f"{row['']} {peer}", printed, lambda rate=rate, peer=peer: rate(peer), 1e-3)  # type: ignore[misc]
        others = {
            who: rate(who)
            for who, found in one["all"].items()
            if not who.startswith("saccade") and "failed" not in found
        }
        assert peer == max(others, key=lambda who: others[who]), "the best peer"
        check.value(f"{row['']} GiB", row["GiB"], lambda one=one: one["mebibytes"] / 1024)  # type: ignore[misc]
        check.value(f"{row['']} ratio", row["ratio of times"], lambda one=one: one["ratio"])  # type: ignore[misc]
    for row in rows_of(section(text, "Decoding, tokens per second", "<!-- end")):
        one = case("bench-decode-gpu", "decode", row[""])
        for column, key in (("saccade", "milliseconds"), ("transformers", "peer_milliseconds")):
            check.value(
                f"{row['']} {column}", row[column], lambda one=one, key=key: 32_000 / one[key]
            )  # type: ignore[misc]
    for row in rows_of(section(text, "that nobody else used", "Made by")):
        for column in list(row)[1:]:
            kind = {"float32": "fp32", "int8": "int8"}[row[""]]
            check.value(
                f"{column} {kind}",
                row[column],
                lambda c=column, k=kind: (
                    1 / case("bench-decode-cpu", "decode", f"{c}, {k}")["ratio"]
                ),
            )  # type: ignore[misc]
    check.done(120)


def test_depth_and_foreign() -> None:
    check = Check()
    for row in rows_of(section(page("docs/tables.md"), "## Depth", "\n## ")):
        for column in list(row)[1:]:
            key = f"{column.lower()}-{row['']}-loss_dev"
            check.value(key, row[column], lambda key=key: result("deep")["figures"][key])  # type: ignore[misc]
    keys = ("closed_ms", "open_ms", "weights_of_a_layer_ms", "kept_mb", "all_weights_mb")
    for row in rows_of(section(page("docs/foreign-models.md"), "differ by some 10 %:", "Made by")):
        for column, key in zip(list(row)[1:], keys, strict=True):
            check.value(
                f"{row['']} {key}",
                row[column],
                lambda r=row, k=key: result("foreign-cpu")["rows"][r[""].strip("`")][k],
            )  # type: ignore[misc]
    check.done(19)


COLUMNS = {
    "early loss": "early_loss",
    "final loss": "final_loss",
    "final dev loss": "final_loss",
    "loss on the test set": "test_loss",
    "loss in use": "test_loss",
    "loss of the masked model": "masked_loss",
    "final loss, deep": "deep_loss",
    "BLEU, deep": "deep_bleu",
    "BLEU": "bleu",
    "alignment error": "aer",
    "updates to a dev loss of 0.5": "reached",
    "parameters": "parameters",
    "operations in all": "operations",
    "final loss, equal seconds": "loss_seconds",
    "BLEU, equal seconds": "bleu_seconds",
    "updates in these seconds": "updates",
    "milliseconds for one sentence": "latency",
    "words/s, many sentences": "words_per_second",
    "same translation, memory shuffled (%)": "same_memory",
    "largest difference of log p": "difference_memory",
    "same translation, source shuffled (%)": "same_source",
    "largest difference of log p there": "difference_source",
    "accuracy": "accuracy",
    "score": "score",
}
ROWS = {
    "hard, with soft rows": "hard",
    "hard alone": "hard-alone",
    "bahdanau (recurrent reader)": "bahdanau",
    "luong (recurrent reader)": "luong",
    "luong, local window": "luong-local",
    "transformer without positions": "transformer-no-position",
    "convs2s (convolutional reader)": "convs2s",
    "masked language model, no labels": "masked",
}
WORDS = (
    (r"^(\d+) heads?$", r"\1"),
    (r"^LSTM from scratch", "rnn"),
    (r"^Transformer from scratch", "scratch"),
    (r"^Transformer, pretrained", "pretrained"),
)
WORDS += (
    (", 500 labels", "-few"),
    (", 4,000 labels", "-many"),
    (", width ", "-"),
    (r"(\d+),000$", r"\1k"),
    (", ", "-"),
    (" ", "-"),
)


def key_of(title: str) -> str:
    """The name of a row in a result file, from its title."""
    if title in ROWS:
        return ROWS[title]
    for pattern, instead in WORDS:
        title = re.sub(pattern, instead, title)
    return title


def test_claims() -> None:
    check = Check()
    sections = page("docs/claims.md").split("\n## ")[1:]
    for text in sections:
        [file] = re.findall(r"results/(claim-[a-z]+)\.json", text)
        figures = result(file)["figures"]
        rows = rows_of(text)
        assert {key_of(row[""]) for row in rows} == {
            row for row in result(file)["rows"] if not row.startswith("rank_correlation")
        }
        for row in rows:
            for column in list(row)[1:]:
                if column == "metric":
                    assert row[column] == figures[f"{key_of(row[''])}.metric"][0]
                    continue
                key = f"{key_of(row[''])}.{COLUMNS[column]}"
                if row[column] == "–":
                    assert not figures.get(key), key
                check.value(f"{file}: {key}", row[column], lambda f=figures, key=key: f[key])  # type: ignore[misc]
    assert len(sections) == 9
    check.done(300)


def of(file: str, *keys: str) -> list[tuple[str, str]]:
    return [(file, key) for key in keys]


TIME = ("window", "linformer", "convolution", "linear", "big-bird", "performer", "full")
# a sentence, each number of which is a group, and the values that it prints
PROSE: list[tuple[str, str, list[tuple[str, str]]]] = [
    (
        "docs/tables.md",
        r"window (N), Linformer (N), convolution (N), linear (N),\s+Big Bird (N), Performer (N); full attention (N), and (N) over the last doubling",
        [*of("table-efficient", *(f"{row}.exponent_time" for row in TIME), "full.exponent_last")],
    ),
    (
        "docs/tables.md",
        r"exponents (N) and (N) \(LSTM,\s+both ways and causal\), (N) and (N), and (N) for causal attention",
        of("table-efficient-recurrent", "lstm.exponent_time", "lstm-causal.exponent_time", "transformer-xl.exponent_time", "full-causal.exponent_time", "full-causal.exponent_last"),
    ),
    (
        "docs/tables.md",
        r"causal (N) \(Transformer-XL\), (N) \(attention\), (N) \(LSTM\); masked (N) \(LSTM",
        of("table-efficient-recurrent", "transformer-xl.final_loss", "full-causal.final_loss", "lstm-causal.final_loss", "lstm.final_loss"),
    ),
    (
        "docs/tables.md",
        r"\(window (N), Big Bird (N), Linformer (N), Performer (N), full (N)\)",
        of("table-efficient-cpu", *(f"{row}.exponent_time" for row in ("window", "big-bird", "linformer", "performer", "full"))),
    ),
    (
        "docs/tables.md",
        r"\((N) and (N) against (N) and (N)\); ConvS2S \((N)\) and the pre-norm Transformer \((N)\) lead, and three together give (N)",
        of("table-translation", *(f"{row}.bleu_en_de" for row in ("bahdanau", "luong", "fixed-first", "fixed-context", "convs2s", "transformer", "ensemble"))),
    ),
    (
        "docs/tables.md",
        r"stay at (N) and (N), as do the deep LSTMs of Deep-Att \((N)\)",
        of("table-translation", "transformer-base.bleu_en_de", "transformer-big.bleu_en_de", "deep-att.bleu_en_de"),
    ),
    (
        "docs/tables.md",
        r"learn \*fastest\* here \((N) to (N) against (N)\)",
        of("table-modifications", "evolved.final_loss", "light-convolution.final_loss", "vanilla.final_loss"),
    ),
    ("docs/tables.md", r"rank correlations (N) and (N)\)\. The order of the final losses agrees little \((N)\), and the orders of sentiment \((N)\) and of\s+BLEU \((N)\)",
     of("table-modifications", *(f"rank_correlation.{key}" for key in ("parameters", "operations_per_update", "final_loss", "accuracy", "bleu")))),
    ("docs/tables.md", r"(N) is reached by the frequency of the characters alone", of("deep", "by_frequency")),
    ("docs/speed.md", r"Of (\d+) tests, (\d+) passed and (\d+) failed", of("kernels-gpu", "tests", "passed", "failed")),
]  # fmt: skip


@pytest.mark.parametrize(("where", "sentence", "sources"), PROSE)
def test_prose(where: str, sentence: str, sources: list[tuple[str, str]]) -> None:
    text = " ".join(page(where).split())
    found = re.findall(sentence.replace("(N)", f"({NUMBER})"), text)
    assert len(found) == 1, "the sentence is not on the page, or twice"
    printed = [found[0]] if isinstance(found[0], str) else list(found[0])
    check = Check()
    for text, (file, key) in zip(printed, sources, strict=True):
        check.value(
            f"{file}: {key}",
            text,
            lambda f=file, k=key: statistics.fmean(values(result(f)["figures"][k])),
        )  # type: ignore[misc]
    check.done(len(sources))


def values(value: Any) -> Iterator[float]:
    yield from (value if isinstance(value, list) else [value])


def test_prose_of_additive_scores() -> None:
    check, one = Check(), case("bench-attention", "attention", "additive, forward")
    [(took, share)] = re.findall(
        rf"Additive scores take ({NUMBER}) ms in forward: {NUMBER} T tanh per second, ({NUMBER}) %",
        " ".join(page("docs/speed.md").split()),
    )
    check.value("ms", took, lambda: one["milliseconds"])
    check.value("share", share, lambda: one["of_limit"], 100)
    check.done(2)


def test_prose_of_tables_has_no_other_decimal() -> None:
    """Every number with a decimal point in the paragraphs of docs/tables.md is one of those that are looked up above."""
    text = page("docs/tables.md")
    for where, sentence, _ in PROSE:
        if where == "docs/tables.md":
            text = re.sub(re.sub(" ", r"\\s+", sentence.replace("(N)", NUMBER)), "", text)
    text = re.sub(r"^\|.*$|`[^`]*`|\]\([^)]*\)|^    .*$", "", text, flags=re.M)
    assert set(re.findall(r"\d+\.\d+", text)) <= {"0.019"}  # the spread of the baseline
    assert agrees(
        "0.019", statistics.stdev(result("table-modifications")["figures"]["vanilla.final_loss"])
    )
