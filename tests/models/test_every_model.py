"""What must hold for every model of the catalogue: each family and kind, with each member of each slot that has an effect on it."""

from __future__ import annotations

import copy

import pytest
import torch
from model_helpers import (
    IMAGES,
    LENGTHS,
    NODES,
    SOURCE,
    TARGET,
    Case,
    V,
    cases,
    images_for,
    read,
    settings,
    stepped,
    with_bytes,
)
from torch import Tensor, nn

from saccade import models
from saccade.config.upgrade import upgrade_parameter
from saccade.core.auxiliary_losses import collect
from saccade.models import Decodable, Encoder, ImageEncoder, ImageToText, LookingEncoder, Seq2Seq
from saccade.models.builder import Builder

CASES = cases()
each = pytest.mark.parametrize("case", CASES, ids=str)
TEXTS = [
    case
    for case in CASES
    if issubclass(case.kind, Encoder) and not issubclass(case.kind, ImageEncoder)
]
each_encoder = pytest.mark.parametrize("case", TEXTS, ids=str)
each_image_encoder = pytest.mark.parametrize(
    "case", [case for case in CASES if issubclass(case.kind, ImageEncoder)], ids=str
)
each_decodable = pytest.mark.parametrize(
    "case", [case for case in CASES if issubclass(case.kind, Decodable)], ids=str
)
PAIRS = [
    case
    for case in CASES
    if issubclass(case.kind, Seq2Seq) and not issubclass(case.kind, ImageToText)
]
each_seq2seq = pytest.mark.parametrize("case", PAIRS, ids=str)
each_looking = pytest.mark.parametrize(
    "case", [case for case in CASES if issubclass(case.kind, LookingEncoder)], ids=str
)


WHOLE: dict[str, Tensor] = {}


def whole(case: Case, target: Tensor = TARGET, rows: list[int] | None = None) -> Tensor:
    """The logits of the whole pass: B T V; for `TARGET`, computed once."""
    if target is TARGET and rows is None:
        if str(case) not in WHOLE:
            with torch.enable_grad():
                WHOLE[str(case)] = compute(case, TARGET, None).detach()
        return WHOLE[str(case)]
    return compute(case, target, rows)


def compute(case: Case, target: Tensor, rows: list[int] | None) -> Tensor:
    if not issubclass(case.kind, Seq2Seq):
        return case.make()(target)
    rows = list(range(len(SOURCE))) if rows is None else rows
    return case.make()(sources(case)[rows], LENGTHS[rows], target)


def sources(case: Case) -> Tensor:
    return IMAGES if issubclass(case.kind, ImageToText) else SOURCE


def begin(case: Case) -> tuple[Tensor, Tensor]:
    """What `start` takes: sources, or empty prompts."""
    return (
        (sources(case), LENGTHS)
        if issubclass(case.kind, Seq2Seq)
        else (TARGET[:, :0], torch.zeros(3).long())
    )


def test_every_family_and_kind_is_here() -> None:
    built = {(case.family, case.kind) for case in CASES}
    for entry in models.table:
        assert entry.summary
        for kind, build in entry.make.builds.items():
            if kind in NODES:
                continue
            same = [other.name for other in models.table if build in other.make.builds.values()]
            assert any((name, kind) in built for name in same), (entry.name, kind)
    assert len({str(case) for case in CASES}) == len(CASES), "no case hides another"


def test_every_member_of_every_slot_is_here() -> None:
    slots = {
        f.name: f.metadata["table"]
        for entry in models.table
        if set(NODES).isdisjoint(entry.make.builds)
        for f in entry.make.config.__dataclass_fields__.values()
        if "table" in f.metadata
        and f.name != "pool"  # pools belong to classifiers: see test_encoders.py
    }
    for slot, table in slots.items():
        chosen = [case.changed[slot] for case in CASES if slot in case.changed]
        names = {value["name"] if isinstance(value, dict) else value for value in chosen}
        configs = [entry.make.config.__dataclass_fields__ for entry in models.table]
        defaults = {
            table.name_of(fields[slot].default.make)
            for fields in configs
            if slot in fields and "table" in fields[slot].metadata
        }
        assert names | defaults >= {entry.name for entry in table if not entry.per_batch}, slot


@each_encoder
@torch.no_grad()
def test_padding_is_invisible_to_an_encoder(case: Case) -> None:
    model = case.make()
    longer = torch.where(
        torch.arange(8) < LENGTHS[:, None],
        nn.functional.pad(SOURCE, (0, 3)),
        torch.randint(0, V, (3, 8)),
    )
    found = read(model, longer, LENGTHS)
    assert found.shape == (3, 8, model.dim)
    for b, length in enumerate(LENGTHS.tolist()):
        alone = read(model, SOURCE[b : b + 1, :length], LENGTHS[b : b + 1])
        torch.testing.assert_close(found[b : b + 1, :length], alone)


