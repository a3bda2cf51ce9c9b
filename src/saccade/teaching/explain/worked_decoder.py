"""One output word of a trained translation model with the model's own numbers: scores e, weights a, context c, state s, candidates.
N source tokens, T target tokens, H heads, D width of what is compared, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core import normalizers, record, scores, sites
from ...core.attention import call_of
from ...core.backends import eager
from ...core.mechanism import Ready
from ...core.record import Site
from ...data.batches import on, pad
from ...decoding.session import PlainSession
from ...errors import SaccadeError
from ...tasks.task import device_of
from ...views.document import shorten
from ...views.worked_steps import How, Matrix, Step, Worked, in_order, number, numbered, quote
from .attention_steps import array

MAX_TOKENS = 200  # of a source or a target
MAX_COLUMNS = 8  # numbers of a wide vector
MAX_PRODUCTS = 16  # products of a score that are written out
CANDIDATES = 5


@dataclass
class AttentionCall:
    """One call of an attention layer: its queries, keys and values, and its output."""

    q: Tensor  # 1 H 1 D
    ready: Ready
    mask: Any
    positions: Any
    output: Tensor  # 1 H 1 E


@contextmanager
def capture_calls(site: Site) -> Iterator[list[AttentionCall]]:
    """Collect the calls of one attention layer, including values and outputs, which a record does not keep."""
    calls: list[AttentionCall] = []

    def look(
        q: Tensor, ready: Ready, mask: Any = None, positions: Any = None, *more: Any, **named: Any
    ) -> Tensor:
        output = Site.look(site, q, ready, mask, positions, *more, **named)
        calls.append(AttentionCall(q.detach(), ready, mask, positions, output.detach()))
        return output

    site.look = look  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        del site.look


def cross_site(model: torch.nn.Module, layer: int | None, head: int | None) -> tuple[str, Site]:
    """The attention to the source of a layer (from 1; by default the last)."""
    found = {name: site for name, site in sites(model).items() if site.cross}
    if not found:
        raise SaccadeError(
            "expected a model that attends to its source, which this one does not; use one with attention, such as bahdanau",
            code="no-attention-to-source",
        )
    if layer is not None and not 1 <= layer <= len(found):
        raise SaccadeError(
            f"expected a layer from 1 to {len(found)}, those that attend to the source, got {layer}",
            code="out-of-range",
        )
    return list(found.items())[(layer or len(found)) - 1]


@dataclass
class StepNumbers:
    """A model's numbers at one step."""

    source: list[str]
    target: list[str]  # labels, the last is <eos>
    step: int
    site: str
    heads: int
    head: int
    heard: AttentionCall
    weights: Tensor  # N
    before: Tensor | None  # the decoder's state, where it has one
    after: Tensor | None
    log_probs: Tensor  # V
    wanted: int
    words: Any  # the target's vocabulary
    own: bool  # the target is the model's

    def candidates(self) -> list[tuple[str, float]]:
        """The likeliest tokens and their probabilities."""
        top = self.log_probs.exp().topk(min(CANDIDATES, len(self.log_probs)))
        return [*zip(self.words.labels(top.indices.tolist()), top.values.tolist(), strict=True)]


@torch.no_grad()
def run_to_step(
    system: Any, source: str, target: str | None, step: int, layer: int | None, head: int | None
) -> StepNumbers:
    """Decode up to a step with the target's tokens as input, and capture one attention to the source."""
    task = system.require("align")
    model = system.model.eval()
    name, site = cross_site(model, layer, head)
    if not source.strip():
        raise SaccadeError("the source is empty; give a sentence", code="empty-text")
    if target is not None and not target.strip():
        raise SaccadeError(
            "the target is empty; give a text, or leave --target out", code="empty-text"
        )
    words, ids = task.target, [*task.source.encode_ids([source])[0], task.source.eos]
    if len(ids) > MAX_TOKENS:
        raise SaccadeError(
            f"the source has {len(ids):,} tokens, but at most {MAX_TOKENS} can be followed; shorten it",
            code="text-too-long",
        )
    wanted = system.translate(source).tokens if target is None else words.encode_ids([target])[0]
    wanted = [*wanted, words.eos]
    if len(wanted) > MAX_TOKENS:
        raise SaccadeError(
            f"the target has {len(wanted):,} tokens, but at most {MAX_TOKENS} can be followed; shorten it",
            code="text-too-long",
        )
    if not 1 <= step <= len(wanted):
        shown = shorten(words.decode(wanted, keep_unknown=True), 60)
        raise SaccadeError(
            f"expected a step from 1 to {len(wanted)}, the tokens of '{shown}' and its end, got {step}",
            code="out-of-range",
        )
    fed = [words.bos, *wanted]
    batch, lengths = on(device_of(model), *pad([ids], task.source.pad))
    with record(model, quiet=True) as seen, capture_calls(site) as calls:
        session = PlainSession(model, batch, lengths)
        for n in range(step):
            before = state_of(session)
            logits = session.step(torch.tensor([fed[n]], device=batch.device))
    heads = calls[-1].q.shape[1]
    if head is not None and not 1 <= head <= heads:
        raise SaccadeError(
            f"expected a head from 1 to {heads}, those of {name}, got {head}", code="out-of-range"
        )
    at = (head or 1) - 1
    labels = task.source.label_text(source)
    weights = seen[name].weights([step - 1], [at]).reshape(-1)
    return StepNumbers(
        source=[*labels, "<eos>"],
        target=words.labels(wanted),
        step=step,
        site=name,
        heads=heads,
        head=at,
        heard=calls[-1],
        weights=weights,
        before=before,
        after=state_of(session),
        log_probs=logits[0].float().log_softmax(-1),
        wanted=wanted[step - 1],
        words=words,
        own=target is None,
    )


