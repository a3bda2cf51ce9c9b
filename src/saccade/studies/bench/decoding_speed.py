"""Decoding measured beside its peers: each engine in a process of its own, asked in turn, medians; sentences per second.

A Transformer base with random parameters reads 24 tokens and generates 32 (no engine may end earlier). CTranslate2 gets the same parameters.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import SaccadeError

SOURCE, TARGET, VOCAB = 24, 32, 8000
# rows of a batch and width of the beam
SIZES, GPU_SIZES = ((1, 1), (1, 5), (32, 1), (32, 5)), ((1, 1), (64, 1), (64, 5), (512, 1))
CASES, GPU_CASES = (
    {
        f"batch {rows} {f'beam {beam}' if beam > 1 else 'greedy'}": (rows, beam)
        for rows, beam in sizes
    }
    for sizes in (SIZES, GPU_SIZES)
)
WIDTHS = {"dim": 512, "hidden": 2048, "depth": 6, "heads": 8}
BASE: dict[str, Any] = {"family": "transformer-base", **WIDTHS, "dropout": 0.0}
# for a trial of the programs themselves
SHORT: dict[str, Any] = {"depth": 1, "dim": 32, "hidden": 64, "heads": 4}
SLOWER = 2.5  # a setting that takes so many times as long in a trial as the best one of its engine is not asked again
# from a batch's size and a beam's width to the number of tokens generated
Generate = Callable[[int, int], int]


def our_model(small: bool) -> Any:
    import torch

    from ...models.builder import Builder
    from ...models.protocols import Seq2Seq

    torch.manual_seed(0)
    return Builder({**BASE, **(SHORT if small else {})}).make(Seq2Seq, VOCAB, VOCAB).eval()


def sources(batch: int) -> Any:
    import torch

    return torch.randint(4, VOCAB, (batch, SOURCE), generator=torch.Generator().manual_seed(batch))


def ours(kind: str, device: str, small: bool) -> Generate:
    """`fp32`, `bf16` or `int8` of our own; `plain` is fp32 by the model's own steps."""
    import torch

    from ... import decoding
    from ...decoding import Beam, Sample
    from ...layers.fast.int8 import to_int8

    model: Any = our_model(small).to(device)
    model = to_int8(model) if kind == "int8" else model.bfloat16() if kind == "bf16" else model
    for loop in (decoding.decode_loop, decoding.gpu_loop) if kind == "plain" else ():
        vars(loop)["why_plain"] = lambda model: "asked for"

    def generate(batch: int, beam: int) -> int:
        never = (0, 2, 3)  # and with <eos> no output ends early
        search = (
            Sample(2, 3, never, temperature=0.0) if beam == 1 else Beam(2, 3, never, width=beam)
        )
        given = sources(batch).to(device)
        lengths = torch.full((batch,), SOURCE, device=device)
        found = decoding.decode(model, given, lengths, search, [TARGET] * batch)
        return sum(len(one[0].tokens) for one in found)

    return generate