@each_seq2seq
@torch.no_grad()
def test_padding_is_invisible_in_a_source_and_every_token_is_seen(case: Case) -> None:
    model, found = case.make(), whole(case)
    longer = torch.where(
        torch.arange(8) < LENGTHS[:, None],
        nn.functional.pad(SOURCE, (0, 3)),
        torch.randint(0, V, (3, 8)),
    )
    torch.testing.assert_close(model(longer, LENGTHS, TARGET), found)
    for b, length in enumerate(LENGTHS.tolist()):
        alone = model(SOURCE[b : b + 1, :length], LENGTHS[b : b + 1], TARGET[b : b + 1])
        torch.testing.assert_close(found[b : b + 1], alone)
    other = SOURCE[:1].masked_fill(torch.eye(5).bool(), 8)  # one token changed in each row
    moved = model(other, LENGTHS[:1].expand(5), TARGET[:1].expand(5, -1)) - found[:1]
    seen = moved.abs().amax((1, 2)) > 1e-9
    # a sparse normalizer may look past a word
    assert seen.any() if "normalize" in case.changed else seen.all()


@each_encoder
@torch.no_grad()
def test_a_position_sees_its_own_token_and_those_its_family_lets_it_see(case: Case) -> None:
    model = case.make()
    if case.family == "window-mlp":
        model.encoder.bias.fill_(10.0)  # no unit of its ReLU is at 0
    # one token changed in each row but the first
    other = torch.cat([SOURCE[:1], SOURCE[:1].masked_fill(torch.eye(5).bool(), 8)])
    found = read(model, other, LENGTHS[:1].expand(6))
    for n in range(5):
        moved = ((found[n + 1] - found[0]).abs().amax(-1) > 1e-12).tolist()
        assert moved[n]
        if case.family == "bag":
            assert moved == [m == n for m in range(5)]
        elif case.family == "window-mlp":
            assert moved == [abs(m - n) <= model.window for m in range(5)]
        elif not model.sees_ahead:
            assert not any(moved[:n])
        elif not {"mask", "mixer", "normalize"} & set(case.changed):  # these may hide some
            assert all(moved)


@each_image_encoder
@torch.no_grad()
def test_an_image_encoder_gives_a_vector_per_place_by_the_image_alone(case: Case) -> None:
    model = case.make()
    images = images_for(model)
    found, size = model(images), images.shape[-1]
    rows, columns = model.grid(size, size)
    assert found.shape == (2, rows * columns, model.dim)
    torch.testing.assert_close(
        model(images[1:], torch.tensor([1])), found[1:], msg="neither the batch nor lengths matter"
    )
    lit = (255 * images).round().to(torch.uint8)
    torch.testing.assert_close(model(lit), model(lit.double() / 255), msg="bytes")
    moved = images.clone()
    moved[:, :, -1, -1] = 1 - moved[:, :, -1, -1]
    assert (model(moved)[:, -1] != found[:, -1]).any(), "the last pixel reaches the last place"
    for height, width in ((size + 3, size), (size, 2 * size + 5)):
        rows, columns = model.grid(height, width)
        # these may know a largest number of places
        if not {"mixer", "position"} & set(case.changed):
            assert model(torch.rand(1, 3, height, width, dtype=found.dtype)).shape == (
                1,
                rows * columns,
                model.dim,
            )


@each_looking
@torch.no_grad()
def test_every_token_looks_at_the_image_of_its_text(case: Case) -> None:
    model = case.make()
    words = (
        SOURCE[:1].expand(3, -1)
        if not model.embedding.reads_bytes
        else with_bytes(model, SOURCE[:1].expand(3, -1))
    )
    lengths, which = torch.full((3,), 5), torch.tensor([2, 0, 2])
    found = model(words, lengths, IMAGES, which)
    torch.testing.assert_close(found[0], found[2])
    torch.testing.assert_close(
        found, model(words, lengths, IMAGES[which]), msg="several texts share an image"
    )
    moved = ((found[0] - found[1]).abs().amax(-1) > 1e-9).tolist()
    assert any(moved) if "normalize" in case.changed else all(moved)


@each_decodable
@torch.no_grad()
def test_the_future_is_invisible(case: Case) -> None:
    found = whole(case)
    for t in (1, 3):
        other = TARGET.clone()
        other[:, t:] = (other[:, t:] + 5) % V
        after = whole(case, other)
        torch.testing.assert_close(after[:, :t], found[:, :t])
        assert not torch.allclose(after[:, t], found[:, t])


@each_decodable
def test_cached_steps_are_the_whole_pass(case: Case) -> None:
    model, expected = case.make(), whole(case)
    # with gradients; without them: the next test
    torch.testing.assert_close(stepped(model, TARGET, *begin(case)), expected)
    if not issubclass(case.kind, Seq2Seq):
        with torch.no_grad():
            after = stepped(model, TARGET[:, 2:], TARGET[:, :2], torch.full((3,), 2))
        torch.testing.assert_close(after, expected[:, 2:], msg="after a prompt")


