"""Models of Hugging Face by their folder or name, as `saccade show hf:…` looks into them. Nothing is downloaded and nothing is unpickled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from . import config
from .errors import SaccadeError
from .looking import look, record
from .views.document import Document

MOST_NEW = 256  # tokens that are generated where no target is given
LOCAL = {"local_files_only": True, "trust_remote_code": False}


@torch.no_grad()
def show_pretrained(name: str, text: str, target: str | None = None, beam: int = 1, device: str = "auto") -> Document:
    """What every attention of a model looked at while it read a text, or generated one from it (or a given target)."""
    if not text.strip():
        raise SaccadeError("the text is empty; give a sentence")
    tokenizer, model = load(name)
    model = model.to(config.device(device)).eval()
    two_texts = model.config.is_encoder_decoder
    if target is not None and not two_texts:
        raise SaccadeError(f"{name} is not an encoder–decoder and generates nothing from a source; leave the target out")
    inputs = tokenizer(text, return_tensors="pt", return_token_type_ids=False).to(model.device)
    limit = getattr(model.config, "max_position_embeddings", None) or 1 << 20
    count = inputs["input_ids"].shape[1]
    if not 0 < count <= limit:
        raise SaccadeError(f"the text has {count} tokens, and {name} reads 1 to {limit}; give another")
    source = pieces(tokenizer, inputs["input_ids"][0])
    if not two_texts:
        with record(model) as seen:
            model(**inputs)
        return look(seen, source, title=text, model=Path(name).name)
    if target is None:
        whole = model.generate(**inputs, do_sample=False, num_beams=beam, max_new_tokens=min(MOST_NEW, limit - 1))
        read, written = whole[:, :-1], whole[:, 1:]
    else:
        written = tokenizer(text_target=target, return_tensors="pt")["input_ids"].to(model.device)
        start = torch.full_like(written[:, :1], model.config.decoder_start_token_id)
        read = torch.cat((start, written[:, :-1]), 1)
    with record(model) as seen:
        model(**inputs, decoder_input_ids=read, use_cache=False)
    output = pieces(tokenizer, written[0])
    document = look(seen, pieces(tokenizer, read[0]), source, text, Path(name).name)
    for site in document.sites:
        if seen[site.name].cross:  # a row of an alignment is the token that was generated there
            site.rows = output
    document.target = output
    return document


def load(name: str) -> tuple[Any, Any]:
    """The tokenizer and the model of a folder, or of a name in the cache."""
    try:
        import transformers
    except ImportError:
        raise SaccadeError("hf: needs transformers; install it with `pip install 'saccade[huggingface]'`") from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    folder = Path(name)
    if os.path.isdir(folder):
        files = {path.name for path in folder.iterdir()}
        if "config.json" not in files:
            raise SaccadeError(f"{name} has no config.json; expected a folder that `save_pretrained` has written")
        if not any(one.endswith(".safetensors") for one in files):
            kept = "pickled weights alone" if any(one.endswith(".bin") for one in files) else "no weights"
            raise SaccadeError(f"{name} has {kept}; expected model.safetensors, as `model.save_pretrained` writes it")
    elif name.startswith((".", "/", "~")) or name.count("/") > 1 or not name:
        raise SaccadeError(f"no folder named '{name}'; write hf:FOLDER, or hf:NAME for a model in the cache of Hugging Face")
    settings = ask(name, "model", transformers.AutoConfig)
    kind = transformers.AutoModelForSeq2SeqLM if settings.is_encoder_decoder else transformers.AutoModel
    # eager, whatever a stranger's config.json names: others may be kernels that are fetched and run
    model = ask(name, "model", kind, config=settings, use_safetensors=True, attn_implementation="eager")
    if model.main_input_name != "input_ids":
        raise SaccadeError(
            f"{name} reads {model.main_input_name}, not text; run it in Python inside `with saccade.record(model)`"
        )
    return ask(name, "tokenizer", transformers.AutoTokenizer), model


def ask(name: str, what: str, kind: Any, **options: Any) -> Any:
    """`from_pretrained`, from files of this machine alone, its errors as one sentence."""
    try:
        return kind.from_pretrained(name, **LOCAL, **options)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, TypeError, AttributeError) as error:
        why = str(error).strip().split("\n")[0].rstrip(".")
        raise SaccadeError(f"{name} has no {what} that can be loaded without a network: {why}") from None


def pieces(tokenizer: Any, ids: torch.Tensor) -> list[str]:
    """The tokens as people read them: bytes decoded, spaces as ▁."""
    found = tokenizer.convert_ids_to_tokens(ids.tolist())
    if not any("Ġ" in piece for piece in tokenizer.get_vocab()):
        return [str(piece) for piece in found]
    return [tokenizer.decode([one], clean_up_tokenization_spaces=False).replace(" ", "▁") for one in ids.tolist()]
