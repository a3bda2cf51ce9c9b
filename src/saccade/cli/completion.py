"""What the shell proposes at a TAB: recipes, keys and their values, runs, slots and sets; nothing here loads PyTorch."""

from pathlib import Path

import typer

Proposals = list[str] | list[tuple[str, str]]
TABLES = {
    "modifications": "of a Transformer: loss, fine-tuning, translation (Narang et al. 2021)",
    "efficient": "time, memory and loss of cheaper attention against length",
    "translation": "every system that translates, each also as an ensemble of its seeds (Vaswani et al. 2017)",
    "positions": "position encodings beyond the lengths they were trained on",
    "heads": "1 to 16 heads at equal parameters",
    "barriers": "MLP, residual, norm, position and causal mask left out one by one",
    "norms": "layer, RMS, batch and no norm, before and after each part",
    "scores": "scores of attention by their width (Britz et al. 2017)",
    "hard": "soft, sparse and hard attention: how fast each learns",
    "lstm": "an LSTM and a Transformer at equal parameters, updates and seconds",
    "shuffle": "whether a decoder notices that its memory is shuffled",
    "entailment": "pairs of sentences with and without pretraining",
    "tasks": "every task by a recurrent model and by a Transformer",
}

BENCHES = {
    "attention": "mechanisms through `attend`, forward and with gradients, beside SDPA and FlexAttention",
    "train": "updates of a GPT, a Transformer and Bahdanau's model, beside plain ones and those of installed packages",
    "decode": "tokens per second, greedy and by beam, beside installed packages",
    "length": "attention and its cheaper relatives over ever longer texts",
    "backends": "all backends of `attend` against each other, and their errors",
}


def figure_names(incomplete: str) -> list[tuple[str, str]]:
    """What can be drawn."""
    from ..teaching.draw import FIGURES

    return [(name, about) for name, (_, about) in FIGURES.items() if name.startswith(incomplete)]


def deck_names(incomplete: str) -> list[tuple[str, str]]:
    """The lectures' decks, and their slips."""
    from ..teaching.lectures import SLIPS, data

    return [
        row
        for row in ({**data()["decks"], SLIPS: "where slides slip"}).items()
        if row[0].startswith(incomplete)
    ]


def bench_names(incomplete: str) -> list[tuple[str, str]]:
    return [row for row in BENCHES.items() if row[0].startswith(incomplete)]


def recipe_names(incomplete: str) -> list[tuple[str, str]]:
    """The recipes that come with saccade, and YAML files here."""
    from ..config.index import recipe_files

    own = [(str(path), "your recipe") for path in sorted(Path().glob("*.yaml"))]
    known = [
        (path.stem, path.read_text(encoding="utf-8").partition("\n")[0][2:])
        for path in recipe_files().values()
    ]
    return [row for row in own + known if row[0].startswith(incomplete)]


def settings(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """`key=value`: the keys with their meaning, and once one is chosen, what it can be set to."""
    from ..config import index

    before = [
        str(word) for word in context.params.get("settings") or context.params.get("words") or ()
    ]
    if before[-1:] == ["="]:  # bash makes three words of key=value
        before.pop()
    bare = before[-1] if before and "=" not in before[-1] else ""
    if index.values(bare):
        return [(value, "") for value in index.values(bare) if value.startswith(incomplete)]
    key, equals, value = incomplete.partition("=")
    keys = list(index.keys(key))
    if equals or len(keys) == 1:
        key, what = (key, "") if equals else keys[0]
        return [(f"{key}={one}", what) for one in index.values(key) if one.startswith(value)]
    return [(f"{key}=", what) for key, what in keys]


def recipes_and_settings(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """What `compare` takes."""
    return recipe_names(incomplete) + settings(context, incomplete)


def run_folders(incomplete: str) -> list[str]:
    """Run and model folders below runs/."""

    from ..system.run_summary import find_runs

    return [path for path in find_runs("runs") if path.startswith(incomplete)]


def slot_names(incomplete: str) -> list[str]:
    """Slots of the catalogue, and `recipes`."""
    from ..config.index import slots

    return [name for name in ("recipes", *slots()) if name.startswith(incomplete)]


def score_names(incomplete: str) -> list[tuple[str, str]]:
    return members("scores", incomplete)


def normalizer_names(incomplete: str) -> list[tuple[str, str]]:
    return members("normalizers", incomplete)


def mask_names(incomplete: str) -> list[tuple[str, str]]:
    return members("masks", incomplete)


def members(slot: str, incomplete: str) -> list[tuple[str, str]]:
    """The names of a slot, each with its formula."""
    from ..config.index import rows

    return [
        (row["name"], row["what"]) for row in rows(slot, None) if row["name"].startswith(incomplete)
    ]


def set_names(incomplete: str) -> list[tuple[str, str]]:
    """The sets that can be fetched."""
    from ..data.sets import has_no_download, sets

    return [
        (name, row["about"])
        for name, row in sets().items()
        if name.startswith(incomplete) and not has_no_download(name)
    ]


def devices(incomplete: str) -> list[str]:
    return [name for name in ("auto", "cpu", "cuda", "mps") if name.startswith(incomplete)]


def precisions(incomplete: str) -> list[str]:
    return [name for name in ("float32", "bf16", "int8") if name.startswith(incomplete)]


def table_names(incomplete: str) -> list[tuple[str, str]]:
    """The tables that can be made."""
    return [(name, about) for name, about in TABLES.items() if name.startswith(incomplete)]


def row_names(context: typer.Context, incomplete: str) -> list[str]:
    """The rows of a table that are members of a slot."""
    from ..config.index import packaged

    slot = {"modifications": "modifications", "translation": "models", "positions": "positions"}
    rows = packaged()["slots"].get(slot.get(str(context.params.get("name")), ""), [])
    return [row["name"] for row in rows if row["name"].startswith(incomplete)]
