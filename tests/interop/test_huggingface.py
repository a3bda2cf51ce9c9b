"""Records of Hugging Face's models: weights equal to their own `output_attentions`, on every implementation, with their outputs unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import saccade

transformers = pytest.importorskip("transformers", minversion="5")

IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 0, 0]])
SEEN = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
TARGET = torch.tensor([[0, 21, 22, 23], [0, 24, 25, 26]])
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "vocab_size": 50,
}
T5 = {"vocab_size": 50, "d_model": 16, "d_kv": 4, "num_heads": 4, "d_ff": 32, "num_layers": 2}
MARIAN = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "vocab_size": 50,
}
MARIAN |= {
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 32,
    "pad_token_id": 1,
}
ENDS: dict[str, Any] = {"pad_token_id": 1, "eos_token_id": None, "bos_token_id": None}


def make(name: str, implementation: str = "eager") -> Any:
    torch.manual_seed(0)
    model: Any = {
        "bert": lambda: transformers.BertModel(transformers.BertConfig(**SMALL)),
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_embd=16, n_layer=2, n_head=4, vocab_size=50, n_positions=32, **ENDS
            )
        ),
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**SMALL, num_key_value_heads=2, **ENDS)
        ),
        "t5": lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(**T5, decoder_start_token_id=0, **ENDS)
        ),
        "marian": lambda: transformers.MarianMTModel(
            transformers.MarianConfig(
                **MARIAN, decoder_start_token_id=0, eos_token_id=2, forced_eos_token_id=None
            )
        ),
        "vit": lambda: transformers.ViTModel(
            transformers.ViTConfig(
                **{key: value for key, value in SMALL.items() if key != "vocab_size"},
                image_size=16,
                patch_size=8,
            )
        ),
        "gemma2": lambda: transformers.Gemma2Model(
            transformers.Gemma2Config(
                **SMALL,
                num_key_value_heads=2,
                head_dim=4,
                sliding_window=3,
                attn_logit_softcapping=0.5,
            )
        ),
        "gpt-oss": lambda: transformers.GptOssModel(
            transformers.GptOssConfig(
                **SMALL,
                num_key_value_heads=2,
                head_dim=4,
                num_local_experts=2,
                num_experts_per_tok=1,
                sliding_window=3,
            )
        ),
        "albert": lambda: transformers.AlbertModel(
            transformers.AlbertConfig(**SMALL, embedding_size=8)
        ),
    }[name]()
    for parameter in model.parameters():  # far from uniform weights
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    model.set_attn_implementation(implementation)
    return model.eval()


def inputs(name: str) -> dict[str, Tensor]:
    if name == "vit":
        return {
            "pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
        }
    given = {"input_ids": IDS, "attention_mask": SEEN}
    return {**given, "decoder_input_ids": TARGET} if name in ("t5", "marian") else given


def their_own(name: str) -> dict[str, list[Tensor]]:
    """self, decoder and cross weights by `output_attentions`."""
    output = make(name)(**inputs(name), output_attentions=True)
    if name in ("t5", "marian"):
        kinds = ("encoder_attentions", "decoder_attentions", "cross_attentions")
        return dict(
            zip(
                ("encoder", "decoder", "cross"),
                (getattr(output, kind) for kind in kinds),
                strict=True,
            )
        )
    return {"self": output.attentions}


def kind_of(name: str, looks: Any) -> str:
    return (
        "cross"
        if looks.cross
        else "encoder"
        if name.split(".encoder")[0] != name or name.startswith("encoder")
        else "decoder"
    )


@pytest.fixture(autouse=True)
def _all_is_put_back() -> Iterator[None]:
    interface = transformers.modeling_utils.AttentionInterface
    before = interface.get_interface
    with torch.no_grad():
        yield
    assert interface.get_interface is before
    assert not hasattr(before, "__wrapped__")


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "marian", "vit"])
def test_weights_are_those_of_output_attentions(name: str, implementation: str) -> None:
    model, given = make(name, implementation), inputs(name)
    before = model(**given)[0]
    with saccade.record(model) as seen:
        found = model(**given)[0]
    assert torch.equal(found, before)
    theirs = their_own(name)
    kinds = {
        site: kind_of(site, looks) if len(theirs) > 1 else "self" for site, looks in seen.items()
    }
    assert len(seen) == sum(map(len, theirs.values()))
    for kind, expected in theirs.items():
        for site, weights in zip(
            [site for site in seen if kinds[site] == kind], expected, strict=True
        ):
            torch.testing.assert_close(seen[site].weights(), weights, atol=1e-5, rtol=0.0)
            torch.testing.assert_close(
                seen[site].weights(rows=[-1, 0], heads=[2]),
                weights[:, 2:3, [-1, 0]],
                atol=1e-5,
                rtol=0.0,
            )
            assert seen[site].calls[0].kept is None, "weights are computed on demand"


@pytest.mark.parametrize("name", ["gemma2", "gpt-oss"])
def test_caps_sinks_and_windows(name: str) -> None:
    model = make(name)
    with saccade.record(model) as seen:
        model(IDS, attention_mask=SEEN)
    for site, weights in zip(
        seen, model(IDS, attention_mask=SEEN, output_attentions=True).attentions, strict=True
    ):
        torch.testing.assert_close(seen[site].weights(), weights, atol=1e-5, rtol=0.0)
        assert seen[site].calls[0].kept is None


def test_a_layer_used_at_every_depth_has_a_pass_for_each() -> None:
    model = make("albert", "sdpa")
    with saccade.record(model) as seen:
        model(IDS, attention_mask=SEEN)
    (looks,) = seen.values()
    torch.testing.assert_close(
        looks.weights(),
        torch.stack(make("albert")(**inputs("albert"), output_attentions=True).attentions),
    )


def test_weights_made_in_a_way_of_ones_own_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def squared(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any
    ) -> tuple[Tensor, Tensor]:
        weights = (query @ key.mT).softmax(-1).square()
        return (weights @ value).transpose(1, 2).contiguous(), weights

    monkeypatch.setattr("transformers.models.bert.modeling_bert.eager_attention_forward", squared)
    model = make("bert")
    with saccade.record(model) as seen:
        model(IDS)
    for site, weights in zip(seen, model(IDS, output_attentions=True).attentions, strict=True):
        assert torch.equal(seen[site].weights(), weights)
        assert torch.equal(seen[site].weights(rows=[2], heads=[1]), weights[:, 1:2, 2:3])


def test_dropout_is_left_out_of_the_weights() -> None:
    model, sure = make("bert").train(), make("bert")
    with saccade.record(model) as seen:
        model(IDS)
    first = next(iter(seen.values()))
    assert first.calls[0].kept is None
    torch.testing.assert_close(first.weights().sum(-1), torch.ones(2, 4, 6))
    assert sure.training is False


@pytest.mark.parametrize("mask", [None, SEEN])
def test_a_registered_kernel_that_knows_causality_itself(mask: Tensor | None) -> None:
    """As flash attention does: nothing inside can be seen, and the mask is one of keys, or none."""

    def kernel(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any
    ) -> tuple[Tensor, None]:
        return torch.zeros_like(query).transpose(1, 2), None

    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register("kernel", kernel)
    AttentionMaskInterface.register(
        "kernel", lambda *args, attention_mask=None, **more: attention_mask
    )
    model = make("llama", "kernel")
    with saccade.record(model) as seen:
        model(IDS, attention_mask=mask)
    expected = make("llama")(IDS, attention_mask=mask, output_attentions=True).attentions[0]
    torch.testing.assert_close(next(iter(seen.values())).weights(), expected, atol=1e-5, rtol=0.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["gemma2"])
def test_flex_attention(name: str) -> None:
    model, given = make(name, "flex_attention"), inputs(name)
    before = model(**given)[0]
    with saccade.record(model) as seen:
        assert torch.equal(model(**given)[0], before)
    for site, weights in zip(seen, their_own(name)["self"], strict=True):
        found = seen[site].weights()
        torch.testing.assert_close(found[0], weights[0], atol=1e-5, rtol=0.0)
        torch.testing.assert_close(found[1, :, :4], weights[1, :, :4], atol=1e-5, rtol=0.0)


# --- generate ---


def whole_and_steps(name: str, implementation: str, **options: Any) -> tuple[Any, Any]:
    model = make(name, implementation)
    given = {key: value[:1] for key, value in inputs(name).items() if key != "decoder_input_ids"}
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, **options}
    plain = model.generate(**given, **options)
    with saccade.record(model) as steps:
        found = model.generate(**given, **options)
    assert torch.equal(found, plain)
    with saccade.record(model) as whole:
        if name in ("t5", "marian"):
            model(**given, decoder_input_ids=found[:, :-1])
        else:
            model(found[:, :-1])
    return whole, steps


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "marian"])
def test_steps_of_generate_are_the_rows_of_one_pass(name: str, implementation: str) -> None:
    whole, steps = whole_and_steps(name, implementation)
    assert list(whole) == list(steps)
    for site in whole:
        assert len(steps[site].passes) == 1
        assert steps[site].cross == whole[site].cross
        torch.testing.assert_close(
            steps[site].weights(), whole[site].weights(), atol=1e-5, rtol=0.0
        )


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_beams_and_a_second_text_are_seen_as_such(name: str) -> None:
    model = make(name, "sdpa")
    with saccade.record(model) as seen:
        for _ in range(2):
            model.generate(
                IDS[:1], num_beams=3, max_new_tokens=4, min_new_tokens=4, do_sample=False
            )
    for site, looks in seen.items():
        rows = 6 if "encoder." in site and not looks.cross else 4 if name == "marian" else 9
        assert len(looks.passes) == 2
        assert [sum(call.sizes[2] for call in one) for one in looks.passes] == [rows, rows]


def test_a_model_that_is_not_the_recorded_one_is_left_alone() -> None:
    model, other = make("bert"), make("gpt2")
    with saccade.record(model) as seen, saccade.record(other) as others:
        model(IDS)
        other(IDS)
    assert [len(looks.calls) for looks in seen.values()] == [1, 1]
    assert list(others) == ["transformer.h.0.attn", "transformer.h.1.attn"]


def test_an_exception_in_the_model_puts_everything_back() -> None:
    model = make("bert")
    with pytest.raises(IndexError), saccade.record(model):
        model(IDS + 100)


def test_a_compiled_model() -> None:
    model = make("bert", "sdpa")
    compiled = torch.compile(model, backend="eager")
    with saccade.record(compiled) as seen:
        compiled(IDS)
    assert list(seen) == ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"]
