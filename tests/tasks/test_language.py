"""Language modelling: streams, perplexity by hand, sliding windows by brute force, texts gone on with by whole forwards."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises
from torch import nn

from saccade import api
from saccade.config import recipes
from saccade.data.documents import Document
from saccade.data.vocabulary import BOS, EOS, PAD, UNK
from saccade.errors import SaccadeError
from saccade.recipe import TrainingRecipe
from saccade.tasks.language import LanguageModelling, spell
from saccade.tasks.token_stream import CarriedWork, Stream, StreamWork
from saccade.training.checkpoints import Progress, RunFolder
from saccade.training.loop import Training

CPU = torch.device("cpu")
TEXT = "the cat saw the dog\nthe dog saw a mouse\n\na mouse ran\n" * 3
LINES = [Document(line, n) for n, line in enumerate(TEXT.split("\n"), 1) if line]
WHOLE = [Document(TEXT, 1)]


def recipe(
    family: str = "transformer-decoder", kind: str = "characters", block: int = 8, *words: str
) -> recipes.Recipe:
    sizes = {"heads": 2, "depth": 1} if family.startswith("transformer") else {"depth": 2}
    dropouts = {"dropout": 0.0}
    if family == "rnn-decoder":
        dropouts |= {
            "embedding_dropout": 0.0,
            "input_dropout": 0.0,
            "layer_dropout": 0.0,
            "weight_dropout": 0.0,
        }
        dropouts |= {"size_penalty": 0.0, "change_penalty": 0.0}
    return recipes.recipe(
        {
            "task": "language-modelling",
            "model": {"family": family, "dim": 8, "hidden": 12, **sizes, **dropouts},
            "vocabulary": {"kind": kind, "size": 270 if kind == "bpe" else 100},
            "language": {"block": block},
            "training": {"tokens": 24},
            "device": "cpu",
        },
        words,
    )


def system(
    family: str = "transformer-decoder",
    kind: str = "characters",
    block: int = 8,
    several: bool = False,
) -> api.System:
    """With parameters wide enough that its guesses differ."""
    made = api.build(recipe(family, kind, block), LINES if several else WHOLE)
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.mul_(3.0)
    return api.System(made.recipe, made.model.eval(), made.task)


def told(work: Any) -> str:
    with pytest.raises(SaccadeError) as error:
        work()
    return str(error.value)


# --- documents to tokens


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the cat", "the cat"),
        ("the cat\n", "the cat <eos>"),
        ("the\n\ncat", "the <eos> <eos> cat"),
        ("\nthe", "<eos> the"),
        ("the\ncat\n", "the <eos> cat <eos>"),
    ],
)
def test_between_words_a_lines_end_is_eos_and_nothing_is_made_up(text: str, shown: str) -> None:
    task = system(kind="words").task
    assert " ".join(task.text.token(id) for id in task.encode(text)) == shown
    [numbers] = task.numbers([Document(text, 1)])
    assert numbers.tolist() == task.encode(text)


def test_several_documents_have_ends_and_one_has_none() -> None:
    for kind in ("words", "bpe", "characters"):
        task = system(kind=kind, several=True).task
        assert task.several
        for one in task.numbers(
            [Document("the cat", 1), Document("the cat\n" if kind == "words" else "the cat", 2)]
        ):
            assert one.tolist() == [BOS, *task.encode("the cat"), EOS]
    one = system(kind="bpe").task
    assert not one.several
    assert not {BOS, EOS} & set(one.numbers(WHOLE)[0].tolist())


@pytest.mark.parametrize("kind", ["words", "characters", "bpe"])
@pytest.mark.parametrize("several", [False, True])
def test_a_task_is_itself_after_it_was_stored(kind: str, several: bool) -> None:
    made = system(kind=kind, several=several)
    again = LanguageModelling.restore(made.recipe, made.task.tokens())
    assert (again.several, again.text.to_json()) == (several, made.task.text.to_json())


# --- streams


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.integers(2, 12),
    st.integers(0, 5),
    st.integers(0, 3),
)
def test_every_token_is_wanted_once_an_epoch_but_for_the_first_cut(
    sizes: list[int], block: int, epoch: int, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    each = [np.array([BOS, *chance.integers(EOS + 1, 50, size), EOS]) for size in sizes]
    flow = Stream(each, block, True, seed, CPU)
    flow.make(epoch)
    starts = flow.starts(epoch)
    assert 0 <= starts[0] < block
    blocks = flow.blocks(starts, epoch)
    read, wanted = blocks.here[:, :-1], blocks.here[:, 1:]
    assert (
        wanted.flatten()[: len(flow.here) - starts[0] - 1].tolist()
        == flow.here[starts[0] + 1 :].tolist()
    )
    assert (wanted.flatten()[len(flow.here) - starts[0] - 1 :] == PAD).all()
    assert (read[1:, 0] == wanted[:-1, -1]).all(), "each block goes on where the last one ended"
    assert sorted(map(tuple, np.split(flow.here, np.flatnonzero(flow.here == BOS)[1:]))) == sorted(
        map(tuple, each)
    )
    numbers = blocks.documents
    assert numbers is not None
    assert ((numbers == -1) == torch.from_numpy(blocks.here == PAD)).all()


def test_epochs_are_in_other_orders_with_other_cuts_and_the_same_again() -> None:
    each = [np.array([BOS, *range(4, 4 + size), EOS]) for size in range(3, 23)]
    flow, other = Stream(each, 8, True, 1, CPU), Stream(each, 8, True, 1, CPU)
    seen = []
    for epoch in (0, 1, 2, 3, 1):
        flow.make(epoch)
        seen.append((flow.here.tolist(), flow.starts(epoch)))
    assert seen[1] == seen[4]
    assert seen[0][0] == np.concatenate(each).tolist()
    assert len({str(here) for here, _ in seen[:4]}) == 4
    assert len({starts[0] for _, starts in seen}) > 1
    other.make(1)
    assert (other.here.tolist(), other.starts(1)) == seen[1], "whatever was made before"


def test_the_plans_of_an_epoch_hold_every_block_once() -> None:
    for several in (False, True):
        made = system(several=several)
        work = made.task.work(made.recipe, LINES if several else WHOLE, WHOLE, CPU)
        assert isinstance(work, StreamWork)
        for epoch in (0, 1):
            plans = work.epoch(epoch)
            assert all(len(plan) <= 24 // 8 for plan in plans)
            starts = [start for plan in plans for _, start in plan]
            assert sorted(starts) == work.stream.starts(epoch + 1)
            assert starts != sorted(starts)
            assert plans == work.epoch(epoch)
            assert (
                sum(work.batch(plan).tokens for plan in plans)
                == np.isin(
                    work.stream.here[work.stream.starts(epoch + 1)[0] + 1 :],
                    (PAD, BOS),
                    invert=True,
                ).sum()
            )
        assert 0 <= work.padding() < 1


def test_a_text_of_one_token_is_refused() -> None:
    made = system()
    for where in (
        lambda: made.task.work(made.recipe, [Document("t", 1)], WHOLE, CPU),
        lambda: made.task.work(made.recipe, WHOLE, [Document("t", 1)], CPU),
        lambda: made.task.evaluate(made.model, [Document("t", 1)]),
    ):
        assert told(where) == "the text has fewer than two tokens; give more text"


# --- figures


def by_hand(model: nn.Module, ids: list[int], block: int) -> tuple[float, int]:
    """Each token from those before it in its block, one forward a token, in float64."""
    total = 0.0
    for at in range(1, len(ids)):
        begin = (at - 1) // block * block
        with torch.no_grad():
            row = model(torch.tensor([ids[begin:at]]))[0, -1].double()
        total -= float((row - row.logsumexp(0))[ids[at]])
    return total, len(ids) - 1


@pytest.mark.parametrize("kind", ["characters", "words", "bpe"])
def test_perplexity_and_bits_a_character_by_hand(kind: str) -> None:
    made = system(kind=kind)
    ids = made.task.numbers(WHOLE)[0].tolist()
    total, tokens = by_hand(made.model, ids, 8)
    found = api.evaluate(made, WHOLE)
    assert found["loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(total / tokens), rel=1e-4)
    assert found["bits_per_character"] == pytest.approx(total / math.log(2) / len(TEXT), rel=1e-5)
    assert (found["tokens"], found["characters"], found["documents"]) == (tokens, len(TEXT), 1)
    unigram = -sum(math.log(ids[1:].count(id) / tokens) for id in ids[1:]) / tokens
    assert found["unigram_loss"] == pytest.approx(unigram, rel=1e-6)


def test_the_unigram_loss_is_the_entropy_of_what_is_asked_for() -> None:
    """Of `tete` a causal model is asked for e, t, e; where documents are packed, nobody is asked for <bos>."""
    assert api.evaluate(system(), [Document("tete", 1)])["unigram_loss"] == pytest.approx(
        -2 / 3 * math.log(2 / 3) - math.log(1 / 3) / 3
    )
    made = system("rnn-decoder")
    ids = made.task.numbers(WHOLE)[0].tolist()[1:]
    shares = [ids.count(one) / len(ids) for one in set(ids)]
    assert api.evaluate(made, WHOLE)["unigram_loss"] == pytest.approx(
        -sum(one * math.log(one) for one in shares)
    )
    several = recipe("transformer-decoder", "characters", 8)
    task = LanguageModelling.learn(several, [Document("te", 1), Document("tt", 2)])
    found = task.unigram_loss(task.stream([Document("te", 1), Document("tt", 2)], 0, CPU))
    shares = [3 / 6, 1 / 6, 2 / 6]  # t, e and <eos>
    assert found == pytest.approx(-sum(one * math.log(one) for one in shares))


def test_two_files_for_a_model_of_one_text_are_one_stream() -> None:
    made = system()
    found = api.evaluate(made, [Document("the cat", 1), Document(" saw", 1)])
    assert found["tokens"] == len("the cat saw") - 1
    assert found["loss"] == pytest.approx(
        api.evaluate(made, [Document("the cat saw", 1)])["loss"], rel=1e-6
    )


def test_a_recurrent_model_carries_its_state_through_the_stream() -> None:
    made = system("rnn-decoder")
    ids = made.task.numbers(WHOLE)[0].tolist()
    with torch.no_grad():
        logits = made.model(torch.tensor([ids[:-1]]))[0].double()
    whole = nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).item()
    assert api.evaluate(made, WHOLE)["loss"] == pytest.approx(whole, rel=1e-5)
    flow = Stream(made.task.numbers(WHOLE), 8, False, 0, CPU)
    for rows in (2, 3, 7):  # each row begins with an empty state
        size = -(-(len(ids) - 1) // (8 * rows)) * 8  # whole blocks
        total = 0.0
        for begin in range(0, len(ids) - 1, size):
            part = ids[begin : begin + size + 1]
            with torch.no_grad():
                row = made.model(torch.tensor([part[:-1]]))[0].double()
            total += nn.functional.cross_entropy(
                row, torch.tensor(part[1:]), reduction="sum"
            ).item()
        assert made.task.metrics(made.model, flow, 100, rows)["loss"] == pytest.approx(
            total / (len(ids) - 1), rel=1e-5
        )


def test_text_with_unknown_words_has_no_bits_a_character() -> None:
    """Nobody pays for the characters behind an <unk>."""
    made = system("rnn-decoder", "words")
    known = api.evaluate(made, WHOLE)
    assert "unknown_tokens" not in known
    assert known["bits_per_character"] > 0
    found = api.evaluate(made, [Document("the cat saw the hippopotamus\nthe okapi ran\n", 1)])
    assert found["unknown_tokens"] == 2
    assert "bits_per_character" not in found


def carried(*words: str) -> tuple[Any, CarriedWork]:
    made = system("rnn-decoder")
    how = recipe(
        "rnn-decoder", "characters", 8, "language.carry=true", "training.smoothing=0", *words
    )
    task = type(made.task).restore(how, made.task.tokens())
    work = task.work(how, WHOLE, WHOLE, CPU)
    assert isinstance(work, CarriedWork)
    return made.model.train(), work


def test_what_is_carried_makes_an_epoch_one_long_reading() -> None:
    model, work = carried()
    plans = work.epoch(0)
    rows = [[plan[row][1] for plan in plans] for row in range(3)]
    assert all(later - before == 8 for row in rows for before, later in itertools.pairwise(row))
    assert len({start for row in rows for start in row}) == 3 * len(plans), "no block twice"
    losses = [work.loss(model, work.batch(plan)).item() for plan in plans]
    total = 0.0
    for row in rows:  # each read at once, from an empty state
        ids = torch.from_numpy(work.stream.here[row[0] : row[-1] + 9])
        logits = model(ids[None, :-1])[0]
        total += nn.functional.cross_entropy(logits, ids[1:], reduction="sum").item()
    assert sum(losses) == pytest.approx(total, rel=1e-5)


def test_a_new_epoch_and_a_run_that_goes_on_begin_with_an_empty_state() -> None:
    model, work = carried()
    plans = work.epoch(0)
    first = work.loss(model, work.batch(plans[0])).item()
    for plan in plans[1:]:
        work.loss(model, work.batch(plan))
    assert work.loss(model, work.batch(plans[0])).item() == pytest.approx(first)
    second = work.loss(model, work.batch(plans[1])).item()
    assert carried()[1].loss(model, work.batch(plans[1])).item() != pytest.approx(second), (
        "the state matters"
    )


@pytest.mark.parametrize("before", [0, 1, 3])
def test_what_is_carried_can_be_stored_and_continued(before: int) -> None:
    model, work = carried()
    plans = work.epoch(0)
    for plan in plans[:before]:
        work.loss(model, work.batch(plan))
    stored = {name: tensor.clone() for name, tensor in work.state().items()}
    assert ("expected" in stored) == (before > 0)
    _, again = carried()
    again.load_state(stored)
    for plan in plans[before:]:
        assert torch.equal(again.loss(model, again.batch(plan)), work.loss(model, work.batch(plan)))
    again.load_state({})
    assert not again.state()
    assert not bool(again.batch(plans[1]).inputs[1]), "nothing is carried"


def test_batches_made_ahead_of_their_losses_begin_empty_where_they_should() -> None:
    """As with training.accumulate: an epoch ends among the batches of one update."""
    model, work = carried()
    plans = [*work.epoch(0), *work.epoch(1)[:2]]
    one_by_one = [work.loss(model, work.batch(plan)).item() for plan in plans]
    model, work = carried()
    batches = [work.batch(plan) for plan in plans]
    assert [work.loss(model, batch).item() for batch in batches] == pytest.approx(one_by_one)


def test_what_is_carried_stays_where_it_is_for_each_number_of_rows() -> None:
    """A recorded update reads and writes it there."""
    model, work = carried()
    plans, places = work.epoch(0), list[int]()
    for plan in (plans[0], plans[0][:2], plans[1], plans[1][:2]):
        work.loss(model, work.batch(plan))
        places += [work.states[len(plan)].data_ptr()]
    assert places[0] == places[2] != places[1] == places[3]


@pytest.mark.parametrize("before", [0, 1, 3])
def test_measuring_the_cost_leaves_no_trace_in_what_is_carried(tmp_path: Path, before: int) -> None:
    model, work = carried()
    for plan in work.epoch(0)[:before]:
        work.loss(model, work.batch(plan))
    state = {name: tensor.clone() for name, tensor in work.state().items()}
    training = Training(model, work, TrainingRecipe(updates=99), RunFolder(tmp_path / "run", {}))
    training.at = Progress(batch=before)
    training._cost()
    assert work.state().keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in work.state().items())
    assert bool(work.batch(work.epoch(0)[before]).inputs[1]) == (before > 0), (
        "the next batch continues the last one"
    )


def test_gradients_stop_where_a_block_begins() -> None:
    model, work = carried()
    plans = work.epoch(0)
    for plan in plans[:2]:  # the second backward would fail if it went into the first block
        work.loss(model, work.batch(plan)).backward()


def test_every_epoch_leaves_out_other_blocks_and_a_short_text_has_fewer_rows() -> None:
    _, work = carried("training.tokens=1000000")
    [plan, *rest] = work.epoch(0)
    assert not rest
    assert len(plan) == len(work.stream.starts(1))
    _, work = carried()
    assert len({work.epoch(epoch)[0][0][1] for epoch in range(30)}) > 1


def test_two_answers_of_a_language_model_are_not_drawn_together() -> None:
    assert "training.agreement has no effect here" in told(
        lambda: recipe("rnn-decoder", "characters", 8, "training.agreement=1")
    )


def test_only_a_recurrent_causal_model_can_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    _, work = carried()
    assert "rnn-decoder" in told(lambda: work.loss(nn.Linear(2, 2), work.batch(work.epoch(0)[0])))
    masked = (
        "transformer-encoder",
        "characters",
        8,
        "language.objective=masked",
        "language.carry=true",
    )
    assert "language.carry has no effect here: it is for language.objective=causal" in told(
        lambda: recipe(*masked)
    )
    assert "a model that is not compiled" in told(lambda: carried("training.compile=true"))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert "is for one process" in told(carried)


def test_a_recurrent_model_of_several_documents_is_not_asked_where_they_begin() -> None:
    made = system("rnn-decoder", several=True)
    ids = np.concatenate(made.task.numbers(LINES)).tolist()
    with torch.no_grad():
        logits = made.model(torch.tensor([ids[:-1]]))[0].double().log_softmax(-1)
    picked = [-float(logits[at, id]) for at, id in enumerate(ids[1:]) if id != BOS]
    found = api.evaluate(made, LINES)
    assert found["loss"] == pytest.approx(sum(picked) / len(picked), rel=1e-5)
    assert found["tokens"] == len(picked)


def test_a_memory_of_the_whole_text_is_a_pass_over_it() -> None:
    made = system("transformer-xl")
    made.model.memory = 3
    ids = torch.from_numpy(made.task.numbers(WHOLE)[0][:41])
    text = [Document(made.task.text.decode(ids.tolist()), 1)]
    with torch.no_grad():
        every = torch.nn.functional.cross_entropy(made.model(ids[None, :-1])[0], ids[1:])
    found = api.evaluate(made, text, memory=64)
    assert found["memory_loss"] == pytest.approx(float(every), rel=1e-5)
    assert found["loss"] != pytest.approx(found["memory_loss"], rel=1e-5)
    assert (made.model.memory, found["memory"]) == (3, 64)
    assert "of the family transformer-xl, or leave out memory" in told(
        lambda: api.evaluate(system(), text, memory=64)
    )


@pytest.mark.parametrize("stride", [1, 3, 8])
def test_a_sliding_window_is_brute_force(stride: int) -> None:
    made = system()
    ids = made.task.numbers(WHOLE)[0].tolist()[:41]
    text = [Document(made.task.text.decode(ids), 1)]
    total = 0.0
    for at in range(1, len(ids)):
        end = min((at - 1) // stride * stride + stride, len(ids) - 1)
        before = ids[max(0, end - 8) : at]
        assert len(before) <= 8
        assert len(before) >= min(at, 8 - stride + 1)
        with torch.no_grad():
            total -= float(
                made.model(torch.tensor([before]))[0, -1].double().log_softmax(-1)[ids[at]]
            )
    found = api.evaluate(made, text, stride=stride)
    assert found["sliding_loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-5)
    assert found["sliding_perplexity"] == pytest.approx(math.exp(found["sliding_loss"]), rel=1e-9)


def test_a_stride_that_makes_no_sense_is_told() -> None:
    assert told(lambda: api.evaluate(system(), WHOLE, stride=9)).startswith(
        "a stride of 9; give 1 to 8"
    )
    assert "needs a causal model of one long text" in told(
        lambda: api.evaluate(system(several=True), LINES, stride=2)
    )


@pytest.mark.parametrize(
    ("objective", "family"),
    [
        ("masked", "transformer-encoder"),
        ("permutation", "transformer-encoder"),
        ("denoising", "transformer"),
    ],
)
def test_the_figures_of_a_hidden_text_do_not_depend_on_batches_or_the_seed(
    objective: str, family: str
) -> None:
    losses = set()
    for seed, tokens in ((0, 16), (0, 64), (5, 1000)):
        made = recipe(
            family,
            "characters",
            8,
            f"language.objective={objective}",
            f"training.tokens={tokens}",
            f"seed={seed}",
        )
        torch.manual_seed(0)
        task = LanguageModelling.learn(made, WHOLE)
        model = task.build(recipes.Builder(made.model)).eval()
        work = task.work(made, WHOLE, WHOLE, CPU)
        losses.add(round(work.evaluate(model)["loss"], 4))
        found = task.evaluate(model, WHOLE)
        assert "bits_per_character" not in found
        losses.add(round(found["loss"], 4))
    assert len(losses) == 1


# --- going on


def gone_on(made: api.System, ids: list[int], count: int, never: set[int]) -> list[int]:
    """Greedy by whole forwards; a full block goes on from its second half."""
    block, ids, begin = made.recipe.language.block, list(ids), 0
    for _ in range(count):
        if len(ids) - begin > block:
            begin = len(ids) - 1 - block // 2
        with torch.no_grad():
            row = made.model(torch.tensor([ids[begin:]]))[0, -1]
        row[list(never)] = -math.inf
        ids.append(int(row.argmax()))
    return ids


@pytest.mark.parametrize("kind", ["characters", "words", "bpe"])
@pytest.mark.parametrize(
    "prompt", ["the cat", "", "the cat saw the dog\nthe", "the cat saw the dog\n"]
)
def test_greedy_is_the_likeliest_token_of_whole_forwards(kind: str, prompt: str) -> None:
    made = system(kind=kind)
    begun = made.task.encode_prompt(prompt)
    never = {PAD, UNK, BOS} | (set() if kind == "words" else {EOS})
    expected = gone_on(made, begun, 20, never)[len(begun) :]
    text = "".join(api.generate(made, prompt, 20, {"temperature": 0.0}))
    if kind == "words":
        words = [made.task.text.token(id) for id in expected]
        spelled = "".join("\n" if word == "<eos>" else f" {word}" for word in words).replace(
            "\n ", "\n"
        )
        assert text == (spelled if prompt and prompt[-1] != "\n" else spelled.removeprefix(" "))
    else:
        assert text == made.task.text.decode_more(expected)
    assert text == "".join(api.generate(made, prompt, 20, {"temperature": 0.0}))


def test_a_recurrent_model_goes_on_without_ever_starting_anew() -> None:
    made = system("rnn-decoder")
    wide = api.System(
        recipes.recipe({**made.recipe.to_dict(), "language": {"block": 10_000}}),
        made.model,
        made.task,
    )
    begun = made.task.encode_prompt("the cat saw the dog")
    expected = gone_on(wide, begun, 30, {PAD, UNK, BOS, EOS})[len(begun) :]
    assert "".join(
        api.generate(made, "the cat saw the dog", 30, {"temperature": 0.0})
    ) == made.task.text.decode_more(expected)


def test_a_seed_gives_the_same_text_and_another_another() -> None:
    made = system()
    texts = ["".join(api.generate(made, "the", 40, {"seed": seed})) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    assert all(len(text) == 40 for text in texts), "a character a token"


def test_several_documents_end_where_eos_says() -> None:
    made = system(several=True)
    with torch.no_grad():
        made.model.embedding.tokens.weight[EOS] *= 4
    texts = ["".join(api.generate(made, "the", 300, {"seed": seed})) for seed in range(4)]
    assert min(map(len, texts)) < 300
    assert not any("<eos>" in text for text in texts)


@pytest.mark.parametrize("kind", ["words", "characters", "bpe"])
def test_an_empty_prompt_begins_a_document_or_a_line(kind: str) -> None:
    one, many = system(kind=kind), system(kind=kind, several=True)
    assert many.task.encode_prompt("") == [BOS]
    [first] = one.task.encode_prompt("")
    assert first == (EOS if kind == "words" else one.task.text.encode_ids(["\n"])[0][-1])
    assert not "".join(api.generate(many, "", 5, {"seed": 1})).startswith(" ")


def spelled(task: LanguageModelling, ids: list[int], begins: bool = True) -> list[str]:
    return list(spell(task, ids, begins))


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=12))
def test_characters_split_over_pieces_come_out_whole(text: str) -> None:
    task = spelling_task()
    pieces = spelled(task, task.text.encode_ids([text])[0])
    assert "".join(pieces) == task.text.decode_more(task.text.encode_ids([text])[0])
    assert not any("\ufffd" in piece for piece in pieces)


_TASKS: dict[str, LanguageModelling] = {}


def spelling_task() -> LanguageModelling:
    if not _TASKS:
        _TASKS["bpe"] = system(kind="bpe").task
    return _TASKS["bpe"]


def test_half_a_character_is_shown_at_the_end_and_not_waited_for_forever() -> None:
    task = spelling_task()
    first, *_ = task.text.encode_ids(["é"])[0][1:] or task.text.encode_ids(["é"])[0]
    assert "".join(spelled(task, [first])) == "\ufffd"
    pieces = spelled(task, [first] * 20)
    assert len("".join(pieces)) == 20
    assert pieces[7] != "", "after a few bytes it is shown as it is"


def test_words_stand_between_spaces_and_lines_begin_without() -> None:
    task = system(kind="words").task
    cat, dog = task.text.id("cat"), task.text.id("dog")
    assert spelled(task, [cat, dog, EOS, EOS, cat]) == ["cat", " dog", "\n", "\n", "cat", ""]
    assert spelled(task, [cat, dog], begins=False) == [" cat", " dog", ""]


@pytest.mark.parametrize(
    ("objective", "family"),
    [
        ("masked", "transformer-encoder"),
        ("permutation", "transformer-encoder"),
        ("denoising", "transformer"),
    ],
)
def test_only_a_causal_model_goes_on(objective: str, family: str) -> None:
    made = api.build(recipe(family, "characters", 8, f"language.objective={objective}"), WHOLE)
    assert f"a model with the {objective} objective cannot continue a text" in told(
        lambda: api.generate(made, "the")
    ), "at once, not at the first piece"


OBJECTIVES = [
    ("masked", "transformer-encoder"),
    ("permutation", "transformer-encoder"),
    ("denoising", "transformer"),
]


@pytest.mark.parametrize("examples", [WHOLE, LINES], ids=["one text", "lines"])
@pytest.mark.parametrize("kind", ["words", "characters"])
@pytest.mark.parametrize(("objective", "family"), OBJECTIVES)
def test_what_any_model_of_language_looks_at_is_shown(
    objective: str, family: str, kind: str, examples: list[Document]
) -> None:
    """Every attention, over the tokens of the text; what is hidden is named by words of the vocabulary."""
    made = api.build(recipe(family, kind, 40, f"language.objective={objective}"), examples)
    for text, count in (("the cat saw the dog", 0), ("the <mask> saw the dog", 1)):
        found = api.show(made, text)
        assert found.called == ("text", "hidden")
        assert found.source.count("<mask>") == (1 if objective == "denoising" else count)
        assert [
            token for token in found.source if token not in ("<mask>", "<query>", "<bos>", "<unk>")
        ][:3] in (["the", "cat", "saw"], ["the", "saw", "the"], ["t", "h", "e"])
        names = {site.name for site in found.sites}
        assert names == ({"encoder.0.mixer"} if family != "transformer" else names)
        assert objective != "denoising" or found.sites[0].name == "decoder.0.cross"
        for site in found.sites:
            weights = torch.tensor(site.weights)
            assert weights.shape[1:] == (len(site.rows), len(site.columns))
            torch.testing.assert_close(weights.sum(-1).float(), torch.ones(weights.shape[:-1]))
    if objective == "masked":
        assert api.show(made, "the cat").target == ["nothing"]
    if objective == "permutation":
        last = torch.tensor(found.sites[0].weights)[:, -1]
        assert found.sites[0].rows[-1] == "<query>"
        assert (last[:, -1] == 0).all(), "nobody looks at a query"
    with raises("text-too-long", match="the model reads 40 at once; shorten it"):
        api.show(made, "the " * 50)


def test_a_masked_model_names_what_is_hidden() -> None:
    """As the model by itself: the tokens with the mask's number in it, and the likeliest at that position."""
    made = api.build(recipe("transformer-encoder", "words", 16, "language.objective=masked"), WHOLE)
    text = made.task.text
    ids = [*text.encode_ids(["the"])[0], len(text), *text.encode_ids(["saw the dog"])[0]]
    logits = made.model.eval()(torch.tensor([ids]), torch.tensor([5]))[0, 1, : len(text)]
    assert api.show(made, "the <mask> saw the dog").target == [text.token(int(logits.argmax()))]


