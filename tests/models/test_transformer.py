"""Transformers against torch.nn's with the same parameters, and what must hold for every one of them."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from saccade import models
from saccade.core import masks, normalizers, positions, scores
from saccade.errors import SaccadeError
from saccade.layers import embeddings, norms, residuals
from saccade.layers.attention import MultiHeadAttention
from saccade.layers.block import Stack
from saccade.models import LanguageModel, Transformer, TransformerEncoder
from saccade.models.families import Choice, MechanismPlan
from saccade.models.transformer import Parts, Shape, count

V, TINY = 13, {"dim": 8, "hidden": 16, "depth": 2, "heads": 2, "dropout": 0.0, "max_len": 30}
SOURCE, LENGTHS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0], [7, 0, 0, 0, 0]]), torch.tensor([5, 3, 1])
TARGET = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])


def built(family: str = "transformer", **changed: object) -> nn.Module:
    """A tiny model; keywords are fields of its shape or of its parts."""
    sizes = {**TINY, **{name: value for name, value in changed.items() if name in Shape.__dataclass_fields__}}
    parts = models.table[family].parts(**{name: value for name, value in changed.items() if name not in sizes})
    return models.table[family].build(V, V, Shape(**sizes), parts).eval()


def plan(score: str = "scaled-dot", normalize: str = "softmax", position: str = "none", **options: object) -> MechanismPlan:
    return MechanismPlan(
        Choice(scores.table[score]), Choice(normalizers.table[normalize]), position=Choice(positions.table[position], options)
    )


def test_every_family_is_tested_here_or_among_the_rnns() -> None:
    here, rnns, bodies = (
        {"transformer", "transformer-decoder", "transformer-encoder"},
        {"fixed-first", "fixed-context", "bahdanau", "luong"},
        {"bag", "rnn-encoder", "rnn-decoder"},
    )
    assert here | rnns | bodies == set(models.table.names())
    assert all(entry.summary for entry in models.table)


# --- against torch.nn ---


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.q.weight, ours.k.weight, ours.v.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.q.bias, ours.k.bias, ours.v.bias]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


@torch.no_grad()
def copy_stack(ours: Stack, theirs: nn.Module) -> None:
    for parameter in ours.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    for one, other in zip(ours, theirs.layers, strict=True):
        copy_attention(one.attention, other.self_attn)
        other.linear1.load_state_dict(one.mlp.inner.state_dict())
        other.linear2.load_state_dict(one.mlp.outer.state_dict())
        around = [one.around_attention, one.around_mlp]
        if one.cross is not None:
            copy_attention(one.cross, other.multihead_attn)
            around.insert(1, one.around_cross)
        for n, residual in enumerate(around, 1):
            getattr(other, f"norm{n}").load_state_dict(residual.norm.state_dict())
    if theirs.norm is not None:
        theirs.norm.load_state_dict(ours.norm.state_dict())


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_encoder_and_decoder_are_pytorchs_with_the_same_parameters(pre_norm: bool, activation: str) -> None:
    residual = residuals.PreNorm if pre_norm else residuals.PostNorm
    model = built(depth=3, residual=residual, activation=getattr(nn.functional, activation)).double()
    options = {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": pre_norm, "dtype": torch.float64}
    norm = [nn.LayerNorm(8, dtype=torch.float64) if pre_norm else None for _ in range(2)]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, **options), 3, norm[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **options), 3, norm[1])
    copy_stack(model.encoder, encoder)
    copy_stack(model.decoder, decoder)
    padded = torch.arange(5) >= LENGTHS[:, None]
    future = torch.ones(4, 4).triu(1).bool()

    memory = encoder(model.source(SOURCE), src_key_padding_mask=padded)
    features = decoder(model.target(TARGET), memory, tgt_mask=future, memory_key_padding_mask=padded, tgt_is_causal=True)
    expected = features @ model.head.weight.T
    found = model(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(found, expected)

    pull = torch.randn_like(found)
    ours = torch.autograd.grad(
        found, [model.source.tokens.weight, model.encoder[0].mlp.inner.weight, model.decoder[0].cross.out.weight], pull
    )
    theirs = torch.autograd.grad(
        expected,
        [model.source.tokens.weight, encoder.layers[0].linear1.weight, decoder.layers[0].multihead_attn.out_proj.weight],
        pull,
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_the_defaults_are_the_base_model() -> None:
    with torch.device("meta"):
        model = Transformer(37000, 37000, Shape(), Parts())
    attention, mlp, norm = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 512 + 2048, 2 * 512
    layers = 6 * (attention + mlp + 2 * norm) + 6 * (2 * attention + mlp + 3 * norm)
    assert count(model) == layers + 2 * norm + 2 * 37000 * 512
    assert (len(model.encoder), len(model.decoder), model.encoder[0].attention.heads) == (6, 6, 8)


def test_a_tied_head_shares_the_targets_vectors() -> None:
    tied, untied = built(), built(tied=False)
    assert tied.head.weight is tied.target.tokens.weight
    assert untied.head.weight is not untied.target.tokens.weight
    assert count(untied) == count(tied) + V * 8


def test_a_shared_embedding_is_one_for_source_target_and_head() -> None:
    model, apart = built(shared=True), built()
    assert model.source is model.target
    assert model.head.weight is model.source.tokens.weight
    assert count(model) == count(apart) - V * 8
    assert built(shared=True, tied=False).head.weight is not model.source.tokens.weight
    torch.testing.assert_close(stepped(model, TARGET, SOURCE, LENGTHS), model(SOURCE, LENGTHS, TARGET), rtol=1e-4, atol=1e-5)
    with pytest.raises(SaccadeError, match=r"one embedding for 13 source and 14 target tokens; set vocabulary\.joint=true"):
        Transformer(V, V + 1, Shape(**TINY, shared=True), Parts())


# --- what holds for all of them ---

KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "post-norm, rms": {"residual": residuals.PostNorm, "norm": norms.RMSNorm},
    "learned, concatenated": {"places": embeddings.Learned, "entry": embeddings.Concatenate},
    "grouped heads": {"heads": 4, "kv_heads": 2},
    "grouped heads, additive": {"heads": 4, "kv_heads": 1, "mechanism": plan("additive")},
    "window": {"mechanism": MechanismPlan(mask=Choice(masks.window, {"left": 2}))},
    "blocks": {"mechanism": MechanismPlan(mask=Choice(masks.blocks, {"length": 20, "size": 2, "random": 0}))},
    **{f"position {name}": {"mechanism": plan(position=name)} for name in positions.table.names() if name != "syntax"},
    "position added, learned": {"mechanism": plan(position="added", max_len=20)},
}
each_kind = pytest.mark.parametrize("kind", sorted(KINDS))


def stepped(model: nn.Module, target: Tensor, *source: Tensor) -> Tensor:
    state, logits = model.start(*source), []
    for t in range(target.shape[1]):
        found, state = model.step(target[:, t], state)
        logits.append(found)
    return torch.stack(logits, 1)


@each_kind
def test_cached_steps_are_the_whole_pass(kind: str) -> None:
    model = built(**KINDS[kind])
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            whole = model(SOURCE, LENGTHS, TARGET)
            torch.testing.assert_close(stepped(model, TARGET, SOURCE, LENGTHS), whole, rtol=1e-4, atol=1e-5)
    language = built("transformer-decoder", **KINDS[kind])
    whole = language(TARGET)
    torch.testing.assert_close(stepped(language, TARGET, TARGET[:, :0], torch.zeros(3).long()), whole, rtol=1e-4, atol=1e-5)
    after = stepped(language, TARGET[:, 2:], TARGET[:, :2], torch.full((3,), 2))
    torch.testing.assert_close(after, whole[:, 2:], rtol=1e-4, atol=1e-5, msg="after a prompt")


@each_kind
def test_padding_is_invisible(kind: str) -> None:
    model, encoder = built(**KINDS[kind]), built("transformer-encoder", **KINDS[kind])
    longer = torch.cat([SOURCE, torch.randint(0, V, (3, 4))], 1)
    longer = torch.where(torch.arange(9) < LENGTHS[:, None], longer, torch.randint(0, V, (3, 9)))
    torch.testing.assert_close(model(longer, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET), rtol=1e-4, atol=1e-5)
    for b, length in enumerate(LENGTHS.tolist()):
        alone = encoder(SOURCE[b : b + 1, :length], LENGTHS[b : b + 1])
        torch.testing.assert_close(encoder(longer, LENGTHS)[b : b + 1, :length], alone, rtol=1e-4, atol=1e-5)


@each_kind
def test_the_future_is_invisible(kind: str) -> None:
    model, language = built(**KINDS[kind]), built("transformer-decoder", **KINDS[kind])
    for t in (1, 3):
        other = TARGET.clone()
        other[:, t:] = (other[:, t:] + 5) % V
        for before, after in (
            (model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, other)),
            (language(TARGET), language(other)),
        ):
            torch.testing.assert_close(after[:, :t], before[:, :t])
            assert not torch.allclose(after[:, t], before[:, t])


def test_packed_documents_do_not_see_each_other() -> None:
    model = built("transformer-decoder", places=embeddings.NoPlaces, mechanism=plan(position="rotary"))
    packed = model(TARGET[:1], masks.documents([[0, 0, 1, 1]]))
    torch.testing.assert_close(packed[:, :2], model(TARGET[:1, :2]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(packed[:, 2:], model(TARGET[:1, 2:]), rtol=1e-4, atol=1e-5)


PACKED = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])
STARTS = [[0, 3, 7], [0, 1, 5, 7]]  # where documents begin in each row, and the end


by_distance = pytest.mark.parametrize("kind", sorted(set(KINDS) - {"blocks"}))  # blocks begin at absolute places


@by_distance
def test_packed_documents_are_the_documents_alone_when_places_restart(kind: str) -> None:
    model = built("transformer-decoder", **KINDS[kind]).double()
    ids, places = torch.zeros_like(PACKED), torch.zeros_like(PACKED)
    for row, starts in enumerate(STARTS):
        for n, (start, end) in enumerate(pairwise(starts)):
            ids[row, start:end], places[row, start:end] = n, torch.arange(end - start)
    found = model(PACKED, masks.documents(ids), places)
    torch.testing.assert_close(found, model.head(model.features(PACKED, masks.documents(ids), places)))
    for row, starts in enumerate(STARTS):
        for start, end in pairwise(starts):
            alone = model(PACKED[row : row + 1, start:end])
            torch.testing.assert_close(found[row : row + 1, start:end], alone)


@by_distance
def test_an_encoder_takes_places_and_a_mask_of_its_own(kind: str) -> None:
    encoder = built("transformer-encoder", **KINDS[kind]).double()
    usual = encoder(SOURCE, LENGTHS)
    torch.testing.assert_close(encoder(SOURCE, LENGTHS, masks.full(), torch.arange(5)), usual)
    torch.testing.assert_close(encoder(SOURCE, LENGTHS, positions=torch.arange(5).expand(3, -1)), usual)
    other = SOURCE.clone()
    other[0, 3:] = 8
    causal = [encoder(tokens, LENGTHS, masks.causal())[0, :3] for tokens in (SOURCE, other)]
    torch.testing.assert_close(*causal)
    mirrored = encoder(SOURCE[:1].flip(1), LENGTHS[:1], positions=torch.arange(5).flip(0))
    torch.testing.assert_close(mirrored.flip(1), usual[:1], msg="tokens and places turned around together")


@torch.no_grad()
def test_rows_of_a_state_repeat_move_and_leave() -> None:
    model = built(mechanism=plan(position="rotary"))
    state = model.start(SOURCE, LENGTHS)
    for t in range(2):
        _, state = model.step(TARGET[:, t], state)
    for rows in ([0, 0, 1, 2, 2], [2, 0], [1]):
        moved, target = state.reorder(torch.tensor(rows)), torch.cat([TARGET[rows, :2], torch.tensor([[7, 3]] * len(rows))], 1)
        for t in (2, 3):
            logits, moved = model.step(target[:, t], moved)
        expected = model(SOURCE[rows], LENGTHS[rows], target)[:, -1]
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


def test_keys_of_the_source_are_projected_once_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, plain = [], scores.Additive.key
    monkeypatch.setattr(scores.Additive, "key", lambda self, k: (calls.append(id(self)), plain(self, k))[1])
    model = built(mechanism=plan("additive"))
    stepped(model, TARGET, SOURCE, LENGTHS)
    for block in model.decoder:
        assert calls.count(id(block.cross.mechanism.score)) == 1
        assert calls.count(id(block.attention.mechanism.score)) == TARGET.shape[1], "each new place once"


PAIRS = [(score, normalize) for score in scores.table.names() for normalize in normalizers.table.names()]
PAIRS = [pair for pair in PAIRS if pair[1] != "sum" or scores.table[pair[0]].kernel]


@pytest.mark.parametrize(("score", "normalize"), PAIRS)
def test_any_mechanism_of_the_catalogue_learns(score: str, normalize: str) -> None:
    model = built(mechanism=plan(score, normalize), depth=1).train()

    def loss() -> Tensor:
        return nn.functional.cross_entropy(model(SOURCE, LENGTHS, TARGET[:, :-1]).flatten(0, 1), TARGET[:, 1:].flatten())

    before = loss()
    before.backward()
    with torch.no_grad():
        size = math.sqrt(sum(parameter.grad.square().sum().item() for parameter in model.parameters()))
        for parameter in model.parameters():
            parameter.sub_(0.02 / size * parameter.grad)
    assert loss().item() < before.item() - 1e-3
    assert all(parameter.grad.any() for parameter in model.decoder[0].cross.mechanism.parameters())


def test_a_position_for_the_first_layer_stays_there_and_cross_attention_has_none() -> None:
    model = built(mechanism=plan(position="added"), depth=3)
    found = [type(block.attention.mechanism.position) for block in model.decoder]
    assert found == [positions.Added, positions.NoPosition, positions.NoPosition]
    bent = built(mechanism=MechanismPlan(mask=Choice(masks.window, {"left": 1}), position=Choice(positions.Alibi)))
    assert {type(block.attention.mechanism.position) for block in bent.encoder} == {positions.Alibi}
    for block in bent.decoder:
        assert isinstance(block.cross.mechanism.position, positions.NoPosition)
        assert block.cross.mechanism.mask.key == masks.full().key


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dynamo makes one of torch itself when it meets an autograd.Function
def test_a_transformer_is_one_graph_for_the_compiler() -> None:
    torch._dynamo.reset()
    model = built(depth=1, mechanism=plan("additive", "entmax-1.5", "shaw"))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))
    torch._dynamo.reset()


def test_mistakes_are_answered_with_sentences() -> None:
    with pytest.raises(SaccadeError, match="prompts of 1 to 5 tokens in one batch; give prompts of one length"):
        built("transformer-decoder").start(SOURCE, LENGTHS)
    with pytest.raises(SaccadeError, match="width of 8 does not divide into 3 heads"):
        built(heads=3)
    with pytest.raises(SaccadeError, match="place 4 in a learned table of 3 places"):
        built(places=embeddings.Learned, max_len=3)(SOURCE, LENGTHS, TARGET)
    assert isinstance(built("transformer-encoder"), TransformerEncoder)
    assert isinstance(built("transformer-decoder"), LanguageModel)
