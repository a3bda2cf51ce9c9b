"""One output word of a trained translation model with the model's own numbers: scores e, weights a, context c, state s, candidates.
N source tokens, T target tokens, H heads, D width of what is compared, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
from ...views.worked_steps import How, Matrix, Step, Worked, number, numbered, quote, shorten
from .attention_steps import array

MOST_TOKENS = 200  # of a source or a target
SHOWN = 8  # numbers of a wide vector
FOLLOWED = 16  # products of a score that are written out
CANDIDATES = 5


@dataclass
class Heard:
    """One call of a layer that attends: what asked, what was read, and what came out."""

    q: Tensor  # 1 H 1 D
    ready: Ready
    mask: Any
    positions: Any
    output: Tensor  # 1 H 1 E


@contextmanager
def overheard(site: Site) -> Iterator[list[Heard]]:
    """Within the `with`, the calls of one layer that attends, also their values and outputs, which a record does not keep."""
    calls: list[Heard] = []

    def look(
        q: Tensor, ready: Ready, mask: Any = None, positions: Any = None, *more: Any, **named: Any
    ) -> Tensor:
        output = Site.look(site, q, ready, mask, positions, *more, **named)
        calls.append(Heard(q.detach(), ready, mask, positions, output.detach()))
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
            "expected a model that attends to its source, which this one does not; use one with attention, such as bahdanau"
        )
    if layer is not None and not 1 <= layer <= len(found):
        raise SaccadeError(
            f"expected a layer from 1 to {len(found)}, those that attend to the source, got {layer}"
        )
    return list(found.items())[(layer or len(found)) - 1]


@dataclass
class Moment:
    """A model's numbers at one step."""

    source: list[str]
    target: list[str]  # labels, the last is <eos>
    step: int
    site: str
    heads: int
    head: int
    heard: Heard
    weights: Tensor  # N
    before: Tensor | None  # the decoder's state, where it has one
    after: Tensor | None
    log_probs: Tensor  # V
    wanted: int
    words: Any  # the target's vocabulary
    own: bool  # the target is the model's


