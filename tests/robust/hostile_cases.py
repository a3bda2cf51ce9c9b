"""Model folders that an attacker wrote: each case changes a good folder, and the manifest is written to match."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Change = Callable[[Path], object]
SMALL = {"heads": 2, "depth": 1, "dim": 8, "hidden": 8, "dropout": 0.0}
REVIEWS = "a good film\tgood\na bad film\tbad\ngood fun\tgood\nno fun at all\tbad\n"
TAGGED = "the\tDET\ncat\tNOUN\n\na\tDET\ndog\tNOUN\n\n"
COMMANDS = {
    "words": ["translate", "the cat saw a dog"],
    "pieces": ["translate", "the cat saw a dog"],
    "labels": ["classify", "a good film"],
    "tags": ["tag", "in.txt"],
    "language": ["generate", "the", "--limit", "5"],
    "segments": ["generate", "the", "--limit", "5"],
    "pictures": ["classify", "in.png"],
    "captions": ["caption", "in.png", "--max-length", "5"],
    "answers": ["answer", "in.png", "what color is it ?"],
    "copies": ["reconstruct", "in.png"],
    "nodes": ["evaluate", "in.jsonl"],
}
GRAPH = '{"nodes": ["red", "blue", "green"], "labels": ["red", "blue", null], "edges": [[0, 1], [1, 2, "friend"]]}'


def make_folders(root: Path) -> dict[str, Path]:
    """A good model folder of each kind, untrained."""
    from saccade import api
    from saccade.training.checkpoints import RunFolder

    (root / "reviews.tsv").write_text(REVIEWS)
    (root / "tagged.tsv").write_text(TAGGED)
    (root / "text.txt").write_text("the cat saw the dog\n" * 4)
    book = {
        "train": "phrasebook:train",
        "dev": "phrasebook:dev",
        "options": {"train": 20, "dev": 5, "test": 5},
    }
    words = {"kind": "words"}
    recipes: dict[str, dict[str, Any]] = {
        "words": {
            "data": book,
            "model": {"family": "bahdanau", "dim": 8, "hidden": 8},
            "vocabulary": words,
        },
        "pieces": {
            "data": book,
            "model": {"family": "transformer", **SMALL},
            "vocabulary": {"kind": "bpe", "size": 300},
        },
        "labels": {
            "task": "classification",
            "data": {"train": str(root / "reviews.tsv")},
            "vocabulary": words,
        },
        "tags": {
            "task": "tagging",
            "data": {"train": str(root / "tagged.tsv")},
            "vocabulary": words,
        },
        "language": {
            "task": "language-modelling",
            "data": {"train": str(root / "text.txt")},
            "vocabulary": words,
        },
    }
    shapes = {
        "train": "shapes:train",
        "dev": "shapes:dev",
        "options": {"train": 16, "dev": 2, "test": 2, "size": 32},
    }
    images = {"family": "cnn", "dim": 4, "depths": [1, 1], "stem_stride": 2}
    graphs = {
        "train": "graphs:train",
        "dev": "graphs:dev",
        "options": {"train": 20, "dev": 2, "test": 2},
    }
    reading = {"family": "bahdanau", "dim": 8, "hidden": 8, "image_encoder": images}
    asked = {"family": "transformer-encoder", **SMALL, "image_encoder": images}
    linked = {"mixer": "graph-attention", "position": "edges", "position_embedding": "none"}
    recipes |= {
        "segments": {
            **recipes["language"],
            "model": {"family": "transformer-xl", **SMALL, "memory": 8},
            "language": {"block": 8},
        },
        "pictures": {"task": "image-classification", "data": shapes, "model": images},
        "captions": {"task": "captioning", "data": shapes, "vocabulary": words, "model": reading},
        "answers": {"task": "questions", "data": shapes, "vocabulary": words, "model": asked},
        "copies": {
            "task": "autoencoding",
            "data": shapes,
            "model": images,
            "autoencoding": {"latent": 6, "width": 2},
        },
        "nodes": {"task": "node-classification", "data": graphs, "vocabulary": words},
    }
    recipes["nodes"]["model"] = {"family": "transformer-encoder", **SMALL, **linked}
    recipes["labels"]["model"] = recipes["tags"]["model"] = {
        "family": "transformer-encoder",
        **SMALL,
    }
    recipes["language"] |= {
        "model": {"family": "transformer-decoder", **SMALL},
        "language": {"block": 8},
    }
    found = {}
    for name, recipe in recipes.items():
        made = api.build({**recipe, "device": "cpu"})
        RunFolder(root, api.model_files(made)).save(name, made.model)
        found[name] = root / name
    return found


def make_inputs(root: Path) -> set[str]:
    """What the commands read beside a folder."""
    from PIL import Image

    (root / "in.txt").write_text("the cat\n")
    (root / "in.jsonl").write_text(GRAPH + "\n")
    Image.linear_gradient("L").resize((20, 20)).save(root / "in.png")
    return {str(path) for path in root.glob("in.*")}


def command(kind: str, folder: Path) -> list[object]:
    """The command that uses a folder of this kind."""
    verb, *rest = COMMANDS[kind]
    return [
        verb,
        folder,
        *(folder.parent / word if word.startswith("in.") else word for word in rest),
    ]


def seal(folder: Path) -> None:
    """Writes a manifest that fits whatever the files are now."""
    rows = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name != "manifest.json":
            content = path.read_bytes()
            rows[path.name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    if not (folder / "manifest.json").is_symlink():
        (folder / "manifest.json").write_text(json.dumps({"files": rows}))


def edit(name: str, change: Callable[[Any], Any]) -> Change:
    """Changes the JSON of a file; what `change` returns replaces it, where it returns something."""

    def work(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        new = change(value)
        (folder / name).write_text(json.dumps(value if new is None else new))

    return work


def put(path: str, value: Any) -> Callable[[Any], None]:
    """Sets `a.b.c` in nested values."""

    def work(tree: Any) -> None:
        *steps, last = path.split(".")
        for step in steps:
            tree = tree.setdefault(step, {}) if isinstance(tree.get(step, {}), dict) else tree
        tree[last] = value

    return work


def raw(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def configs() -> Iterator[tuple[str, str, Change]]:
    """Sizes, types and depths of config.json."""
    wild: list[Any] = [
        10**6,
        65536,
        16384,
        10**30,
        -1,
        0,
        1.5,
        1e308,
        "x",
        None,
        [],
        {},
        True,
        "\ud800",
        [10**6] * 10,
        {"name": "x"},
    ]
    for n, value in enumerate(wild):
        for key in ("dim", "hidden", "depth", "heads", "dropout"):
            yield f"config-{key}-{n}", "pieces", edit("config.json", put(f"model.{key}", value))
        yield f"config-seed-{n}", "words", edit("config.json", put("seed", value))
        yield f"config-task-{n}", "words", edit("config.json", put("task", value))
        yield f"config-family-{n}", "labels", edit("config.json", put("model.family", value))
        yield f"config-block-{n}", "language", edit("config.json", put("language.block", value))
    parts: list[tuple[str, str, Any]] = [
        ("pieces", "model.feedforward", {"name": "experts", "count": 1000}),
        ("pieces", "model.feedforward", {"name": "experts", "count": 10**6}),
        ("pieces", "model.feedforward", {"name": "product-keys", "keys": 1024}),
        ("pieces", "model.score", {"name": "additive", "hidden": 65536}),
        ("pieces", "model.score", {"name": "mlp", "hidden": 65536}),
        ("words", "model.score", {"name": "additive", "hidden": 65536}),
        ("pieces", "model.position_embedding", {"name": "learned", "max_len": 10**6}),
        ("pieces", "model.position", {"name": "shaw", "max_distance": 10**6}),
        ("pieces", "model.position", {"name": "t5", "buckets": 10**6}),
        ("pieces", "model.stack", {"name": "universal", "steps": 10**6}),
        ("labels", "model.embedding", {"name": "characters-cnn", "width": 65536}),
        ("labels", "model.pool", {"name": "attention", "hidden": 65536}),
        ("labels", "model.pool", {"name": "structured", "heads": 10**6}),
        ("language", "model.head", {"name": "mixture", "count": 10**6}),
    ]
    for n, (kind, key, value) in enumerate(parts):
        yield f"config-part-{n}", kind, edit("config.json", put(key, value))
    both = {"dim": 65536, "hidden": 65536, "depth": 1000, "heads": 1}
    for family in (
        "transformer",
        "bahdanau",
        "luong",
        "convs2s",
        "bytenet",
        "deep-rnn",
        "gnmt",
        "transformer-xl",
        "vaswani",
    ):
        big = {"family": family, **both}
        yield f"config-family-{family}", "words", edit("config.json", put("model", big))
        yield (
            f"config-deep-{family}",
            "words",
            edit("config.json", put("model", {"family": family, "depth": 1000})),
        )
    yield "config-long-string", "words", edit("config.json", put("data.train", "x" * 200_000_000))
    yield "config-long-key", "words", edit("config.json", put("x" * 1_000_000, 1))
    yield "config-ansi-key", "words", edit("config.json", put("\x1b]0;owned\x07\x1b[31mred", 1))
    yield "config-nested", "words", raw("config.json", b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
    yield "config-many", "words", edit("config.json", put("model.more", list(range(2_000_000))))
    yield "config-not-json", "words", raw("config.json", b"\xff\xfe\x00")
    yield "config-empty", "words", raw("config.json", b"")
    yield "config-list", "words", raw("config.json", b"[]")
    yield (
        "config-digits",
        "words",
        raw("config.json", b'{"saccade": 3, "seed": ' + b"9" * 1_000_000 + b"}"),
    )
    yield "config-surrogate", "words", edit("config.json", put("data.train", "\ud800"))
    yield "config-start-from", "words", edit("config.json", put("start_from", "/etc"))
    yield "config-version", "words", edit("config.json", put("saccade", 10**20))
    yield "config-version-1", "words", edit("config.json", put("saccade", 1))


def tokenizers() -> Iterator[tuple[str, str, Change]]:
    """Components that the tokenizers library would run: regexes, replacements, padding, broken maps."""

    def inside(key: str, value: Any, name: str = "source") -> Change:
        return edit("vocabularies.json", put(f"{name}.tokenizer.{key}", value))

    bomb = {
        "type": "Sequence",
        "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}] * 7,
    }
    every = {"type": "Replace", "pattern": {"Regex": ""}, "content": "a" * 10_000}
    patterns = (
        "(a+)+$",
        "(x*)*y",
        "(?=",
        "(" * 10_000,
        "[" * 100,
        "\\",
        "(?:a{0,60000}){60000}",
        "(?<=a*)b",
        "",
        "(a|a)*b" * 50,
    )
    split = {"type": "Split", "behavior": "Removed", "invert": True}
    for n, pattern in enumerate(patterns):
        yield (
            f"tok-regex-{n}",
            "words",
            inside("pre_tokenizer", {**split, "pattern": {"Regex": pattern}}),
        )
        yield (
            f"tok-replace-{n}",
            "words",
            inside(
                "normalizer", {"type": "Replace", "pattern": {"Regex": pattern}, "content": "b"}
            ),
        )
    normalizers: list[Any] = [
        bomb,
        every,
        {"type": "Prepend", "prepend": "a" * 1_000_000},
        {"type": "NFKD"},
    ]
    normalizers += [
        {"type": "Precompiled", "precompiled_charsmap": text}
        for text in ("", "AAAA", "////" * 100, "gAAAAA==")
    ]
    normalizers += [
        {"type": "Precompiled", "precompiled_charsmap": "/////w==" * 4},
        {"type": "nothing"},
        [],
        "x",
        3,
    ]
    normalizers += [{"type": "Sequence", "normalizers": [{"type": "Lowercase"}] * 100_000}]
    for n, one in enumerate(normalizers):
        yield f"tok-normalizer-{n}", "words", inside("normalizer", one)
    side: dict[str, Any] = {
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    for n, strategy in enumerate(
        ({"Fixed": 10**9}, {"Fixed": 2**63}, "BatchLongest", {"Fixed": -1})
    ):
        yield f"tok-padding-{n}", "words", inside("padding", {**side, "strategy": strategy})
    yield (
        "tok-padding-multiple",
        "words",
        inside("padding", {**side, "strategy": "BatchLongest", "pad_to_multiple_of": 10**9}),
    )
    cut = {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 10}
    yield "tok-truncation", "words", inside("truncation", cut)
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "a", "type_id": 0}}] * 1000,
        "pair": [],
        "special_tokens": {},
    }
    yield "tok-template", "words", inside("post_processor", template)
    for n, decoder in enumerate(
        (
            {"type": "Replace", "pattern": {"String": ""}, "content": "x" * 10_000},
            {"type": "Strip"},
            5,
        )
    ):
        yield f"tok-decoder-{n}", "pieces", inside("decoder", decoder)
    token = {
        "id": 9,
        "content": "",
        "single_word": False,
        "lstrip": True,
        "rstrip": True,
        "normalized": True,
        "special": True,
    }
    for n, added in enumerate(
        (
            [token],
            [{**token, "content": "the", "id": 10**6}],
            [{**token, "content": "\ud800"}],
            [3],
            {"a": 1},
        )
    ):
        yield f"tok-added-{n}", "words", inside("added_tokens", added)
    vocabularies: list[Any] = [
        {},
        [],
        None,
        {"<unk>": -1},
        {"<unk>": 2**70},
        {"<unk>": 1.5},
        {"<unk>": "1"},
        {"a": 0, "b": 0},
    ]
    for n, value in enumerate(vocabularies):
        yield f"tok-vocabulary-{n}", "words", inside("model.vocab", value)
    merges: list[Any] = [
        [["a", "zzzzz"]],
        ["a b c"],
        [[1, 2]],
        [["a"]],
        "x",
        [["a", "b"]] * 100_000,
        [["\ud800", "a"]],
    ]
    for n, value in enumerate(merges):
        yield f"tok-merges-{n}", "pieces", inside("model.merges", value)
    unigram = {"type": "Unigram", "unk_id": 10**6, "vocab": [["<pad>", 0.0]], "byte_fallback": True}
    for n, value in enumerate(
        ({"type": "WordPiece", "vocab": {}}, unigram, {"type": "x"}, 5, None)
    ):
        yield f"tok-model-{n}", "words", inside("model", value)
    for key, value in (
        ("dropout", 2.0),
        ("unk_token", "x" * 1000),
        ("continuing_subword_prefix", "a" * 10**6),
        ("fuse_unk", 3),
    ):
        yield f"tok-bpe-{key}", "pieces", inside(f"model.{key}", value)
    for n, kind in enumerate((3, None, "x", "bpe", "characters")):
        yield f"tok-kind-{n}", "words", edit("vocabularies.json", put("source.kind", kind))
    yield (
        "tok-ansi",
        "words",
        edit("vocabularies.json", renamed("\x1b]0;owned\x07\x1b[2J", "target")),
    )
    yield (
        "tok-ansi-label",
        "labels",
        edit("vocabularies.json", put("labels", ["\x1b[31mgood", "\x9b31mbad\n"])),
    )
    yield "tok-long-token", "words", edit("vocabularies.json", renamed("x" * 5_000_000, "target"))
    yield "tok-surrogate", "words", edit("vocabularies.json", renamed("\ud800", "target"))
    yield "tok-nested", "words", raw("vocabularies.json", b"[" * 100_000 + b"]" * 100_000)
    yield "tok-lists", "words", raw("vocabularies.json", b"[" + b"[]," * 5_000_000 + b"[]]")
    yield (
        "tok-astral",
        "words",
        raw("vocabularies.json", b'["' + "\U0001f600".encode() + b"x" * 60_000_000 + b'"]'),
    )
    for n, sizes in enumerate(
        (
            {"ratio": 1e300, "longest": 1},
            {"ratio": "x"},
            {"longest": 10**9},
            [],
            {"more": 1},
            {"ratio": -1},
        )
    ):
        yield f"tok-outputs-{n}", "words", edit("vocabularies.json", put("outputs", sizes))


def renamed(name: str, side: str) -> Callable[[Any], None]:
    """Gives every token that is no special another name: the name, and the number."""

    def work(tree: Any) -> None:
        vocabulary = tree[side]["tokenizer"]["model"]["vocab"]
        tree[side]["tokenizer"]["model"]["vocab"] = {
            token
            if token.startswith("<")
            else f"{name}{n}"
            if len(name) < 100
            else name[: -n - 1]: n
            for token, n in list(vocabulary.items())[: 12 if len(name) > 100 else None]
        }

    return work


def labels() -> Iterator[tuple[str, str, Change]]:
    odd: list[Any] = [
        [1, 2],
        ["a", None],
        [["a"], ["b"]],
        {"a": 1},
        "ab",
        3,
        None,
        [],
        ["a", "a"],
        ["a", "\ud800"],
        ["a", ""],
        [True, False],
    ]
    odd += [
        ["a"] * 100_000,
        ["x" * 10_000_000, "b"],
        ["a", "b", "c"],
        ["a\tb", "c\nd"],
        [1.5, "a"],
        ["a", "b\0"],
    ]
    for n, value in enumerate(odd):
        for kind in ("labels", "tags"):
            yield f"{kind}-{n}", kind, edit("vocabularies.json", put("labels", value))
    for n, several in enumerate((None, [], "x", 3)):
        yield (
            f"language-several-{n}",
            "language",
            edit("vocabularies.json", put("several", several)),
        )


def pictured() -> Iterator[tuple[str, str, Change]]:
    """Models of pictures, of graphs and of segments: sizes that no parameter tells, kinds of edges, models inside others."""
    sizes: list[Any] = [
        [4096, 4096],
        [1024, 1024],
        [0, 1],
        [-1, 5],
        "x",
        None,
        [32],
        [1.5, 2],
        [True, True],
        [10**9, 1],
        {},
    ]
    inner: list[Any] = [
        {"family": "vit", "dim": 65536},
        {"family": "vit", "depth": 10**6},
        {"family": "x"},
        3,
        None,
        {},
    ]
    for kind in ("pictures", "captions", "answers", "copies"):
        within = "model" if kind in ("pictures", "copies") else "model.image_encoder"
        for n, size in enumerate(sizes):
            yield f"pic-size-{n}-{kind}", kind, edit("vocabularies.json", put("image_size", size))
        for n, value in enumerate(inner):
            yield f"pic-model-{n}-{kind}", kind, edit("config.json", put(within, value))
        for n, value in enumerate([10**6, 65536, -1, 0, 1.5, "x", None, [10**6] * 10, [1] * 1000]):
            for key in ("dim", "depths", "stem_stride"):
                yield (
                    f"pic-{key}-{n}-{kind}",
                    kind,
                    edit("config.json", put(f"{within}.{key}", value)),
                )
    for n, value in enumerate([65536, 4096, 0, -1, 1.5, "x", None, []]):
        for key in ("latent", "width"):
            yield f"pic-{key}-{n}", "copies", edit("config.json", put(f"autoencoding.{key}", value))
    for n, value in enumerate([10**6, 65536, 16384, 0, "x"]):
        yield f"segments-memory-{n}", "segments", edit("config.json", put("model.memory", value))
    odd: list[Any] = [
        [[1]],
        [{"a": 1}],
        ["\ud800"],
        ["a"] * 10**6,
        "\x1b[31m",
        ["\x1b[31m", "b"],
        [1, 2],
        3,
        None,
        {"a": 1},
    ]
    for n, value in enumerate(odd):
        yield f"nodes-kinds-{n}", "nodes", edit("vocabularies.json", put("kinds", value))
        yield f"nodes-labels-{n}", "nodes", edit("vocabularies.json", put("labels", value))


def tensors() -> Iterator[tuple[str, str, Change]]:
    """Parameters that are no numbers, and headers that lie."""
    import torch
    from safetensors.torch import load_file, save_file

    def changed(work: Callable[[dict[str, Any]], object]) -> Change:
        def change(folder: Path) -> None:
            found = {
                name: one.clone() for name, one in load_file(folder / "model.safetensors").items()
            }
            work(found)
            save_file(found, folder / "model.safetensors")

        return change

    def fill(value: float) -> Callable[[dict[str, Any]], None]:
        return lambda found: (
            [one.fill_(value) for one in found.values() if one.is_floating_point()] and None
        )

    for kind in COMMANDS:
        for n, value in enumerate((float("nan"), float("inf"), 3e38)):
            yield f"st-value-{n}-{kind}", kind, changed(fill(value))
    yield (
        "st-one-nan",
        "words",
        changed(lambda found: next(iter(found.values())).view(-1)[:1].fill_(float("nan"))),
    )
    yield "st-extra", "words", changed(lambda found: found.update(more=torch.zeros(3)))
    yield "st-escape", "words", changed(lambda found: found.update({"\x1b[31m": torch.zeros(3)}))
    yield "st-lacking", "words", changed(lambda found: found.pop(sorted(found)[0]))
    for dtype in (torch.int8, torch.float64, torch.bool, torch.complex64, torch.bfloat16):
        yield (
            f"st-{dtype}",
            "words",
            changed(
                lambda found, to=dtype: found.update(
                    {name: one.to(to) for name, one in found.items()}
                )
            ),
        )
    yield (
        "st-shapes",
        "words",
        changed(
            lambda found: found.update({name: one.unsqueeze(0) for name, one in found.items()})
        ),
    )

    def header(
        size: int | None,
        text: bytes | None = None,
        change: Callable[[dict[str, Any]], object] | None = None,
    ) -> Change:
        def work(folder: Path) -> None:
            content = (folder / "model.safetensors").read_bytes()
            there = struct.unpack("<Q", content[:8])[0]
            values = json.loads(content[8 : 8 + there])
            if change is not None:
                change(values)
            new = json.dumps(values).encode() if text is None else text
            body = content[8 + there :]
            (folder / "model.safetensors").write_bytes(
                struct.pack("<Q", len(new) if size is None else size) + new + body
            )

        return work

    def first(values: dict[str, Any], **facts: Any) -> None:
        next(one for name, one in values.items() if name != "__metadata__").update(facts)

    for n, size in enumerate((0, 2**63, 2**64 - 1, 10**9, 1)):
        yield f"st-header-size-{n}", "words", header(size)
    for n, text in enumerate(
        (
            b"",
            b"{}",
            b"[]",
            b"{" * 1000,
            b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4]}}',
        )
    ):
        yield f"st-header-{n}", "words", header(None, text)
    for n, facts in enumerate(
        (
            {"shape": [10**18, 10**18]},
            {"shape": [-1]},
            {"data_offsets": [0, 10**15]},
            {"data_offsets": [8, 0]},
            {"dtype": "X"},
        )
    ):
        yield (
            f"st-facts-{n}",
            "words",
            header(None, None, lambda values, facts=facts: first(values, **facts)),
        )
    for n, size in enumerate((0, 7, 100)):
        yield (
            f"st-cut-{n}",
            "words",
            lambda folder, size=size: os.truncate(folder / "model.safetensors", size),
        )


def files() -> Iterator[tuple[str, str, Change]]:
    """Links, pipes, devices and folders where files should be."""

    def replace(name: str, make: Callable[[Path], object]) -> Change:
        def work(folder: Path) -> None:
            (folder / name).unlink()
            make(folder / name)

        return work

    def moved_out(name: str) -> Change:
        def work(folder: Path) -> None:
            outside = folder.parent / f"{folder.name}-{name}"
            os.replace(folder / name, outside)
            (folder / name).symlink_to(outside)

        return work

    for name in ("manifest.json", "config.json", "vocabularies.json", "model.safetensors"):
        yield f"file-fifo-{name}", "words", replace(name, os.mkfifo)
        for device in ("/dev/zero", "/dev/random", "/dev/stdin", "/etc/passwd", "/nowhere"):
            yield (
                f"file-link-{name}-{Path(device).name}",
                "words",
                replace(name, lambda path, to=device: path.symlink_to(to)),
            )
        yield f"file-loop-{name}", "words", replace(name, lambda path: path.symlink_to(path.name))
        yield f"file-folder-{name}", "words", replace(name, lambda path: path.mkdir())
        yield f"file-outside-{name}", "words", moved_out(name)


def manifests() -> Iterator[tuple[str, str, Change]]:
    row = {"sha256": "0" * 64, "bytes": 1}
    names = (
        "../reviews.tsv",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a/b",
        "\0",
        "\ud800",
        "x" * 5000,
        "\x1b[31m",
    )
    odd: list[Any] = [{"files": {name: row}} for name in names]
    odd += [
        {"files": {"config.json": value}}
        for value in ({}, [], None, {"sha256": 1, "bytes": "x"}, {"sha256": "", "bytes": 10**400})
    ]
    odd += [
        {"files": []},
        {"files": None},
        {"files": {}},
        [],
        None,
        3,
        {"files": {str(n): row for n in range(200_000)}},
    ]
    for n, value in enumerate(odd):
        yield f"manifest-{n}", "words", raw("manifest.json", json.dumps(value).encode())
    yield "manifest-nested", "words", raw("manifest.json", b'{"files":' * 100_000)
    yield (
        "manifest-large",
        "words",
        raw("manifest.json", b'{"files": {}, "x": "' + b"x" * 300_000_000 + b'"}'),
    )


def all_cases() -> list[tuple[str, str, Change]]:
    return [*configs(), *tokenizers(), *labels(), *pictured(), *tensors(), *files(), *manifests()]


def crafted(case: tuple[str, str, Change], good: dict[str, Path], into: Path) -> Path:
    """The folder of a case."""
    name, kind, change = case
    folder = into / f"{len(name)}-{name.replace('/', '-')}"
    shutil.copytree(good[kind], folder)
    change(folder)
    if not name.startswith(("manifest", "file-")):
        seal(folder)
    return folder


def mutated(good: dict[str, Path], folder: Path, number: int) -> tuple[str, bool]:
    """A good folder with one random change, its kind, and whether the manifest was written to match; the same number, the same change."""
    chance = random.Random(number)
    kind = chance.choice(sorted(good))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good[kind], folder)
    name = chance.choice(["config.json", "vocabularies.json", "model.safetensors", "manifest.json"])
    content = bytearray((folder / name).read_bytes())
    sealed = name != "manifest.json" and chance.random() < 0.75
    if name.endswith(".json") and sealed and chance.random() < 0.6:
        content = bytearray(json.dumps(mutated_tree(json.loads(content), chance)).encode())
    else:
        for _ in range(chance.choice([1, 1, 2, 8])):
            at = chance.randrange(len(content) or 1)
            how = chance.randrange(5)
            if how == 0:
                content[at : at + 1] = bytes([chance.randrange(256)])
            elif how == 1:
                del content[at : at + chance.randrange(1, 64)]
            elif how == 2:
                content[at:at] = content[at : at + chance.randrange(1, 64)]
            elif how == 3 and content:
                content[at % len(content)] ^= 1 << chance.randrange(8)
            else:
                content[at:at] = chance.choice(
                    [b"9" * 6, b"\0", b'"', b"-", b"1e6", b"\xff", b"\\u001b", b"\\ud800"]
                )
    (folder / name).write_bytes(bytes(content))
    if sealed:
        seal(folder)
    return kind, sealed


def mutated_tree(tree: Any, chance: random.Random) -> Any:
    """A value somewhere in nested values, exchanged, removed or repeated."""
    found = copy.deepcopy(tree)
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        inner = (
            list(value.items())
            if isinstance(value, dict)
            else list(enumerate(value))
            if isinstance(value, list)
            else []
        )
        for key, one in inner[:40]:
            places.append((value, key))
            walk(one)

    walk(found)
    holder, key = chance.choice(places)
    wild: list[Any] = [
        0,
        -1,
        10**6,
        65536,
        2**70,
        1.5,
        1e300,
        "",
        "x" * 10_000,
        "\x1b[2J",
        "\ud800",
        None,
        True,
        [],
        {},
        [[]],
        {"name": "x"},
    ]
    if chance.random() < 0.15:
        del holder[key]
    else:
        holder[key] = chance.choice(wild)
    return found
