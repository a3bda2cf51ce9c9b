"""From any model to a document that can be drawn: a record and its tokens, or a model of Hugging Face and a text."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core import record
from ..core.record import Look, Looks, Seen, pass_weights
from ..errors import SaccadeError
from ..views.document import Document
from ..views.long_texts import Found, make_sites
from . import huggingface  # so that records notice attention functions of transformers

__all__ = ["huggingface", "look", "record", "show_pretrained"]
# what models of images and sound read
OTHER_INPUTS = ("pixel_values", "input_features", "input_values")
# Generated tokens, if no target is given.
MAX_NEW_TOKENS = 256
# how their files begin
TOKENIZER_PREFIXES = ("tokenizer", "vocab", "spiece", "sentencepiece", "source.spm")


def look(
    seen: Seen,
    tokens: Sequence[str],
    columns: Sequence[str] | None = None,
    title: str = "",
    model: str = "",
    item: int = 0,
) -> Document:
    """Converts a record of one batch row to a document for views.

    Args:
        seen: The result of `record`.
        tokens: The tokens that the model read, special tokens included; those of the decoder, if there is one.
        columns: The tokens of the source, if the model has an encoder and a decoder.
        title: Heading of the document, by default the text.
        model: Name of the model.
        item: Index of the batch row.

    Returns:
        A document with the weights of every site. `saccade.show` and notebooks draw it.

    >>> import torch
    >>> from saccade import MultiHeadAttention, look, record
    >>> layer = MultiHeadAttention(8, heads=2)
    >>> with record(layer) as seen:
    ...     output = layer(torch.randn(1, 3, 8))
    >>> [site.name for site in look(seen, ["the", "black", "cat"]).sites]
    ['attention']
    """
    for name, given in (("tokens", tokens), ("columns", columns or [])):
        if isinstance(given, str) or not all(isinstance(token, str) for token in given):
            raise SaccadeError(
                f"{name} must be a list with one string per position, got {given!r:.60}; pass text.split(), or pieces",
                code="tokens-do-not-fit",
            )
    texts = {"tokens": list(tokens), "columns": list(tokens if columns is None else columns)}
    found = [
        one
        for looks in sorted(seen.values(), key=lambda one: not one.cross)
        for one in sites_of(looks, texts, item)
    ]
    sites = make_sites(found)
    if not sites:
        raise SaccadeError(
            "the record has seen no attention; run the model inside `with record(model) as seen:`",
            code="nothing-recorded",
        )
    return Document(
        title or " ".join(texts["columns"]), texts["columns"], texts["tokens"], sites, model
    )


def sites_of(looks: Looks, texts: dict[str, list[str]], item: int) -> list[Found]:
    """One site per forward pass of a layer, with labels of rows and columns."""
    found, passes = [], looks.passes
    for number, calls in enumerate(passes, 1):
        batch, rows = calls[0].sizes[0], sum(call.sizes[2] for call in calls)
        keys = max(call.sizes[3] for call in calls)
        if not -batch <= item < batch:
            raise SaccadeError(
                f"item must be in 0 … {batch - 1}, the texts of the batch, got {item}",
                code="index-out-of-range",
            )
        # An encoder reads the source.
        own = (
            ("columns", "tokens")
            if "encoder" in looks.name and not looks.cross
            else ("tokens", "columns")
        )
        of_rows = labels(looks.name, "row", rows, own, texts)
        of_columns = (
            of_rows
            if rows == keys and not looks.cross
            else labels(looks.name, "column", keys, own[::-1], texts)
        )
        name = looks.name if len(passes) == 1 else f"{looks.name} ({number} of {len(passes)})"
        weights = partial(item_weights, calls, item)
        found.append(Found(name, of_rows, of_columns, calls[0].sizes[1], weights))
    return found


def item_weights(calls: list[Look], item: int, rows: Sequence[int] | None) -> Tensor:
    return pass_weights(calls, rows, None)[item].float().cpu()


def labels(
    name: str, what: str, size: int, order: Sequence[str], texts: dict[str, list[str]]
) -> list[str]:
    """The first of the texts whose length fits the rows or columns."""
    for one in order:
        if len(texts[one]) == size:
            return texts[one]
    counts = " and ".join(f"{len(text)} {one}" for one, text in texts.items())
    why = "pass one token per position, special tokens and padding too; a generated text without its last token, which is never read"
    raise SaccadeError(
        f"'{name}' has {size} {what}{'s' * (size != 1)}, and there are {counts}; {why}",
        code="tokens-do-not-fit",
    )


@torch.no_grad()
def show_pretrained(
    name: str,
    text: str,
    target: str | None = None,
    beam: int = 1,
    device: str | torch.device = "cpu",
) -> Document:
    """The attention of a Hugging Face model that reads a text, and generates a target unless one is given."""
    if not text.strip():
        raise SaccadeError("the text is empty; give a sentence", code="text-empty")
    if beam < 1:
        raise SaccadeError(f"beam must be at least 1, got {beam}", code="beam-out-of-range")
    tokenizer, model = load_pretrained(name)
    model = model.to(device).eval()
    if target is not None and not model.config.is_encoder_decoder:
        raise SaccadeError(
            f"{name} is not an encoder–decoder and generates nothing from a source; leave the target out",
            code="no-decoder",
        )
    inputs = tokenizer(text, return_tensors="pt", return_token_type_ids=False).to(device)
    count = inputs["input_ids"].shape[1]
    limit = min(
        getattr(model.config, "max_position_embeddings", None) or 1 << 20,
        tokenizer.model_max_length,
    )
    if not 0 < count <= limit:
        raise SaccadeError(
            f"the text has {count} tokens, and {name} reads 1 to {limit}; give another",
            code="text-too-long",
        )
    source = readable_tokens(tokenizer, inputs["input_ids"][0])
    if not model.config.is_encoder_decoder:
        with quiet_model(name, model), record(model) as seen:
            model(**inputs)
        if seen:
            return look(seen, source, title=text, model=Path(name).name)
        # DeBERTa and others compute their weights with a formula of their own.
        with quiet_model(name, model):
            given = getattr(model(**inputs, output_attentions=True), "attentions", None) or ()
        if not given:
            what = f"{name} has no attention that can be seen (a {model.config.model_type} model)"
            raise SaccadeError(
                f"{what}; give a model whose layers attend with softmax", code="no-attention"
            )
        layers = [
            Found(f"layer {n}", source, source, each.shape[1], partial(layer_rows, each))
            for n, each in enumerate(given)
        ]
        return Document(text, source, source, make_sites(layers), Path(name).name)
    if target is None:
        with quiet_model(name, model):
            whole = model.generate(
                **inputs,
                do_sample=False,
                num_beams=beam,
                max_new_tokens=min(MAX_NEW_TOKENS, limit - 1),
            )
        read, written = whole[:, :-1], whole[:, 1:]
    else:
        written = tokenizer(text_target=target, return_tensors="pt")["input_ids"].to(device)
        read = torch.cat(
            (torch.full_like(written[:, :1], model.config.decoder_start_token_id), written[:, :-1]),
            1,
        )
    with quiet_model(name, model), record(model) as seen:
        model(**inputs, decoder_input_ids=read, use_cache=False)
    document = look(seen, readable_tokens(tokenizer, read[0]), source, text, Path(name).name)
    document.target = readable_tokens(tokenizer, written[0])
    for site in document.sites:
        # A row of an alignment is the token generated there.
        if seen[site.name].cross:
            site.rows = document.target
    return document


def layer_rows(weights: Tensor, rows: Sequence[int] | None) -> Tensor:
    return weights[0].float().cpu()[:, slice(None) if rows is None else list(rows)]


@contextmanager
def quiet_model(name: str, model: Any) -> Iterator[None]:
    """Suppresses a model's warnings and turns its exceptions into a SaccadeError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (SaccadeError, MemoryError):
        raise
    except Exception as error:
        reads = [one for one in OTHER_INPUTS if one in inspect.signature(model.forward).parameters]
        why = (
            f"it reads {' and '.join(reads)} as well"
            if reads
            else (str(error).strip() or type(error).__name__).split("\n")[0]
        )
        raise SaccadeError(
            f"{name} cannot read a text alone: {why}; run it in Python inside `with saccade.record(model)`",
            code="model-reads-no-text",
        ) from None


