"""From a record of any model and its tokens to a document, and `saccade show hf:…`."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.support import raises
from torch import nn

import saccade
from saccade.models import Seq2Seq
from saccade.models.builder import Builder
from saccade.views.document import Document
from support import run_cli

WORDS = ["the", "black", "cat", "ate"]
TEXT = "the black cat"


def encoder(batch: int = 2, length: int = 4) -> Any:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1)
    with saccade.record(model) as seen:
        model(torch.randn(batch, length, 8))
    return seen


def test_a_record_and_its_tokens_are_a_document() -> None:
    seen = encoder()
    for item in (0, 1, -1):
        document = saccade.look(seen, WORDS, title="my text", model="mine", item=item)
        assert isinstance(document, Document)
        assert (document.title, document.model, document.source, document.target) == (
            "my text",
            "mine",
            WORDS,
            WORDS,
        )
        (site,) = document.sites
        assert (site.name, site.rows, site.columns) == ("layers.0.self_attn", WORDS, WORDS)
        np.testing.assert_allclose(site.weights, seen["layers.0.self_attn"].weights()[item].numpy())
        assert json.loads(document.to_json())["sites"][0]["rows"] == WORDS


@pytest.mark.parametrize("kind", ["saccade", "torch"])
@pytest.mark.parametrize("length", [3, 4])
def test_rows_and_columns_of_an_encoder_and_a_decoder(kind: str, length: int) -> None:
    source, target = WORDS, ["<bos>", "le", "chat", "noir"][:length]
    model: Any
    inputs: tuple[Any, ...]
    if kind == "saccade":
        model = (
            Builder({"family": "transformer", "dim": 8, "hidden": 8, "depth": 1, "heads": 2})
            .make(Seq2Seq, 9, 9)
            .eval()
        )
        inputs = (torch.randint(4, 9, (1, 4)), torch.tensor([4]), torch.randint(4, 9, (1, length)))
    else:
        model = nn.Transformer(8, 2, 1, 1, 8, batch_first=True).eval()
        inputs = (torch.randn(1, 4, 8), torch.randn(1, length, 8))
    with saccade.record(model) as seen:
        model(*inputs)
    document = saccade.look(seen, target, source)
    found = {site.name: (site.rows, site.columns) for site in document.sites}
    own, cross, read = (
        ("decoder.0.mixer", "decoder.0.cross", "encoder.0.mixer")
        if kind == "saccade"
        else (
            "decoder.layers.0.self_attn",
            "decoder.layers.0.multihead_attn",
            "encoder.layers.0.self_attn",
        )
    )
    assert found == {cross: (target, source), read: (source, source), own: (target, target)}
    assert document.sites[0].name == cross, "alignments first"
    assert (document.source, document.target) == (source, target)


def test_passes_are_sites_of_their_own() -> None:
    layer = saccade.MultiHeadAttention(8, 2)
    with saccade.record(layer) as seen:
        for _ in range(2):
            layer(torch.randn(1, 4, 8))
    document = saccade.look(seen, WORDS)
    assert [site.name for site in document.sites] == ["attention (1 of 2)", "attention (2 of 2)"]
    np.testing.assert_allclose(document.sites[1].weights, seen["attention"].weights()[1, 0].numpy())


@pytest.mark.parametrize(
    ("tokens", "more", "code"),
    [
        (WORDS[:3], {}, "tokens-do-not-fit"),
        (WORDS[:3], {"columns": WORDS[:2]}, "tokens-do-not-fit"),
        (WORDS, {"item": 2}, "index-out-of-range"),
        ("the black cat", {}, "tokens-do-not-fit"),
        ([1, 2, 3, 4], {}, "tokens-do-not-fit"),
    ],
)
def test_what_does_not_fit_is_answered_with_a_sentence(
    tokens: Any, more: dict[str, Any], code: str
) -> None:
    with raises(code):
        saccade.look(encoder(), tokens, **more)


def test_a_record_of_nothing_cannot_be_looked_at() -> None:
    with saccade.record(saccade.MultiHeadAttention(8, 2)) as seen:
        pass
    assert repr(seen["attention"]) == "Looks(attention: not called)"
    with raises("nothing-recorded"):
        saccade.look(seen, WORDS)


# --- saccade show hf:… ---


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny random models with tokenizers: one that reads, one of bytes, one that translates; and folders that lack something."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    root = tmp_path_factory.mktemp("hf")
    vocabulary = {
        word: n for n, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS, "le", "chat", "noir"])
    }

    def keep(tokenizer: Tokenizer, name: str) -> None:
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="<pad>"
        ).save_pretrained(root / name)

    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    small = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 16,
    }
    for name in ("bert", "no-tokenizer", "pickled", "empty", "broken", "part"):
        transformers.BertModel(
            transformers.BertConfig(**small, max_position_embeddings=8)
        ).save_pretrained(root / name)
        if name != "no-tokenizer":
            keep(words, name)
    (root / "pickled" / "model.safetensors").rename(root / "pickled" / "pytorch_model.bin")
    (root / "empty" / "model.safetensors").unlink()
    (root / "broken" / "model.safetensors").write_bytes(b"\0" * 40)
    weights = load_file(root / "part" / "model.safetensors")
    save_file(
        {key: weights[key] for key in weights if "pooler" not in key},
        root / "bert" / "model.safetensors",
        {"format": "pt"},
    )
    save_file(
        {key: weights[key] for key in weights if "layer.1" not in key},
        root / "part" / "model.safetensors",
        {"format": "pt"},
    )
    keep(words, "no-config")
    keep(words, "unknown")
    (root / "unknown" / "model.safetensors").write_bytes(b"")
    (root / "unknown" / "config.json").write_text(
        '{"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}'
    )
    (root / "unknown" / "mine.py").write_text("raise SystemExit(77)")
    keep(words, "t5")
    t5 = transformers.T5Config(
        vocab_size=16,
        d_model=8,
        d_kv=4,
        num_heads=2,
        d_ff=8,
        num_layers=1,
        decoder_start_token_id=0,
    )
    transformers.T5ForConditionalGeneration(t5).save_pretrained(root / "t5")
    byte = Tokenizer(
        models.BPE(
            {sign: n for n, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []
        )
    )
    byte.pre_tokenizer, byte.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    keep(byte, "gpt2")
    gpt = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=300, n_positions=16)
    transformers.GPT2LMHeadModel(gpt).save_pretrained(root / "gpt2")
    vit = {key: value for key, value in small.items() if key != "vocab_size"}
    transformers.ViTModel(
        transformers.ViTConfig(**vit, image_size=16, patch_size=8)
    ).save_pretrained(root / "vit")
    both = {
        "text_config": {**small, "eos_token_id": 1},
        "vision_config": {**vit, "image_size": 16, "patch_size": 8},
    }
    transformers.CLIPModel(transformers.CLIPConfig(**both, projection_dim=8)).save_pretrained(
        root / "clip"
    )
    sound = {
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in (("layers", 1), ("attention_heads", 2))
    }
    whisper = transformers.WhisperConfig(
        vocab_size=16, d_model=8, num_mel_bins=8, pad_token_id=0, **sound
    )
    transformers.WhisperForConditionalGeneration(whisper).save_pretrained(root / "whisper")
    own = transformers.DebertaV2Config(
        **small, relative_attention=True, pos_att_type=["c2p", "p2c"], max_position_embeddings=8
    )
    with warnings.catch_warnings():  # it is compiled with torch.jit when it is imported
        warnings.simplefilter("ignore", DeprecationWarning)
        transformers.DebertaV2Model(own).save_pretrained(root / "deberta")
    for name in ("clip", "whisper", "deberta"):
        keep(words, name)
    return root


def shown(shelf: Path, name: str, *words: str, text: str = TEXT) -> dict[str, Any]:
    out = shelf / "look.json"
    printed = run_cli("show", f"hf:{shelf / name}", text, "--out", out, *words)
    assert (printed.code, printed.err) == (0, ""), printed.err
    return json.loads(out.read_text())


def test_a_folder_of_hugging_face_is_shown_with_its_special_tokens(shelf: Path) -> None:
    found = shown(shelf, "bert")
    tokens = ["the", "black", "cat", "</s>"]
    assert sorted((site["name"], site["rows"], site["columns"]) for site in found["sites"]) == [
        (f"encoder.layer.{n}.attention.self", tokens, tokens) for n in (0, 1)
    ]
    assert np.shape(found["sites"][0]["weights"]) == (2, 4, 4)
    assert (found["title"], found["model"]) == (TEXT, "bert")
    for ending in ("html", "png"):
        assert (
            run_cli("show", f"hf:{shelf / 'bert'}", TEXT, "--out", shelf / f"look.{ending}").code
            == 0
        )
        assert (shelf / f"look.{ending}").stat().st_size > 1000


def test_bytes_are_shown_as_letters(shelf: Path) -> None:
    assert shown(shelf, "gpt2", text="a cat")["sites"][0]["rows"] == ["a", "▁", "c", "a", "t"]


def test_an_encoder_and_decoder_show_their_alignment_first(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.interop.foreign_models.MAX_NEW_TOKENS", 6)
    found = shown(shelf, "t5", "--target", "le chat noir")
    first, source = found["sites"][0], ["the", "black", "cat", "</s>"]
    assert (first["rows"], first["columns"]) == (["le", "chat", "noir", "</s>"], source)
    assert first["name"] == "decoder.block.0.layer.1.EncDecAttention"
    own = {site["name"]: site["rows"] for site in found["sites"]}
    assert own["decoder.block.0.layer.0.SelfAttention"] == ["<pad>", "le", "chat", "noir"]
    assert own["encoder.block.0.layer.0.SelfAttention"] == source
    made = shown(shelf, "t5", "--beam", "2")
    assert made["sites"][0]["columns"] == source
    assert made["sites"][0]["rows"] == made["target"] != found["target"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "hf:vit",
            "vit reads pixel_values, not text; run it in Python inside `with saccade.record(model)`",
        ),
        (
            "hf:whisper",
            "whisper reads input_features, not text; run it in Python inside `with saccade.record(model)`",
        ),
        (
            "hf:clip",
            "clip cannot read a text alone: it reads pixel_values as well; run it in Python inside `with saccade.record(m",
        ),
        (
            "hf:clip again",
            "is shown with one text, and a second one ('again') was given; give one text, or run the model in Python",
        ),
        (
            "hf:no-tokenizer",
            "no-tokenizer has no tokenizer; write one there with `tokenizer.save_pretrained`",
        ),
        ("hf:pickled", "pickled has pickled weights alone; expected model.safetensors"),
        ("hf:empty", "empty has no weights; expected model.safetensors"),
        ("hf:broken", "no model can be loaded from '"),
        (
            "hf:part",
            "part lacks 16 of the model's weights, such as encoder.layer.1.attention.output.LayerNorm.bias; save it",
        ),
        (
            "hf:no-config",
            "no-config has no config.json; expected a folder that `save_pretrained` has written",
        ),
        ("hf:unknown", "no model can be loaded from '"),
        (
            "hf:nowhere",
            "neither a folder nor complete in the cache of Hugging Face; write hf:FOLDER, or run `hf download ",
        ),
        ("hf:", "no model can be loaded from ''"),
        (
            "hf:bert --target x",
            "bert is not an encoder–decoder and generates nothing from a source; leave the target out",
        ),
        ("hf:bert --site x", "no attention named 'x'"),
        ("hf:t5 --beam 0", "beam must be at least 1, got 0"),
        ("hf:bert --device moon", "no device named 'moon'"),
    ],
)
def test_a_mistake_is_one_sentence(shelf: Path, words: str, sentence: str) -> None:
    model, *more = words.split()
    name = model.removeprefix("hf:")
    path = shelf / name if name else ""
    printed = run_cli("show", f"hf:{path}", TEXT, "--out", shelf / "x.html", *more)
    assert (printed.code, printed.out) == (2, ""), printed
    assert printed.err.startswith("saccade: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err
    assert not (shelf / "x.html").exists()


def test_attention_that_only_the_model_itself_knows_is_its_own(shelf: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModel.from_pretrained(
        shelf / "deberta", attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        expected = model(torch.tensor([[3, 4, 5, 1]]), output_attentions=True).attentions
    found = shown(shelf, "deberta")  # with nothing on stderr
    assert (found["sites"][0]["rows"], found["target"]) == (
        ["the", "black", "cat", "</s>"],
        ["the", "black", "cat", "</s>"],
    )
    for n, weights in enumerate(expected):
        [site] = [one for one in found["sites"] if one["name"] == f"layer {n}"]
        np.testing.assert_allclose(site["weights"], weights[0].numpy(), atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_an_error_of_the_model_itself_is_one_sentence(
    shelf: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")

    def forward(self: Any, *given: Any, **more: Any) -> None:
        raise IndexError("no such row\nand a second line")

    kind = {"bert": transformers.BertModel, "t5": transformers.T5ForConditionalGeneration}[name]
    monkeypatch.setattr(kind, "forward", forward)
    printed = run_cli("show", f"hf:{shelf / name}", TEXT)
    assert (printed.code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert f"{name} cannot read a text alone: no such row; run it in Python inside" in printed.err


@pytest.mark.parametrize(
    ("text", "sentence"), [("the " * 9, "the text has 10 tokens, and"), (" ", "the text is empty")]
)
def test_a_text_that_does_not_fit(shelf: Path, text: str, sentence: str) -> None:
    printed = run_cli("show", f"hf:{shelf / 'bert'}", text, "--out", shelf / "x.html")
    assert printed.code == 2
    assert sentence in printed.err


def test_without_transformers_one_sentence_has_the_pip_line(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    printed = run_cli("show", f"hf:{shelf / 'bert'}", TEXT, "--out", shelf / "x.html")
    assert printed.code == 2
    assert (
        printed.err
        == "saccade: hf: needs transformers; install it with `pip install 'saccade-attention[huggingface]'`\n"
    )