@each_decodable
@torch.no_grad()
def test_a_state_is_a_value_with_a_clock_and_rows_that_repeat_move_and_leave(case: Case) -> None:
    model, start = case.make(), case.make().start(*begin(case))
    assert start.length == 0
    _, state = model.step(TARGET[:, 0], start)
    _, state = model.step(TARGET[:, 1], state)
    assert (start.length, state.length) == (0, 2)
    first, after = model.step(TARGET[:, 2], state)
    again, _ = model.step(TARGET[:, 2], state)
    # another continuation of the same state must not reach the first one
    other, _ = model.step(TARGET[:, 3], state)
    last, _ = model.step(TARGET[:, 3], after)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    expected = whole(case)
    torch.testing.assert_close(first, expected[:, 2])
    torch.testing.assert_close(last, expected[:, 3])
    for rows in ([2, 0, 0, 1, 1], [1]):
        moved, target = (
            state.reorder(torch.tensor(rows)),
            torch.cat([TARGET[rows, :2], torch.tensor([[7, 3]] * len(rows))], 1),
        )
        for t in (2, 3):
            logits, moved = model.step(target[:, t], moved)
        torch.testing.assert_close(logits, whole(case, target, rows)[:, -1])
    assert torch.equal(model.step(TARGET[:, 2], state)[0], first), (
        "the state it was reordered from is as it was"
    )


@each
def test_gradients_reach_every_parameter_and_a_copy_is_a_model_of_its_own(case: Case) -> None:
    model = copy.deepcopy(case.make())
    names = list(model.state_dict())
    assert [upgrade_parameter(name) for name in names] == names, (
        "a saved model would not load: old folders mean another parameter"
    )
    assert {id(p) for p in model.parameters()}.isdisjoint(id(p) for p in case.make().parameters())
    assert [p.shape for p in model.parameters()] == [p.shape for p in case.make().parameters()], (
        "tied parameters stay tied"
    )

    def run(one: nn.Module) -> Tensor:
        if isinstance(one, Seq2Seq):
            return one(sources(case), LENGTHS, TARGET)
        if isinstance(one, ImageEncoder):
            return one(images_for(one))
        return read(one, SOURCE, LENGTHS) if isinstance(one, Encoder) else one(TARGET)

    expected = whole(case) if isinstance(model, Decodable) else run(case.make()).detach()
    found = run(model)
    assert torch.equal(found, expected)
    pull = torch.randn(found.shape)
    if any(getattr(part, "samples", False) for part in model.modules()):
        # the place of the largest score has no gradient, log p of a sampled one has
        with collect() as left:
            found = run(model.train())
        sum(one.log_prob.square().sum() for one in left.samples).backward(retain_graph=True)
    (found * pull).sum().backward()
    unreached = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    ]
    idle = {
        f"{path}.{name}"
        for path, part in model.named_modules()
        for name in getattr(part, "only_in_training", ())
    }
    # a key's bias moves all scores of a row alike: a softmax is blind to it
    seen = [name for name in unreached if not name.endswith(".k.bias") and name not in idle]
    assert not seen
    assert all(parameter.grad is None for parameter in case.make().parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(run(case.make()), expected), "it shares nothing with what it was copied from"


# dynamo makes one of torch itself when it meets an autograd.Function
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "changed",
    [
        {
            "score": "additive",
            "normalize": "entmax-1.5",
            "position": "shaw",
            "residual": "rezero",
            "feedforward": "swiglu",
        },
        {
            "stack": "shared",
            "depth": 2,
            "embedding": {"name": "factorized", "rank": 3},
            "head": "mixture",
            "position": "rotary",
        },
        *(
            pytest.param(changed, marks=pytest.mark.slow)
            for changed in (
                {
                    "mixer": {"name": "light-convolution", "width": 3},
                    "residual": "rezero",
                    "feedforward": "swiglu",
                },
                {
                    "mask": {"name": "window", "left": 2},
                    "norm": "rms",
                    "position": "t5",
                    "kv_heads": 1,
                },
                {
                    "stack": "universal",
                    "depth": 2,
                    "mixer": {"name": "dynamic-convolution", "width": 3},
                },
                {
                    "stack": "funnel",
                    "depth": 2,
                    "position": "t5",
                    "feedforward": {"name": "product-key", "subkeys": 3, "top": 2},
                },
                {"stack": "transparent", "block": "evolved"},
                {"block": "weighted"},
            )
        ),
    ],
    ids=str,
)
def test_a_transformer_is_one_graph_for_the_compiler(changed: dict[str, object]) -> None:
    torch._dynamo.reset()
    model = Case("transformer", Seq2Seq, {"depth": 1, **changed}).make()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "family", [entry.name for entry in models.table if Seq2Seq in entry.make.builds]
)
def test_two_vocabularies_of_different_sizes(family: str) -> None:
    apart = (
        {"shared": False} if "shared" in models.table[family].config.__dataclass_fields__ else {}
    )
    model = Builder(settings(family, **apart)).make(Seq2Seq, V, V + 4)
    assert model(SOURCE, LENGTHS, TARGET + 4).shape == (3, 4, V + 4)