def load_pretrained(name: str) -> tuple[Any, Any]:
    """Loads a tokenizer and a model from a folder or the local cache, without downloads and pickles."""
    try:
        import transformers
    except ImportError:
        raise SaccadeError(
            "hf: needs transformers; install it with `pip install 'saccade-attention[huggingface]'`",
            code="package-missing",
        ) from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    files = os.listdir(name) if os.path.isdir(name) else []
    if os.path.isdir(name):
        if "config.json" not in files:
            raise SaccadeError(
                f"{name} has no config.json; expected a folder that `save_pretrained` has written",
                code="folder-not-a-model",
            )
        if not any(file.endswith(".safetensors") for file in files):
            kept = (
                "pickled weights alone"
                if any(file.endswith(".bin") for file in files)
                else "no weights"
            )
            raise SaccadeError(
                f"{name} has {kept}; expected model.safetensors, as `model.save_pretrained` writes it",
                code="folder-not-a-model",
            )

    def ask(what: str, kind: Any, **options: Any) -> Any:
        try:
            return kind.from_pretrained(
                name, local_files_only=True, trust_remote_code=False, **options
            )
        except Exception as error:
            why = str(error).strip().split("\n")[0].rstrip(".")
            if not os.path.isdir(name):
                why = f"neither a folder nor complete in the cache of Hugging Face; write hf:FOLDER, or run `hf download {name}`"
            raise SaccadeError(
                f"no {what} can be loaded from '{name}': {why}", code="cannot-load"
            ) from None

    settings = ask("model", transformers.AutoConfig)
    of_text = (
        settings.is_encoder_decoder
        and type(settings) in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    )
    kind = transformers.AutoModelForSeq2SeqLM if of_text else transformers.AutoModel
    # Force eager attention: a config.json may name kernels that are downloaded and run.
    options = {"use_safetensors": True, "attn_implementation": "eager", "output_loading_info": True}
    model, loaded = ask("model", kind, config=settings, **options)
    # The pooler is not needed for attention.
    missing = sorted(key for key in loaded["missing_keys"] if "pooler" not in key)
    if missing:
        raise SaccadeError(
            f"{name} lacks {len(missing)} of the model's weights, such as {missing[0]}; save it again as a whole",
            code="checkpoint-damaged",
        )
    if model.main_input_name != "input_ids":
        raise SaccadeError(
            f"{name} reads {model.main_input_name}, not text; run it in Python inside `with saccade.record(model)`",
            code="model-reads-no-text",
        )
    # transformers would create an empty tokenizer.
    if os.path.isdir(name) and not any(file.startswith(TOKENIZER_PREFIXES) for file in files):
        raise SaccadeError(
            f"{name} has no tokenizer; write one there with `tokenizer.save_pretrained`",
            code="tokenizer-missing",
        )
    return ask("tokenizer", transformers.AutoTokenizer), model


def readable_tokens(tokenizer: Any, ids: torch.Tensor) -> list[str]:
    """The tokens in readable form: bytes decoded, spaces as ▁."""
    if not any("Ġ" in piece for piece in tokenizer.get_vocab()):
        return list(map(str, tokenizer.convert_ids_to_tokens(ids.tolist())))
    return [
        tokenizer.decode([one], clean_up_tokenization_spaces=False).replace(" ", "▁")
        for one in ids.tolist()
    ]
