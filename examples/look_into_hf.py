"""Show the attention of a Hugging Face model in three lines, while its fast kernels run.

python examples/look_into_hf.py [FOLDER] [TEXT]      seconds on a CPU; target: weights within 1e-5 of the model's own `output_attentions`

FOLDER is a model written by `save_pretrained`; the default is a tiny untrained BERT.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import saccade

TEXT = "the black cat ate the mouse"


def make_tiny(folder: Path) -> Path:
    """A tiny BERT with random weights, and a tokenizer of a few words."""
    words = {
        word: n
        for n, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(set(TEXT.split()))])
    }
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    settings = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]"
    ).save_pretrained(folder)
    transformers.BertModel(
        transformers.BertConfig(**settings, vocab_size=len(words))
    ).save_pretrained(folder)
    return folder


def main(folder: Path | None = None, text: str = TEXT, out: Path = Path("look.html")) -> float:
    with tempfile.TemporaryDirectory() as place:
        folder = make_tiny(Path(place)) if folder is None else folder
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = transformers.AutoModel.from_pretrained(
            folder, local_files_only=True, use_safetensors=True
        ).eval()
    inputs = tokenizer(text, return_tensors="pt", return_token_type_ids=False)

    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())

    with saccade.record(model) as seen:
        model(**inputs)
    saccade.look(seen, tokens, model=type(model).__name__).save(out)

    model.set_attn_implementation("eager")
    theirs = model(**inputs, output_attentions=True).attentions
    far = max(
        (looks.weights() - own).abs().max().item()
        for looks, own in zip(seen.values(), theirs, strict=True)
    )
    print(
        f"{seen}\n{out}: open it in a browser; the weights differ from the model's own by at most {far:.1e}"
    )
    return far


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *sys.argv[2:3])
