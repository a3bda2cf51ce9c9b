"""Captioning: BLEU of several references, pixels shared by captions, where words look, and training with changed pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from saccade import api
from saccade.data.corpora import CAPTIONED, read
from saccade.data.image_decoding import fit, fit_box
from saccade.data.image_examples import Captioned, Named, Picture
from saccade.system.build import prepared
from saccade.tasks.captioning import Captioning, Forced, is_on
from saccade.tasks.text_scores import CaptionScores, caption_bleu, caption_words, ngram_counts
from saccade.training.loop import Watcher
from support import error_of

CNN = {"family": "cnn", "dim": 4, "depths": [1, 1], "stem_stride": 4}
MODEL: dict[str, Any] = {
    "family": "bahdanau",
    "dim": 8,
    "hidden": 8,
    "dropout": 0.0,
    "image_encoder": CNN,
}
COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def recipe(where: Path | str = "shapes:train", **changed: Any) -> dict[str, Any]:
    data = {"train": str(where), "dev": str(where), "test": str(where)}
    if where == "shapes:train":
        data = {"train": "shapes:train", "dev": "shapes:dev", "test": "shapes:test"}
        data["options"] = {"train": 24, "dev": 6, "test": 8, "size": 32}  # type: ignore[assignment]
    training = {
        "updates": 6,
        "tokens": 100,
        "evaluate_every": 3,
        "checkpoint_every": 3,
        "learning_rate": 0.01,
        "threads": 1,
    }
    made = {"task": "captioning", "device": "cpu", "vocabulary": {"kind": "words"}, "model": MODEL}
    made |= {
        "data": data | changed.pop("data", {}),
        "training": training | changed.pop("training", {}),
    }
    return made | changed


@pytest.fixture
def colors(tmp_path: Path) -> Path:
    """Three pictures, with two, one and three captions."""
    lines = []
    for (name, color), count in zip(COLORS.items(), (2, 1, 3), strict=True):
        Image.new("RGB", (24, 16), color).save(tmp_path / f"{name}.png")
        lines.append(
            {
                "image": f"{name}.png",
                "captions": [f"a {name} picture .", f"it is {name}", f"so {name} ,"][:count],
            }
        )
    path = tmp_path / "captions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# --- scores


def test_bleu_of_several_references_by_hand() -> None:
    references = ["The cat is on the mat .", "There is a cat on the mat ."]
    found = CaptionScores(["the cat sat on the mat"], [references]).metrics()
    assert [found[f"bleu_{n}"] for n in (1, 2, 3, 4)] == pytest.approx(
        [500 / 6, 100 * math.sqrt(0.5), 50.0, 0.0]
    )
    assert ngram_counts(caption_words("the cat sat on the mat"), [caption_words(one) for one in references]) == [
        *(5, 3, 1, 0), *(6, 5, 4, 3), 6, 6,
    ]  # fmt: skip


def test_an_ngram_counts_as_often_as_the_reference_that_has_it_most() -> None:
    assert ngram_counts(["the"] * 3, [["the", "cat"], ["the", "the", "dog"]])[:2] == [2, 1]


def test_the_closest_reference_is_the_length_and_of_two_the_shorter() -> None:
    lengths = [
        ngram_counts(["a"] * 4, [["a"] * size for size in sizes])[-1]
        for sizes in ((3, 5), (5, 3), (7, 5), (4, 9))
    ]
    assert lengths == [3, 3, 5, 4]
    short = CaptionScores(["a b c"], [["a b c d"]]).metrics()
    assert short["bleu_3"] == pytest.approx(100 * math.exp(1 - 4 / 3))


def test_words_are_compared_in_lowercase_and_without_punctuation() -> None:
    assert caption_words("A man 's T-shirt , and a `` dog '' . -- _") == [
        "a",
        "man",
        "s",
        "t-shirt",
        "and",
        "a",
        "dog",
    ]
    found = CaptionScores(["a dog", "a cat"], [["two dogs", "A dog ."], ["a dog"]])
    assert found.metrics()["exact"] == 50.0, "any of the references"


texts = st.lists(st.sampled_from("abcde"), min_size=1, max_size=9).map(" ".join)


@given(st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_bleu_is_that_of_sacrebleu_without_smoothing(rows: list[tuple[str, list[str]]]) -> None:
    outputs, references = [row[0] for row in rows], [row[1] for row in rows]
    found = CaptionScores(outputs, references)
    streams: Any = [[each[n] if n < len(each) else None for each in references] for n in range(3)]
    for n in (1, 2, 3, 4):
        peer = sacrebleu.BLEU(max_ngram_order=n, smooth_method="none", tokenize="none", force=True)
        assert found.metrics()[f"bleu_{n}"] == pytest.approx(
            peer.corpus_score(outputs, streams).score
        )
    assert found.metrics()["bleu"] == found.sacrebleu
    for name, (counts, score) in found.sums().items():
        assert score(counts.sum(0)) == pytest.approx(found.metrics()[name]), name


def test_bleu_without_the_penalty_and_the_penalty_by_hand() -> None:
    found = CaptionScores(["a b c"], [["a b c d"]]).metrics()
    assert found["brevity_penalty"] == pytest.approx(math.exp(1 - 4 / 3))
    assert found["bleu_3_unpenalized"] == pytest.approx(100.0)
    long = CaptionScores(["a b c d e"], [["a b c d"]]).metrics()
    assert long["brevity_penalty"] == 1.0
    assert long["bleu_1_unpenalized"] == long["bleu_1"] == pytest.approx(80.0)


def test_cider_d_by_hand() -> None:
    """Two pictures. An n-gram of both has weight 0, of one ln 2; the cosines of the first caption are those of `red dog` and `a red dog`."""
    outputs, references = ["a red dog", "a cat"], [["a red dog", "a dog"], ["a black cat"]]
    found = CaptionScores(outputs, references)
    # 1-grams: red, dog (a: weight 0); 2-grams: a-red, red-dog; 3-grams: a-red-dog; no 4-grams
    same = (1 + 1 + 1 + 0) / 4
    # dog of red, dog; a-dog is not in the output
    shorter = (1 / math.sqrt(2) + 0 + 0 + 0) / 4 * math.exp(-1 / (2 * 6**2))
    other = (1 / math.sqrt(2) + 0 + 0 + 0) / 4 * math.exp(-1 / (2 * 6**2))  # cat of black, cat
    assert found.cider[:, 0] == pytest.approx([10 * (same + shorter) / 2, 10 * other])
    assert found.metrics()["cider"] == pytest.approx(
        100 * (10 * (same + shorter) / 2 + 10 * other) / 2
    )


@given(st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=3)), min_size=2, max_size=5))
def test_cider_d_is_that_of_the_coco_code(rows: list[tuple[str, list[str]]]) -> None:
    scorer = pytest.importorskip(
        "pycocoevalcap.cider.cider_scorer", reason="pip install pycocoevalcap"
    )
    peer = scorer.CiderScorer()
    for output, references in rows:
        peer += (output, references)
    mean, each = peer.compute_score()
    found = CaptionScores([row[0] for row in rows], [row[1] for row in rows])
    assert found.cider[:, 0] == pytest.approx(each)
    assert found.metrics()["cider"] == pytest.approx(100 * mean)


def test_an_ngram_repeated_in_an_output_is_clipped_by_cider() -> None:
    many, once = (
        CaptionScores([text, "z"], [["a b"], ["c d"]]).cider[0, 0] for text in ("a a a a", "a")
    )
    assert many < once


def test_the_control_scores_each_caption_against_another_picture(colors: Path) -> None:
    system, _ = prepared(api.recipes.recipe(recipe(colors)))
    examples = system.read("train")

    class Perfect(Captioning):
        def outputs(
            self, model: Any, given: Any, *more: Any, **search: Any
        ) -> tuple[list[str], int]:
            return [one.captions[0] for one in given], 0

    system.task.__class__ = Perfect
    found = system.task.evaluate(system.model, examples)
    moved = CaptionScores(
        [examples[n].captions[0] for n in (1, 2, 0)], [one.captions for one in examples]
    ).metrics()
    assert found["bleu_1"] == 100.0
    assert found["cider_other_picture"] == moved["cider"] < found["cider"]
    assert found["bleu_4_other_picture"] == moved["bleu_4"]


def test_the_chance_of_pointing_is_the_share_of_positions_on_the_objects() -> None:
    examples = read(CAPTIONED, "shapes:test", {"train": 1, "dev": 1, "test": 6, "size": 32})
    system = api.build(recipe(), examples)
    found, rows = system.task.pointing(system.model, examples), 32 // 8
    share, words = 0.0, 0
    for one in examples:
        for thing in one.places or ():
            x0, y0, x1, y1 = thing.box
            offset = system.model.image.offset(32, 32, rows, rows)
            at = [((n + 0.5) / rows + offset[0]) * 32 for n in range(rows)]
            inside = sum(y0 <= y < y1 for y in at) * sum(x0 <= x < x1 for x in at)
            share, words = share + len(thing.words) * inside / rows**2, words + len(thing.words)
    assert system.model.image.grid(32, 32) == (rows, rows)
    assert found["pointing_chance"] == pytest.approx(100 * share / words)


def test_nothing_in_common_is_zero_and_not_an_error() -> None:
    assert caption_bleu(4, np.zeros(10)) == 0.0
    found = CaptionScores(["", "x"], [["a"], ["b"]]).metrics()
    assert (found["bleu_1"], found["bleu"], found["exact"], found["cider"]) == (0.0, 0.0, 0.0, 0.0)


# --- examples and batches


def test_each_caption_is_an_example_and_shares_its_picture(colors: Path) -> None:
    system, work = prepared(api.recipes.recipe(recipe(colors, training={"dev_bleu": True})))
    examples = work.examples  # type: ignore[attr-defined]
    assert [one.line for one in examples] == [1, 1, 2, 3, 3, 3]
    assert len({one.pixels.data_ptr() for one in examples}) == 3
    assert any("3 pictures to train on" in note for note in system.notes)
    assert "6 captions of 3 pictures" in system.notes
    task, words = system.task, system.task.text
    batch = task.batch([examples[0], examples[4]], torch.device("cpu"))
    images, lengths, read_ = batch.inputs
    assert images.shape == (2, 3, 16, 24)
    assert images[0, :, 0, 0].tolist() == [1.0, 0.0, 0.0]
    assert len(lengths) == 2
    named = [[words.token(id) for id in row] for row in read_.tolist()]
    assert named == [["<bos>", "a", "red", "picture", "."], ["<bos>", "it", "is", "blue", "<pad>"]]
    named = [[words.token(id) for id in row] for row in batch.target.tolist()]
    assert named == [["a", "red", "picture", ".", "<eos>"], ["it", "is", "blue", "<eos>", "<pad>"]]
    assert batch.tokens == 9
    assert task.size(examples[0]) == (1, 5)
    assert task.lengths.longest == 5
    assert set(work.evaluate(system.model)) == {"loss", "bleu"} == set(work.measures)


def test_all_captions_are_references_in_an_evaluation(
    colors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = api.build(recipe(colors))
    monkeypatch.setattr(
        Captioning, "outputs", lambda *_, **__: (["it is red", "it is green", "so blue"], 0)
    )
    found = system.evaluate("test")
    assert (found["pictures"], round(found["exact"], 1)) == (3, 66.7)
    assert "nrefs:var|case:lc" in found["bleu_signature"]
    assert "pointing" not in found, "nobody knows what is where"
    each = system.task.per_example(system.model, system.read("test"))
    assert each.rows[0][1:] == ("a red picture .", "it is red")
    assert each.sums["exact"][0].tolist() == [[1, 1], [0, 1], [1, 1]]


def test_a_batch_has_captions_of_any_length() -> None:
    _, work = prepared(
        api.recipes.recipe(
            recipe(data={"options": {"train": 200, "dev": 2, "test": 2, "size": 32}})
        )
    )
    examples = work.examples  # type: ignore[attr-defined]
    mean = round(sum(len(one.target) + 1 for one in examples) / len(examples))
    plans = work.epoch(0)
    assert sorted(n for plan in plans for n in plan) == list(range(200))
    assert {len(plan) for plan in plans[:-1]} <= {100 // (1 + mean), 200 % (100 // (1 + mean))}
    lengths = [{len(examples[n].target) for n in plan} for plan in plans]
    assert sum(len(some) > 1 for some in lengths) > 0.9 * len(plans), (
        "or norms of batches would tell the model when to end"
    )
    assert plans != work.epoch(1)


# --- where words look


class Blank(Picture):
    """A picture of 20 × 40 pixels, of which nobody looks at the content."""

    name = "blank"  # type: ignore[assignment]

    def pixels(self, size: tuple[int, int] | None = None) -> torch.Tensor:
        return torch.zeros((3, *(size or (20, 40))), dtype=torch.uint8)


def test_a_position_is_on_an_object_when_its_middle_is() -> None:
    weights = np.zeros((2, 4))
    weights[1, 2] = 1.0  # rows of 10 pixels, columns of 5: its middle is x = 12.5, y = 15
    inside = {
        (12, 15, 13, 16): True,
        (0, 0, 20, 20): True,
        (13, 15, 15, 20): False,
        (12, 16, 13, 20): False,
        (0, 0, 12, 20): False,
    }
    assert {box: is_on(weights, (20, 20), box) for box in inside} == inside
    moved = {tuple(np.subtract(box, (2, 4, 2, 4)).tolist()): there for box, there in inside.items()}
    assert {box: is_on(weights, (20, 20), box, (-4 / 20, -2 / 20)) for box in moved} == moved, (
        "where the encoder looks"
    )


def test_a_box_moves_with_its_picture() -> None:
    image = Image.new("RGB", (60, 40))
    image.paste((255, 255, 255), (20, 10, 30, 30))
    for size in ((40, 60), (20, 20), (10, 30), (80, 80)):
        made = np.array(fit(image, size).convert("L")) > 127
        rows, columns = np.nonzero(made)
        expected = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        cut = np.clip(
            fit_box((20, 10, 30, 30), (40, 60), size), 0, [size[1], size[0], size[1], size[0]]
        )
        assert cut == pytest.approx(expected, abs=1), size


def test_pointing_counts_the_words_that_the_model_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    system = api.build(recipe(data={"image_size": 20}))
    caption, words = "a small red circle", system.task.text
    # 20 × 40 is cut to x = 10 … 30
    example = Captioned(Blank(), (caption,), 1, (Named((1, 2, 3), (10, 0, 20, 20)),))
    encoded = words.encode(caption)
    weights = np.zeros((4, 2, 2))
    weights[[0, 2, 3], 0, 0] = 1.0  # on the object, which fills the left half
    weights[1, 0, 1] = 1.0  # "small" looks to the right of it
    forced = Forced(encoded, [*encoded.ids[:3], words.unk], weights)
    monkeypatch.setattr(Captioning, "force", lambda *_: [forced])
    found = system.task.pointing(system.model, [example])
    assert {name: found[name] for name in ("pointing", "object_words_right")} == {
        "pointing": 50.0,
        "object_words_right": pytest.approx(200 / 3),
    }


def test_the_forced_pass_is_the_model_with_teacher_forcing() -> None:
    system = api.build(recipe(model={**MODEL, "family": "luong"}))
    [example] = system.read("dev")[:1]
    task, model = system.task, system.model.eval()
    [forced] = task.force(model, example.image.pixels()[None].float() / 255, example.captions)
    [numbers] = task.numbers([example])
    batch = task.batch([numbers], torch.device("cpu"))
    with torch.no_grad():
        logits = model(*batch.inputs)[0]
    assert forced.likeliest == logits.argmax(-1).tolist()[:-1]
    assert forced.weights.shape == (len(example.captions[0].split()), 4, 4)
    assert forced.weights.sum((1, 2)) == pytest.approx(1)
    document = system.look(example.image, example.captions[0])
    words, [site] = document.target, document.sites
    assert words == example.captions[0].split()
    assert (site.name, site.rows, site.grid) == ("decoder.cross", [*words, "<eos>"], (4, 4))
    assert site.weights[0, :-1].reshape(-1, 4, 4) == pytest.approx(forced.weights)
    evaluated = system.evaluate("dev")
    assert 0 <= evaluated["pointing"] <= 100


@pytest.mark.parametrize(
    "model",
    [
        {"family": "fixed-context"},
        {"family": "transformer", "heads": 2, "depth": 2},
        {"normalize": "hard"},
        {
            "image_encoder": {
                "family": "vit",
                "dim": 8,
                "hidden": 8,
                "depth": 1,
                "heads": 2,
                "patch": 8,
            }
        },
    ],
    ids=str,
)
def test_every_kind_of_captioner_trains_and_describes(
    model: dict[str, Any], tmp_path: Path
) -> None:
    system, _ = api.fit(recipe(model={**MODEL, **model}), tmp_path / "run", watcher=Watcher())
    pictures = [one.image for one in system.read("test")]
    for how in ({}, {"beam": 3}, {"temperature": 1.0, "seed": 3}):
        captions = system.caption(pictures, max_length=5, **how)  # type: ignore[arg-type]
        assert [one.name for one in captions] == [one.name for one in pictures]
        assert all(len(one.words) <= 5 for one in captions)
    assert any(one.alternatives for one in system.caption(pictures, beam=3))
    found, [first, *_] = system.evaluate("test"), captions
    if model.get("family") == "fixed-context":
        assert first.weights is None
        assert "pointing" not in found
        assert "has no attention to show" in error_of(lambda: first.document)
    else:
        assert first.weights is not None
        assert first.weights.shape[1:] == (4, 4)
        assert found["object_words_right"] >= 0
        assert first.document.sites[0].columns[3:5] == ["row 1, column 4", "row 2, column 1"]
    if "normalize" in model and first.words:
        assert set(np.unique(first.weights)) == {0.0, 1.0}
    again = api.load(tmp_path / "run")
    assert again.task.lengths == system.task.lengths
    assert again.caption(pictures[0]) == system.caption(pictures[0])


@pytest.mark.parametrize("family", ["bahdanau", "luong"])
@torch.no_grad()
def test_an_rnn_knows_where_something_is_by_the_grid_embedding_alone(family: str) -> None:
    """Patches that know no positions, in another order: the same to a model without a grid embedding."""
    patches = {
        "family": "vit",
        "dim": 8,
        "hidden": 8,
        "depth": 1,
        "heads": 1,
        "patch": 8,
        "grid_embedding": "none",
    }
    images = torch.rand(1, 3, 16, 16)
    moved = torch.cat([images[..., 8:], images[..., :8]], -1)
    target, lengths = torch.tensor([[1, 5, 6]]), torch.tensor([1])
    for grid, same in (("none", True), ("sinusoidal", False), ("learned", False)):
        made = {**MODEL, "family": family, "image_encoder": patches, "grid_embedding": grid}
        model = api.build(recipe(model=made)).model.eval()
        logits = [model(one, lengths, target) for one in (images, moved)]
        assert torch.allclose(*logits, atol=1e-6) == same, grid
        state = model.start(images, lengths)  # type: ignore[operator]
        for n, token in enumerate(target[0]):
            step, state = model.step(token.unsqueeze(0), state)  # type: ignore[operator]
            torch.testing.assert_close(step[0], logits[0][0, n], msg="in use as in training")


def test_hard_attention_learns_where_to_look(tmp_path: Path) -> None:
    hard = {**MODEL, "normalize": {"name": "hard", "warmup": 0, "soft": 0.0}}
    begun = api.build(recipe(model=hard))
    ended, _ = api.fit(recipe(model=hard), tmp_path / "run", watcher=Watcher())
    changed = [
        name
        for (name, one), (_, other) in zip(
            begun.model.named_parameters(), ended.model.named_parameters(), strict=True
        )
        if "cross" in name and not torch.equal(one, other)
    ]
    assert any("score" in name for name in changed), (
        "with samples alone, only the estimator moves the score"
    )


# --- training


def test_a_run_with_changed_pictures_resumes_bit_for_bit(tmp_path: Path) -> None:
    made = recipe(
        data={"augment": {"flip": True, "crop": 2, "jitter": 0.2}},
        training={"doubly_stochastic": 1.0, "dev_bleu": True},
    )
    api.fit(made, tmp_path / "whole", watcher=Watcher())
    half = {**made, "training": {**made["training"], "updates": 3}}
    api.fit(half, tmp_path / "parts", watcher=Watcher())
    api.fit(made, tmp_path / "parts", resume=True, watcher=Watcher())
    api.fit(
        {**made, "data": {**made["data"], "augment": {}}}, tmp_path / "plain", watcher=Watcher()
    )
    last = [
        (tmp_path / name / "last" / "model.safetensors").read_bytes()
        for name in ("whole", "parts", "plain")
    ]
    assert last[0] == last[1]
    assert last[0] != last[2]
    assert "dev_bleu" in (tmp_path / "whole" / "log.jsonl").read_text()


def test_mixed_pictures_have_no_caption() -> None:
    made = api.recipes.recipe(recipe(data={"augment": {"mixup": 1.0}}))
    _, work = prepared(made)
    assert "mix labels, and this task has none; leave them out" in error_of(
        lambda: work.batch(work.epoch(0)[0])
    )


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"data": {"swap": True}}, "data.swap has no effect here"),
        ({"training": {"reward": "gleu"}}, "training.reward has no effect here"),
        ({"training": {"watch": "accuracy"}}, "training.watch is 'accuracy'"),
        (
            {"model": {"family": "vit"}},
            "model.family is 'vit', which is not a model that describes images",
        ),
        (
            {"data": {"train": "phrasebook:train"}},
            "the corpus 'phrasebook' has no pictures with captions",
        ),
        (
            {"model": {**MODEL, "family": "fixed-context", "grid_embedding": "learned"}},
            "model.grid_embedding",
        ),
        (
            {
                "model": {
                    **MODEL,
                    "image_encoder": {**CNN, "dim": 3},
                    "grid_embedding": "sinusoidal",
                }
            },
            "a width that 4 divides, got 6",
        ),
    ],
    ids=lambda one: "",
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], sentence: str) -> None:
    assert sentence in error_of(lambda: prepared(api.recipes.recipe(recipe(**changed))))


def test_pictures_are_what_was_asked_for(colors: Path) -> None:
    system = api.build(recipe(colors))
    folder = colors.parent
    assert system.caption(str(folder / "red.png")).name == str(folder / "red.png")
    assert [Path(one.name).name for one in system.caption(folder)] == [
        "blue.png",
        "green.png",
        "red.png",
    ]
    assert len(system.caption([folder / "red.png", read(CAPTIONED, str(colors))[0].image])) == 2
    assert (
        system.evaluate(
            [(folder / "red.png", ["a", "it is red"]), (folder / "blue.png", "so blue")]
        )["pictures"]
        == 2
    )
    assert "write m.caption" in error_of(lambda: system.caption(3))  # type: ignore[call-overload]
    assert "a beam and sampling were both" in error_of(
        lambda: system.caption(folder, beam=2, top_k=3)
    )
    assert "a max_length of 0 tokens" in error_of(lambda: system.caption(folder, max_length=0))
    assert "look at one at a time" in error_of(lambda: system.look(str(folder)))
    assert "example 1 is" in error_of(lambda: system.evaluate([("red.png",)]))
