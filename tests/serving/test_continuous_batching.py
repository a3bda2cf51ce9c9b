"""Continuous decoding: whoever comes and goes, each output is that of the sentence alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from saccade.decoding import (
    Beam,
    Sample,
    Search,
    SlidingWindow,
    decode,
    engine,
    weight_layouts,
    why_plain,
)
from saccade.models.builder import Builder
from saccade.models.protocols import CausalLM, Seq2Seq
from saccade.serving.continuous_batching import MAX_IDLE_POSITIONS, Flow, Output

VOCAB, PAD, BOS, EOS, NEVER = 14, 0, 2, 3, (0, 2)
SMALL = {"dim": 16, "hidden": 24, "depth": 2, "heads": 4, "dropout": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "rotary, grouped heads": {"position": "rotary", "kv_heads": 2},
    "alibi, one head of keys": {"position": "alibi", "kv_heads": 1},
    "t5": {"position": "t5", "norm": "rms", "residual": "deepnorm"},
    "learned positions": {"position_embedding": {"name": "learned", "max_len": 40}, "tied": False},
    "an embedding that is called": {
        "embedding": {"name": "factorized", "rank": 5},
        "stack": "shared",
        "head": "mixture",
    },
}
LENGTHS, LIMITS = [9, 1, 4, 9, 7, 2, 5], [30, 5, 13, 8, 20, 1, 25]
SEARCHES: dict[str, Callable[[int], Search]] = {
    "greedy": lambda n: Sample(BOS, EOS, NEVER, temperature=0.0),
    "sampled": lambda n: Sample(BOS, EOS, NEVER, temperature=1.2, top_k=8, seed=n),
    "beam": lambda n: Beam(BOS, EOS, NEVER, width=3),
}


def model_of(kind: Any, family: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    sizes = (VOCAB, VOCAB) if kind is Seq2Seq else (VOCAB,)
    made = Builder({"family": family, **SMALL, **settings}).make(kind, *sizes).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


def run(flow: Flow, waiting: list[Output], together: int = 2) -> None:
    """Two enter at the first step, and one more at every other one."""
    flow.enter([waiting.pop(0) for _ in range(together)])
    step = 0
    while flow.outputs or waiting:
        step += 1
        if waiting and step % 2 == 0:
            flow.enter([waiting.pop(0)])
        flow.step()


@pytest.mark.parametrize(
    ("name", "search"),
    [
        (name, search)
        for name in MODELS
        for search in SEARCHES
        if search == "beam" or name in ("sinusoidal", "t5")
    ],
)
def test_an_output_is_that_of_the_sentence_alone(name: str, search: str) -> None:
    model = model_of(Seq2Seq, "transformer", **MODELS[name])
    assert why_plain(model) is None
    draw = torch.Generator().manual_seed(1)
    sources = [torch.randint(4, VOCAB, (size,), generator=draw).tolist() for size in LENGTHS]
    outputs = [
        Output(source, SEARCHES[search](n), limit)
        for n, (source, limit) in enumerate(zip(sources, LIMITS, strict=True))
    ]
    run(Flow(model, 3 if search == "beam" else 1, NEVER, PAD), list(outputs))
    for n, (one, limit) in enumerate(zip(outputs, LIMITS, strict=True)):
        alone = decode(
            model,
            torch.tensor([one.source]),
            torch.tensor([len(one.source)]),
            SEARCHES[search](n),
            [limit],
        )[0]
        assert one.found is not None
        assert [each.tokens for each in one.found] == [each.tokens for each in alone]
        assert [each.finished for each in one.found] == [each.finished for each in alone]
        assert [each.log_prob for each in one.found] == pytest.approx(
            [each.log_prob for each in alone], abs=1e-4
        )


@pytest.mark.parametrize("name", ["sinusoidal", "rotary, grouped heads", "alibi, one head of keys"])
def test_language_models_slide_each_for_itself(name: str) -> None:
    model, block = model_of(CausalLM, "transformer-decoder", **MODELS[name]), 10
    draw = torch.Generator().manual_seed(1)
    prompts = [
        torch.randint(4, VOCAB, (size,), generator=draw).tolist() for size in (1, 9, 3, 10, 14)
    ]
    make = [
        partial(Sample, one[-1], -1, NEVER, temperature=0.9, seed=n)
        for n, one in enumerate(prompts)
    ]
    heard: list[list[int]] = [[] for _ in prompts]
    outputs = [
        Output(one[:-1], make[n](), 25, block, heard[n].append) for n, one in enumerate(prompts)
    ]
    run(Flow(model, 1, NEVER, PAD), list(outputs))
    for n, (one, prompt) in enumerate(zip(outputs, prompts, strict=True)):
        alone = decode(
            SlidingWindow(model, block),
            torch.tensor([prompt[:-1]], dtype=torch.long),
            torch.tensor([len(prompt) - 1]),
            make[n](),
            [25],
        )[0]
        assert one.found is not None
        assert one.found[0].tokens == alone[0].tokens == heard[n]


def test_what_nobody_waits_for_leaves() -> None:
    flow = Flow(model_of(Seq2Seq, "transformer"), 1, (*NEVER, EOS), PAD)
    wanted = [True, True]
    outputs = [
        Output([5, 6, 7 + n], SEARCHES["greedy"](n), 9, is_wanted=lambda n=n: wanted[n])
        for n in range(2)
    ]
    flow.enter(outputs)
    flow.step()
    wanted[0] = False
    assert flow.step() == outputs[:1]
    assert flow.outputs == outputs[1:]
    assert outputs[0].found is None
    assert len(outputs[1].tokens) == 2


def test_a_model_that_changes_between_two_outputs_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weight_layouts, "MIN_PACKED_NUMBERS", 0)
    monkeypatch.setattr(engine, "MIN_PACKED_TOKENS", 0)
    model = model_of(Seq2Seq, "transformer")
    flow = Flow(model, 1, NEVER, PAD)
    for parameter in (None, *model.parameters()):
        if parameter is not None:
            parameter.data.view(-1)[: parameter.numel() // 2] *= -1  # no version counter sees it
        one = Output([5, 6, 7], SEARCHES["greedy"](0), 3)
        run(flow, [one], together=1)
        copied = copy.deepcopy(model)
        [alone] = decode(
            copied, torch.tensor([[5, 6, 7]]), torch.tensor([3]), SEARCHES["greedy"](0), [3]
        )
        assert one.found is not None
        assert one.found[0].log_prob == pytest.approx(alone[0].log_prob, abs=1e-4)


def test_the_memory_of_long_texts_is_given_back_when_they_have_left() -> None:
    """And that of short ones is kept: it is written over."""
    flow = Flow(model_of(Seq2Seq, "transformer"), 1, (*NEVER, EOS), PAD)
    for size, columns in ((MAX_IDLE_POSITIONS, MAX_IDLE_POSITIONS), (MAX_IDLE_POSITIONS + 1, 0)):
        flow.enter([Output([5] * size, SEARCHES["greedy"](n), 2) for n in range(3)])
        while flow.outputs:
            flow.step()
        assert flow.mask.shape[3] == columns
        assert sum(key.shape[2] + value.shape[2] for key, value in flow.pairs) == 2 * columns * len(
            flow.pairs
        )
        assert bool(flow.pairs) == bool(columns)