def state_of(session: PlainSession) -> Tensor | None:
    """The top of a recurrent decoder's state."""
    carried = vars(session.state).get("carried")
    first = carried[0] if isinstance(carried, tuple) and carried else None
    return first[0, -1] if isinstance(first, Tensor) and first.dim() == 3 else None


def explain_step(
    system: Any,
    source: str,
    target: str | None = None,
    step: int = 1,
    layer: int | None = None,
    head: int | None = None,
) -> Worked:
    """How a model computed one output word, with its own numbers."""
    moment = run_to_step(system, source, target, step, layer, head)
    found, site = moment.heard, sites(system.model)[moment.site]
    call = call_of(found.q, found.ready, site.mechanism, found.mask, found.positions, 0.0)
    e, allowed = eager.scores(call)[0, moment.head, 0], call.allowed()
    if allowed is not None:
        hidden = ~allowed.expand(1, call.q.shape[1], 1, len(e))[0, moment.head, 0]
        e = e.masked_fill(hidden, float("-inf"))
    keys, values = (
        one[0, moment.head * one.shape[1] // moment.heads] for one in (call.key, found.ready.value)
    )
    query, context = call.query[0, moment.head, 0], found.output[0, moment.head, 0]
    a = moment.weights
    steps = [
        begin_step(moment),
        ask_step(moment, query, keys, site.mechanism.score),
        *weigh_steps(moment, e, a, site.mechanism, len(query)),
        context_step(moment, values, context),
        output_step(moment),
    ]
    facts: dict[str, Any] = {"source": moment.source, "target": moment.target, "step": step}
    facts |= {"site": moment.site, "head": moment.head + 1}
    every: dict[str, Tensor | None] = {"e": e, "a": a, "c": context, "h": values, "query": query}
    every |= {"keys": keys, "s_before": moment.before, "s_after": moment.after}
    facts |= {name: array(one) for name, one in every.items() if one is not None}
    facts["candidates"] = [{"token": n, "probability": p} for n, p in moment.candidates()]
    facts["token"] = moment.target[step - 1]
    facts["probability"] = float(moment.log_probs[moment.wanted].exp())
    return Worked(f"{source} → {moment.target[step - 1]}", in_order(steps), **facts)


def first_columns(
    name: str,
    matrix: Tensor,
    rows: list[str],
    letter: str,
    how: How | None,
    most: int = MAX_COLUMNS,
) -> Matrix:
    """The first numbers of a wide matrix."""
    cut, whole = matrix[:, :most], matrix.shape[1]
    title = f"{name} (the first {most} of {whole})" if whole > most else name
    return Matrix(title, array(cut), rows, numbered(letter, cut.shape[1]), how)


def begin_step(moment: StepNumbers) -> Step:
    before = " ".join(moment.target[: moment.step - 1]) or "<bos>"
    whose = "The model's own translation" if moment.own else "The given translation"
    text = f"{whose} is {quote(' '.join(moment.target[:-1]))}. So far {quote(before)} is written, and token {moment.step} comes next. "
    text += f"The numbers are those of {moment.site}, head {moment.head + 1} of {moment.heads}."
    return Step("Where we are", text, [])


def ask_step(moment: StepNumbers, query: Tensor, keys: Tensor, score: Any) -> Step:
    """The query, and the keys it is compared with."""
    asked, before, after = moment.heard.q[0, moment.head, 0], moment.before, moment.after

    def same(state: Tensor | None) -> bool:
        return state is not None and state.shape == asked.shape and torch.equal(state, asked)

    who = "The decoder's vector at this step asks"
    if same(after):
        who = "The decoder's state after reading the last word, s_t, asks (Luong)"
    elif same(before):
        who = "The decoder's state before this step, s_(t−1), asks (Bahdanau)"
    made = {"text": "{column} of {row} = {value}, as the model computed it"}
    most = MAX_PRODUCTS if len(query) <= MAX_PRODUCTS else MAX_COLUMNS
    text = f"{who}: a query of {len(query)} numbers, as the score reads it. Each source token has a key."
    shown = [
        first_columns("query", query.unsqueeze(0), ["query"], "q", made, most),
        first_columns("keys", keys, moment.source, "k", made, most),
    ]
    if isinstance(score, scores.Additive):
        shown.append(first_columns("v", score.v[:1], ["v"], "v", made, most))
    if moment.before is not None:
        was = {"text": "{column} of the state before this step = {value}"}
        shown.append(first_columns("s before", moment.before.unsqueeze(0), ["s_(t−1)"], "s", was))
    return Step("The query and the keys", text, shown)


def summary_of(table: Any, part: Any) -> str:
    """The formula of a part from the catalogue, or the name of its class."""
    found = next(
        (entry.summary for entry in table if entry.make is type(part)), type(part).__name__
    )
    return found.partition("; ")[0].rstrip(".")


def weigh_steps(
    moment: StepNumbers, e: Tensor, a: Tensor, mechanism: Any, width: int
) -> list[Step]:
    """From scores to weights."""
    score, source = mechanism.score, moment.source
    summary = summary_of(scores.table, score)
    uses: list[Any] = [["query", 0, None], ["keys", "i", None]]
    text = "e of {row} = {value}: the query with its key"
    if width <= MAX_PRODUCTS and score.dot:
        text = f"e of {{row}} = ({{0·1}}) · {number(score.scale(width))} = {{value}}"
    elif width <= MAX_PRODUCTS and isinstance(score, scores.Additive):
        text, uses = "e of {row} = {2·tanh(0+1)} = {value}", [*uses, ["v", 0, None]]
    elif width > MAX_PRODUCTS:
        text = f"e of {{row}} = {{value}}: {width} numbers of the query with as many of its key"
        uses = []
    found = [one.summary for one in normalizers.table if one.make is type(mechanism.normalize)]
    rule = found[0] if found else "the model's own normalizer"
    how: How = {"text": "{row} gets {value}, made of {0}", "uses": [["e", None, 0], ["e", "i", 0]]}
    if type(mechanism.normalize) is normalizers.Softmax:
        how["text"] = "{row} gets e^({1}) / ({e0}) = {value}"
    best = int(a.argmax())
    most = f"The most, {float(a[best]):.4f}, goes to {quote(source[best])}; all add up to {float(a.sum()):.4f}."
    compared = Matrix("e", array(e.unsqueeze(1)), source, ["e"], {"text": text, "uses": uses})
    shared = Matrix("a", array(a.unsqueeze(1)), source, ["a"], how)
    return [
        Step("Scores e", f"{summary}, for each source token.", [compared]),
        Step("Weights a", f"{rule}. {most}", [shared]),
    ]


def context_step(moment: StepNumbers, values: Tensor, context: Tensor) -> Step:
    """The weighted sum of the values."""
    made = {"text": "{column} of {row} = {value}: what the encoder says of it"}
    shown = first_columns("h", values, moment.source, "h", made)
    how: How = {"text": "{column} = Σ a·h = {0·1} = {value}"}
    how["uses"] = [["a", None, 0], [shown.name, None, "j"]]
    text = f"c = Σ a · h, of {len(context)} numbers: the source as this word needs it."
    summed = first_columns("c", context.unsqueeze(0), ["c"], "c", how)
    return Step("Context c", text, [shown, summed])


def output_step(moment: StepNumbers) -> Step:
    """The most likely tokens."""
    names, chances = zip(*moment.candidates(), strict=True)
    how = {"text": "p({row}) = {value}"}
    shown = [Matrix("candidates", np.array(chances)[:, None], [*names], ["p"], how)]
    if moment.after is not None:
        made = {"text": "{column} of the state after this step = {value}"}
        shown.insert(0, first_columns("s", moment.after.unsqueeze(0), ["s"], "s", made))
    chance = float(moment.log_probs[moment.wanted].exp())
    rank = int((moment.log_probs > moment.log_probs[moment.wanted]).sum()) + 1
    text = f"From all this the likeliest of {len(moment.log_probs):,} tokens: {quote(names[0])}, {chances[0]:.4f}. "
    text += f"The token here, {quote(moment.target[moment.step - 1])}, has {chance:.4f} and rank {rank}."
    return Step("The output word", text, shown)