def test_more_spans_than_were_learned_are_refused() -> None:
    made = api.build(recipe("transformer", "words", 16, "language.objective=denoising"), WHOLE)
    assert "the text hides more than 1 spans (<mask>), the most this model knows" in told(
        lambda: api.show(made, "<mask> a <mask>")
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"limit": 0}, "the limit is 0, expected 1 to 1,000,000"),
        ({"limit": 10**7}, "the limit is 10000000, expected"),
        ({"sample": {"temperature": -1}}, "temperature is -1"),
        ({"sample": {"top_p": 2.0}}, "top_p is 2.0"),
        ({"prompt": "\udcff"}, "half of a surrogate pair"),
    ],
)
def test_what_cannot_be_gone_on_with_is_told_at_once(
    options: dict[str, Any], sentence: str
) -> None:
    assert sentence in told(lambda: api.generate(system(), **options))


def test_any_temperature_gives_text() -> None:
    made = system()
    for temperature in (1e-300, 1e300):
        assert len("".join(api.generate(made, "the", 5, {"temperature": temperature}))) == 5


def test_what_is_shown_of_a_language_model_is_its_own_attention() -> None:
    made = system()
    document = api.show(made, "the cat")
    assert document.source == ["the", "cat"]
    assert document.sites[0].rows == list("the cat")
    with torch.no_grad():
        likeliest = made.model(torch.tensor([made.task.encode_prompt("the cat")]))[0, -1].argmax()
    assert document.target == [made.task.text.token(int(likeliest))]
    [site] = document.sites
    weights = torch.tensor(site.weights)
    assert weights.shape == (2, 7, 7)
    assert bool((weights.triu(1) == 0).all())
    assert "generates no text; leave the target out" in told(
        lambda: api.show(made, "the", target="x")
    )
    assert "has no attention to show" in told(lambda: api.show(system("rnn-decoder"), "the"))


def test_lines_of_a_batch_are_those_of_the_file() -> None:
    made = system(several=True)
    later = [Document("the cat", 4), Document("the dog", 9), Document("a cat", 11)]
    stream = made.task.stream(later, 0, CPU)
    assert set(stream.blocks([0, 1, 2, 3, 4, 5, 6, 7, 8], 0).lines) <= {4, 9, 11}
    several_files = made.task.stream([Document("the cat", 1), Document("the dog", 1)], 0, CPU)
    assert set(several_files.blocks([0, len(several_files.here) - 1], 0).lines) == {1, 2}, (
        "counted instead"
    )
