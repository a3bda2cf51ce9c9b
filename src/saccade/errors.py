"""The one error a user meets, and the hint that goes with a wrong name. Imports nothing; every package may import it."""

import difflib
from collections.abc import Iterable

# keys as other toolkits call them → the key here; of several the first that there is
SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("epochs", "num_epochs", "max_epochs", "num_train_epochs"), ("training.epochs", "training.updates")),
    **dict.fromkeys(("steps", "max_steps", "num_steps", "iterations", "max_iters", "max_updates"), ("training.updates",)),
    **dict.fromkeys(("batch_size", "batch", "bs", "train_batch_size", "max_tokens", "batch_tokens"), ("training.tokens",)),
    **dict.fromkeys(("lr", "learning_rate", "max_lr", "peak_lr", "lrate"), ("training.learning_rate",)),
    **dict.fromkeys(("warmup_steps", "warmup_updates", "warmup_iters"), ("training.warmup",)),
    **dict.fromkeys(("lr_scheduler", "scheduler", "lr_scheduler_type"), ("training.schedule",)),
    **dict.fromkeys(("wd", "decay", "weight_decay", "l2"), ("training.weight_decay",)),
    **dict.fromkeys(("grad_clip", "clip_norm", "max_grad_norm", "gradient_clip", "clipping"), ("training.clip",)),
    **dict.fromkeys(("accumulation", "grad_accum", "gradient_accumulation_steps", "update_freq"), ("training.accumulate",)),
    **dict.fromkeys(("label_smoothing", "label_smoothing_factor"), ("training.smoothing",)),
    **dict.fromkeys(("eval_steps", "eval_every", "eval_interval", "valid_freq", "validation_freq"), ("training.evaluate_every",)),
    **dict.fromkeys(("save_steps", "save_every", "save_interval"), ("training.checkpoint_every",)),
    **dict.fromkeys(("logging_steps", "log_interval", "logging_freq"), ("training.log_every",)),
    **dict.fromkeys(("early_stopping", "early_stopping_patience", "early_stop"), ("training.patience",)),
    **dict.fromkeys(("fp16", "bf16", "amp", "dtype", "mixed_precision", "half"), ("training.precision",)),
    **dict.fromkeys(("n_layers", "num_layers", "layers", "n_layer", "num_hidden_layers", "nlayers"), ("model.depth",)),
    **dict.fromkeys(("d_model", "hidden_size", "embed_dim", "n_embd", "emb_size", "embedding_dim", "width"), ("model.dim",)),
    **dict.fromkeys(("n_heads", "num_heads", "n_head", "nhead", "num_attention_heads", "attention_heads"), ("model.heads",)),
    **dict.fromkeys(("d_ff", "ffn_dim", "dim_feedforward", "intermediate_size", "ff_dim", "hidden_dim"), ("model.hidden",)),
    **dict.fromkeys(("dropout_rate", "drop", "dropout_p", "p_dropout", "hidden_dropout_prob"), ("model.dropout",)),
    **dict.fromkeys(("arch", "architecture", "model_type", "model_name"), ("model.family",)),
    **dict.fromkeys(("activation_function", "hidden_act", "act"), ("model.feedforward.activation",)),
    **dict.fromkeys(("tie_weights", "tie_embeddings", "tie_word_embeddings"), ("model.tied",)),
    **dict.fromkeys(("vocab_size", "n_vocab", "vocab", "vocabulary_size", "num_tokens"), ("vocabulary.size",)),
    **dict.fromkeys(("tokenizer", "tokenization"), ("vocabulary.kind",)),
    **dict.fromkeys(("min_freq", "min_frequency"), ("vocabulary.min_count",)),
    **dict.fromkeys(("block_size", "context_length", "seq_len", "n_ctx", "sequence_length"), ("language.block",)),
    **dict.fromkeys(("train_file", "train_data", "trainpref"), ("data.train",)),
    **dict.fromkeys(("valid", "validation", "val", "valid_file", "dev_file"), ("data.dev",)),
    **dict.fromkeys(("random_seed", "manual_seed"), ("seed",)),
    "gpu": ("device",),
}


class SaccadeError(Exception):
    """A mistake in what was passed: the value, the rule and the way out. The command line prints it, or its own words, and exits with 2."""

    def __init__(self, message: str = "", shell: str = "") -> None:
        """`shell` is the sentence of the command line, where the way out is another one there."""
        super().__init__(message)
        self._shell = shell

    @property
    def shell(self) -> str:
        return self._shell or str(self)


def synonym(name: str, known: Iterable[str] = ()) -> str | None:
    """The key that other toolkits call so: as it is `known` (`dim`), else with its section (`model.dim`)."""
    names, keys = set(known), SYNONYMS.get(name.strip("-").lower().replace("-", "_"), ())
    here = next((key.rpartition(".")[2] for key in keys if key.rpartition(".")[2] in names), None)
    return here or next((key for key in reversed(keys)), None)


def did_you_mean(name: str, known: Iterable[str], setting: bool = False) -> str:
    """The tail of an error about a wrong name: `; did you mean 'additive'?`, or the names there are."""
    names = sorted(known)
    usual = synonym(str(name), names) if setting else None
    close = [usual] if usual else difflib.get_close_matches(str(name), names, n=1, cutoff=0.65)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; there are: {', '.join(names)}" if names else "; there are none"