@torch.no_grad()
def find_moment(
    system: Any, source: str, target: str | None, step: int, layer: int | None, head: int | None
) -> Moment:
    """Decodes up to a step, the target's tokens fed in, and listens to one attention to the source."""
    task = system.require("align")
    model = system.model.eval()
    name, site = cross_site(model, layer, head)
    if not source.strip():
        raise SaccadeError("the source is empty; give a sentence")
    if target is not None and not target.strip():
        raise SaccadeError("the target is empty; give a text, or leave --target out")
    words, ids = task.target, [*task.source.encode_ids([source])[0], task.source.eos]
    if len(ids) > MOST_TOKENS:
        raise SaccadeError(
            f"the source has {len(ids):,} tokens, but at most {MOST_TOKENS} can be followed; shorten it"
        )
    wanted = system.translate(source).tokens if target is None else words.encode_ids([target])[0]
    wanted = [*wanted, words.eos]
    if len(wanted) > MOST_TOKENS:
        raise SaccadeError(
            f"the target has {len(wanted):,} tokens, but at most {MOST_TOKENS} can be followed; shorten it"
        )
    if not 1 <= step <= len(wanted):
        shown = shorten(words.decode(wanted, keep_unknown=True), 60)
        raise SaccadeError(
            f"expected a step from 1 to {len(wanted)}, the tokens of '{shown}' and its end, got {step}"
        )
    fed = [words.bos, *wanted]
    batch, lengths = on(device_of(model), *pad([ids], task.source.pad))
    with record(model, quiet=True) as seen, overheard(site) as calls:
        session = PlainSession(model, batch, lengths)
        for n in range(step):
            before = state_of(session)
            logits = session.step(torch.tensor([fed[n]], device=batch.device))
    heads = calls[-1].q.shape[1]
    if head is not None and not 1 <= head <= heads:
        raise SaccadeError(f"expected a head from 1 to {heads}, those of {name}, got {head}")
    at = (head or 1) - 1
    labels = task.source.label_text(source)
    return Moment(
        [*labels, "<eos>"], words.labels(wanted), step, name, heads, at, calls[-1], seen[name].weights([step - 1], [at]).reshape(-1),
        before, state_of(session), logits[0].float().log_softmax(-1), wanted[step - 1], words, target is None,
    )  # fmt: skip


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
    """How a model came to one output word, by the numbers that it computed."""
    moment = find_moment(system, source, target, step, layer, head)
    found, site = moment.heard, sites(system.model)[moment.site]
    call = call_of(found.q, found.ready, site.mechanism, found.mask, found.positions, 0.0)
    e, allowed = eager.scores(call)[0, moment.head, 0], call.allowed()
    if allowed is not None:
        hidden = ~allowed.expand(1, call.q.shape[1], 1, len(e))[0, moment.head, 0]
        e = e.masked_fill(hidden, float("-inf"))
    keys, values = (
        one[0, moment.head * one.shape[1] // moment.heads] for one in (call.key, found.ready.value)
    )
    query, context, a = (
        call.query[0, moment.head, 0],
        found.output[0, moment.head, 0],
        moment.weights,
    )
    steps = [
        begin_step(moment),
        ask_step(moment, query, keys, site.mechanism.score),
        *weigh_steps(moment, e, a, site.mechanism, len(query)),
        context_step(moment, values, context),
        output_step(moment),
    ]
    numbered_steps = [one._replace(title=f"{n}. {one.title}") for n, one in enumerate(steps, 1)]
    top = moment.log_probs.exp().topk(min(CANDIDATES, len(moment.log_probs)))
    names = moment.words.labels(top.indices.tolist())
    facts: dict[str, Any] = {
        "source": moment.source,
        "target": moment.target,
        "step": step,
        "site": moment.site,
        "head": moment.head + 1,
    }
    facts |= {
        "e": array(e),
        "a": array(a),
        "c": array(context),
        "h": array(values),
        "query": array(query),
        "keys": array(keys),
    }
    facts |= {
        f"s_{name}": array(one)
        for name, one in (("before", moment.before), ("after", moment.after))
        if one is not None
    }
    facts["candidates"] = [
        {"token": n, "probability": p} for n, p in zip(names, top.values.tolist(), strict=True)
    ]
    facts |= {
        "token": moment.target[step - 1],
        "probability": float(moment.log_probs[moment.wanted].exp()),
    }
    return Worked(f"{source} → {moment.target[step - 1]}", numbered_steps, **facts)


def narrow(
    name: str, matrix: Tensor, rows: list[str], letter: str, how: How | None, most: int = SHOWN
) -> Matrix:
    """The first numbers of a wide matrix."""
    cut = matrix[:, :most]
    title = (
        name
        if cut.shape[1] == matrix.shape[1]
        else f"{name} (the first {most} of {matrix.shape[1]})"
    )
    return Matrix(title, array(cut), rows, numbered(letter, cut.shape[1]), how)


def begin_step(moment: Moment) -> Step:
    before = " ".join(moment.target[: moment.step - 1]) or "<bos>"
    whose = "The model's own translation" if moment.own else "The given translation"
    text = f"{whose} is {quote(' '.join(moment.target[:-1]))}. So far {quote(before)} is written, and token {moment.step} comes next. "
    return Step(
        "Where we are",
        text + f"The numbers are those of {moment.site}, head {moment.head + 1} of {moment.heads}.",
        [],
    )


def ask_step(moment: Moment, query: Tensor, keys: Tensor, score: Any) -> Step:
    """What asks, and what it is compared with."""
    asked, before, after = moment.heard.q[0, moment.head, 0], moment.before, moment.after
    same = lambda state: (
        state is not None and state.shape == asked.shape and torch.equal(state, asked)
    )
    who = (
        "The decoder's state before this step, s_(t−1), asks (Bahdanau)"
        if same(before)
        else "The decoder's vector at this step asks"
    )
    who = (
        "The decoder's state after reading the last word, s_t, asks (Luong)" if same(after) else who
    )
    made = {"text": "{column} of {row} = {value}, as the model computed it"}
    most = FOLLOWED if len(query) <= FOLLOWED else SHOWN
    text = f"{who}: a query of {len(query)} numbers, as the score reads it. Each source token has a key."
    extra = (
        [narrow("v", score.v[:1], ["v"], "v", made, most)]
        if isinstance(score, scores.Additive)
        else []
    )
    if moment.before is not None:
        was = {"text": "{column} of the state before this step = {value}"}
        extra.append(narrow("s before", moment.before.unsqueeze(0), ["s_(t−1)"], "s", was))
    return Step("The query and the keys", text, [
        narrow("query", query.unsqueeze(0), ["query"], "q", made, most), narrow("keys", keys, moment.source, "k", made, most), *extra,
    ])  # fmt: skip


def summary_of(table: Any, part: Any) -> str:
    """The formula of a part, as the catalogue has it; a part of one's own has its name."""
    found = next(
        (entry.summary for entry in table if entry.make is type(part)), type(part).__name__
    )
    return found.partition("; ")[0].rstrip(".")


def weigh_steps(moment: Moment, e: Tensor, a: Tensor, mechanism: Any, width: int) -> list[Step]:
    """From scores to weights."""
    score, source = mechanism.score, moment.source
    summary = summary_of(scores.table, score)
    uses, text = (
        [["query", 0, None], ["keys", "i", None]],
        "e of {row} = {value}: the query with its key",
    )
    if width <= FOLLOWED and score.dot:
        text = f"e of {{row}} = ({{0·1}}) · {number(score.scale(width))} = {{value}}"
    elif width <= FOLLOWED and isinstance(score, scores.Additive):
        text, uses = "e of {row} = {2·tanh(0+1)} = {value}", [*uses, ["v", 0, None]]
    elif width > FOLLOWED:
        text, uses = (
            f"e of {{row}} = {{value}}: {width} numbers of the query with as many of its key",
            [],
        )
    soft = type(mechanism.normalize) is normalizers.Softmax
    rule = next(
        (entry.summary for entry in normalizers.table if entry.make is type(mechanism.normalize)),
        "the model's own normalizer",
    )
    how: How = {
        "text": "{row} gets e^({1}) / ({e0}) = {value}"
        if soft
        else "{row} gets {value}, made of {0}",
        "uses": [["e", None, 0], ["e", "i", 0]],
    }
    best = int(a.argmax())
    most = f"The most, {float(a[best]):.4f}, goes to {quote(source[best])}; all add up to {float(a.sum()):.4f}."
    return [
        Step(
            "Scores e",
            f"{summary}, for each source token.",
            [Matrix("e", array(e.unsqueeze(1)), source, ["e"], {"text": text, "uses": uses})],
        ),
        Step(
            "Weights a", f"{rule}. {most}", [Matrix("a", array(a.unsqueeze(1)), source, ["a"], how)]
        ),
    ]


def context_step(moment: Moment, values: Tensor, context: Tensor) -> Step:
    """The weighted sum of what is read."""
    shown = narrow(
        "h",
        values,
        moment.source,
        "h",
        {"text": "{column} of {row} = {value}: what the encoder says of it"},
    )
    how: How = {
        "text": "{column} = Σ a·h = {0·1} = {value}",
        "uses": [["a", None, 0], [shown.name, None, "j"]],
    }
    text = f"c = Σ a · h, of {len(context)} numbers: the source as this word needs it."
    return Step("Context c", text, [shown, narrow("c", context.unsqueeze(0), ["c"], "c", how)])


def output_step(moment: Moment) -> Step:
    """What state and context make likely."""
    top = moment.log_probs.exp().topk(min(CANDIDATES, len(moment.log_probs)))
    names = moment.words.labels(top.indices.tolist())
    shown = [
        Matrix(
            "candidates",
            array(top.values.unsqueeze(1)),
            names,
            ["p"],
            {"text": "p({row}) = {value}"},
        )
    ]
    if moment.after is not None:
        made = {"text": "{column} of the state after this step = {value}"}
        shown.insert(0, narrow("s", moment.after.unsqueeze(0), ["s"], "s", made))
    chance = float(moment.log_probs[moment.wanted].exp())
    rank = int((moment.log_probs > moment.log_probs[moment.wanted]).sum()) + 1
    text = f"From all this the likeliest of {len(moment.log_probs):,} tokens: {quote(names[0])}, {float(top.values[0]):.4f}. "
    text += f"The token here, {quote(moment.target[moment.step - 1])}, has {chance:.4f} and rank {rank}."
    return Step("The output word", text, shown)