def hugging_face(kind: str, device: str, small: bool) -> Generate:
    """Marian of `transformers` with its own random parameters of the same sizes."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    size = {**BASE, **(SHORT if small else {})}
    layers, heads, hidden = (size[name] for name in ("depth", "heads", "hidden"))
    config = MarianConfig(
        vocab_size=VOCAB, d_model=size["dim"], encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_ffn_dim=hidden, decoder_ffn_dim=hidden, pad_token_id=0, eos_token_id=3,
        decoder_start_token_id=2, forced_eos_token_id=None, activation_function="relu",
    )  # fmt: skip
    model = MarianMTModel(config).eval().to(device)
    model = model.bfloat16() if kind == "bf16" else model

    def generate(batch: int, beam: int) -> int:
        given = sources(batch).to(device)
        with torch.inference_mode():
            found = model.generate(
                given, attention_mask=torch.ones_like(given), num_beams=beam, do_sample=False, min_new_tokens=TARGET,
                max_new_tokens=TARGET, early_stopping=False,
            )  # fmt: skip
        return int(batch * (found.shape[1] - 1))

    return generate


def ctranslate2(kind: str, threads: int, small: bool) -> Generate:
    """CTranslate2 with our parameters."""
    peer: Any = importlib.import_module("ctranslate2")

    model = our_model(small)
    folder = tempfile.TemporaryDirectory()
    spec = ctranslate2_spec(peer, model)
    spec.validate()
    spec.optimize(quantization="int8" if kind == "int8" else "float32")
    spec.save(folder.name)
    translator = peer.Translator(
        folder.name,
        compute_type=kind.replace("fp32", "float32"),
        intra_threads=threads,
        inter_threads=1,
    )

    def generate(batch: int, beam: int) -> int:
        given = [[f"w{id}" for id in row] for row in sources(batch).tolist()]
        found = translator.translate_batch(
            given,
            beam_size=beam,
            min_decoding_length=TARGET,
            max_decoding_length=TARGET,
            max_batch_size=batch,
        )
        folder.name  # noqa: B018  # the folder stays as long as this function
        return sum(len(one.hypotheses[0]) for one in found)

    return generate


def ctranslate2_spec(peer: Any, model: Any) -> Any:
    """Our parameters in its names."""
    import torch

    from ...core.positions import sinusoid

    made = peer.specs.TransformerSpec.from_config(
        (len(model.encoder), len(model.decoder)), model.heads, pre_norm=False
    )
    table = model.source.tokens.weight.detach()
    words = ["<pad>", "<unk>", "<s>", "</s>", *(f"w{id}" for id in range(4, len(table)))]
    made.register_source_vocabulary(words)
    made.register_target_vocabulary(words)
    places = sinusoid(torch.arange(512), table.shape[1]).numpy()

    def linear(there: Any, *layers: Any) -> None:
        there.weight = torch.cat([layer.weight for layer in layers]).detach().numpy()
        there.bias = torch.cat([layer.bias for layer in layers]).detach().numpy()

    def norm(there: Any, ours: Any) -> None:
        there.gamma, there.beta = ours.weight.detach().numpy(), ours.bias.detach().numpy()

    for side, stack in ((made.encoder, model.encoder), (made.decoder, model.decoder)):
        (side.embeddings[0] if side is made.encoder else side.embeddings).weight = table.numpy()
        side.position_encodings.encodings = places
        for there, block in zip(side.layer, stack, strict=True):
            linear(there.self_attention.linear[0], block.mixer.q, block.mixer.k, block.mixer.v)
            linear(there.self_attention.linear[1], block.mixer.out)
            norm(there.self_attention.layer_norm, block.around_mixer.norm)
            if block.cross is not None:
                linear(there.attention.linear[0], block.cross.q)
                linear(there.attention.linear[1], block.cross.k, block.cross.v)
                linear(there.attention.linear[2], block.cross.out)
                norm(there.attention.layer_norm, block.around_cross.norm)
            linear(there.ffn.linear_0, block.feedforward.inner)
            linear(there.ffn.linear_1, block.feedforward.outer)
            norm(there.ffn.layer_norm, block.around_feedforward.norm)
    made.decoder.projection.weight = table.numpy()
    return made


def serve(name: str, kind: str, device: str, threads: int, small: bool) -> None:
    """A process of one engine: for each line `batch beam repeats` on stdin, the seconds of one decoding on stdout."""
    import torch

    torch.set_num_threads(threads)
    if name == "ctranslate2":
        generate = ctranslate2(kind, threads, small)
    else:
        generate = {"saccade": ours, "transformers": hugging_face}[name](kind, device, small)
    for line in sys.stdin:
        batch, beam, repeats = map(int, line.split())
        start, work = time.perf_counter(), time.process_time()
        for _ in range(repeats):
            tokens = generate(batch, beam)  # its results are read, so that a GPU has finished
        seconds = (time.perf_counter() - start) / repeats
        processor = (time.process_time() - work) / repeats
        print(
            json.dumps({"seconds": seconds, "processor": processor, "tokens": tokens}), flush=True
        )


def engines(device: str) -> Iterator[tuple[str, str, int, dict[str, str]]]:
    """Name, kind, threads and environment of every engine that is installed, at each setting."""
    gpu, every = device != "cpu", [1] if device != "cpu" else [1, 2]
    for threads in every:
        for kind in ("bf16", "fp32") if gpu else ("fp32", "int8"):
            yield "saccade", kind, threads, {}
    yield "saccade", "plain", every[-1], {}
    if importlib.util.find_spec("transformers") is not None:
        for threads in every:
            yield "transformers", "bf16" if gpu else "fp32", threads, {}
    if importlib.util.find_spec("ctranslate2") is not None and not gpu:
        for threads in every:
            for kind in ("fp32", "int8"):
                for mkl in ("1", "0"):
                    yield "ctranslate2", kind, threads, {"CT2_USE_MKL": mkl}


@contextmanager
def process(
    name: str, kind: str, device: str, threads: int, more: dict[str, str], small: bool
) -> Iterator[Callable[..., Any]]:
    """A running engine, as a function of batch, beam and repeats."""
    size = ["small"] if small else []
    words = [
        sys.executable,
        "-m",
        "saccade.studies.bench.decoding_speed",
        name,
        kind,
        device,
        str(threads),
        *size,
    ]
    run = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), **more},
    )  # fmt: skip
    assert run.stdin is not None
    assert run.stdout is not None
    send, receive = run.stdin, run.stdout

    def ask(batch: int, beam: int, repeats: int) -> Any:
        send.write(f"{batch} {beam} {repeats}\n")
        send.flush()
        answer = receive.readline()
        if not answer:
            raise SaccadeError(
                f"the engine {name} {kind} ended without an answer; run `{' '.join(words)}` to see why",
                code="command-failed",
            )
        return json.loads(answer)

    try:
        yield ask
    finally:
        send.close()
        try:
            run.wait(10)
        except subprocess.TimeoutExpired:
            run.kill()
        receive.close()


def fastest(trial: dict[tuple[str, str], float], case: str, title: str) -> float:
    """Seconds of the best setting of an engine and a precision in the trial of a case."""
    own = title.partition(",")[0]
    return min(
        seconds
        for (other, name), seconds in trial.items()
        if other == case and name.partition(",")[0] == own
    )


def cases(
    device: str = "cpu", rounds: int = 3, small: bool = False, only: tuple[str, ...] = ()
) -> Iterator[list[dict[str, Any]]]:
    """After each round one row per case and engine: {case, engine, value, unit, processor}; an engine that fails is left out by name.

    The value is in sentences per second, `processor` the milliseconds of all cores per sentence: others on the machine change it less.
    """
    from contextlib import ExitStack

    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    trial: dict[tuple[str, str], float] = {}
    chosen = CASES if device == "cpu" else GPU_CASES
    with ExitStack() as open_ones:
        running = {}
        for name, kind, threads, more in engines(device):
            title = f"{name} {kind}, {threads} thread{'s' * (threads > 1)}{', MKL' * (more.get('CT2_USE_MKL') == '1')}"
            if not only or any(title.startswith(one) for one in only):
                running[title] = open_ones.enter_context(
                    process(name, kind, device, threads, more, small)
                )
        for count in range(rounds + 1):
            for case, (batch, beam) in chosen.items():
                repeats = 4 if batch == 1 else 1
                for title, ask in list(running.items()):
                    if count and trial[case, title] > SLOWER * fastest(trial, case, title):
                        continue
                    try:
                        answer = ask(batch, beam, repeats if count else 1)
                    except (SaccadeError, OSError):
                        print(f"{title} failed and is left out", file=sys.stderr)
                        del running[title]
                        continue
                    if not count:  # the first round is a trial
                        trial[case, title] = answer["seconds"]
                    else:
                        found.setdefault((case, title), []).append(
                            (answer["seconds"], answer["processor"])
                        )
            if count:
                yield [
                    row_of(case, title, values, chosen[case][0])
                    for (case, title), values in found.items()
                ]


def row_of(
    case: str, title: str, values: list[tuple[float, float]], sentences: int
) -> dict[str, Any]:
    """The medians of what was measured so far."""
    seconds, processor = (statistics.median(some) / sentences for some in zip(*values, strict=True))
    measured = {
        "value": round(1 / seconds, 3),
        "unit": "sentences/s",
        "processor": round(1000 * processor, 3),
    }
    return {"case": case, "engine": title, **measured}


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), "small" in sys.argv[5:])
