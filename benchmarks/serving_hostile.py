"""Test the service with fuzzing and hostile clients; writes `serve-fuzz.json` and
`serve-hostile.json`.

    python benchmarks/serving_hostile.py fuzz hostile [--cases 10000] [--seconds 60] [--model FOLDER] [--out FOLDER]

fuzz: schemathesis sends valid and invalid requests to all routes of a service with a model of each
kind, alone and in chains. hostile: bodies, chunks and headers of wrong sizes, and the time until
they are refused; latencies of eight clients next to 200 that send a byte a second and 1,000 that
disconnect; then all of `serving_attacks.py`. It takes about five minutes on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from serving_attacks import attack

from saccade import api
from saccade.training.checkpoints import RunFolder
from serving import HERE, Work, clients, main, percentile, request, saccade, started

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,"
    "positive_data_acceptance"
)
# 422: the request is as described, and the model cannot answer it
ACCEPTED = '[checks.positive_data_acceptance]\nexpected-statuses = ["2xx", "401", "404", "422", "429", "5xx"]\n'
SMALL = {"dim": 16, "hidden": 16, "heads": 2, "depth": 1, "dropout": 0.0}
SEES = {"image_encoder": {"family": "cnn", "dim": 8, "depths": [1], "stem_stride": 4}}
LINES = {
    "text.txt": "the cat saw the dog\nthe dog saw a mouse\n",
    "reviews.tsv": "text\tlabel\na good film\tgood\na bad film\tbad\ngood fun\tgood\nno fun at all\tbad\n",
    "words.conllu": "1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n2\tcats\tcat\tNOUN\tNNS\t_\t0\troot\t_\t_\n\n",
}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "en-fr": ("translation", "phrasebook:train", {"family": "transformer", **SMALL}),
    "words": ("language-modelling", "text.txt", {"family": "transformer-decoder", **SMALL}),
    "labels": ("classification", "reviews.tsv", {"family": "transformer-encoder", **SMALL}),
    "tags": ("tagging", "words.conllu", {"family": "transformer-encoder", **SMALL}),
    "captions": ("captioning", "shapes:train", {"family": "transformer", **SMALL, **SEES}),
    "questions": ("questions", "shapes:train", {"family": "transformer-encoder", **SMALL, **SEES}),
}


def make_models(root: Path) -> list[str]:
    """A small model of each kind, with random parameters."""
    for name, text in LINES.items():
        (root / name).write_text(text)
    for name, (task, data, model) in FAMILIES.items():
        where = (
            {"train": str(root / data), "dev": str(root / data)}
            if data in LINES
            else {"train": data}
        )
        counts = (
            {"shapes": {"train": 20}}
            if "shapes" in data
            else {"phrasebook": {"train": 50}}
            if "phrase" in data
            else {}
        )
        made: dict[str, Any] = {
            "task": task,
            "data": {**where, **counts},
            "model": model,
            "device": "cpu",
        }
        made["vocabulary"] = {"kind": "words"}
        made |= {"language": {"block": 8}} if name == "words" else {}
        system = api.build(made)
        RunFolder(root, api.model_files(system)).save(name, system.model)
    return [f"{name}={root / name}" for name in FAMILIES]


def fuzz(_: Work, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "saccade",
            "serve",
            *make_models(Path(folder)),
            "--port",
            "0",
            "--device",
            "cpu",
            "--json",
        ]
        settings = Path(folder) / "schemathesis.toml"
        settings.write_text(ACCEPTED)
        with started(command) as (_, port):
            url, most = f"http://127.0.0.1:{port}/openapi.json", str(options.cases // 12)
            asked = [
                "run",
                url,
                "--checks",
                CHECKS,
                "-n",
                most,
                "--phases",
                "examples,coverage,fuzzing,stateful",
                "--continue-on-failure",
            ]
            got = subprocess.run(
                [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), *asked],
                capture_output=True,
                text=True,
                env=HERE,
            )
    print(got.stdout[-6000:])
    cases, routes = (
        re.search(r"([\d,]+) generated", got.stdout),
        re.search(r"Tested: +(\d+)", got.stdout),
    )
    failed = re.search(r"([\d,]+) found .*unique failures|(\d+) unique failures", got.stdout)
    return {
        "cases": int(cases[1].replace(",", "")) if cases else 0,
        "routes": int(routes[1]) if routes else 0,
        "failures": 0 if got.returncode == 0 else failed[0] if failed else "see the output",
        "exit_code": got.returncode,
    }


def refusals() -> dict[str, bytes]:
    """Requests that no client should send."""
    post = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunked, most = post + b"Transfer-Encoding: chunked\r\n\r\n", 2**20
    bomb = gzip.compress(b" " * 10 * most)
    return {
        "body limit + 1 byte": post
        + f"Content-Length: {most + 1}\r\n\r\n".encode()
        + b" " * (most + 1),
        "body limit + 1 byte in a chunk": chunked
        + f"{most + 1:x}\r\n".encode()
        + b" " * (most + 1)
        + b"\r\n0\r\n\r\n",
        "1-byte chunks": chunked + b"1\r\n \r\n" * 200_000 + b"0\r\n\r\n",
        "gzip bomb": post
        + f"Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
        + bomb,
        "gzip bomb as JSON": post + f"Content-Length: {len(bomb)}\r\n\r\n".encode() + bomb,
        "JSON of 100,000 levels": post
        + b"Content-Length: 200000\r\n\r\n"
        + b"[" * 100_000
        + b"]" * 100_000,
        "objects of 100,000 levels": post
        + b"Content-Length: 500000\r\n\r\n"
        + b'{"":' * 100_000
        + b"}" * 100_000,
        "10,000 headers": post + b"".join(b"X-%d: 1\r\n" % n for n in range(10_000)) + b"\r\n",
        "a header of 1 MiB": post + b"X: " + b"a" * most + b"\r\n\r\n",
    }


async def refused(port: int, sent: bytes) -> tuple[int, float]:
    """The status and the seconds until it was there."""
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def push() -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(sent)
            await writer.drain()

    pushing = asyncio.create_task(push())
    status = int((await reader.readuntil(b"\r\n"))[9:12])
    seconds = time.perf_counter() - begun
    pushing.cancel()
    writer.close()
    return status, seconds


async def slowly(port: int, body: bytes, head: bool) -> None:
    """A byte a second, of the headers or of the body, on a new connection whenever the old one is closed."""
    at = 0 if head else body.index(b"\r\n\r\n") + 4
    while True:
        with contextlib.suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(body[:at])
                for n in range(at, len(body) - 1):
                    writer.write(body[n : n + 1])
                    await writer.drain()
                    await asyncio.sleep(1)
            finally:
                writer.close()


async def go_away(port: int, bodies: list[bytes], count: int, seconds: float) -> None:
    """Clients that ask, spread over the time: half of them leave in the middle of the body, half before the answer."""
    for n in range(count):
        with contextlib.suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            sent = bodies[n % len(bodies)]
            writer.write(sent[: len(sent) - 10 * (n % 2)])
            await asyncio.sleep(random.uniform(0, 2 * seconds / count))
            writer.transport.abort()


async def beside(work: Work, port: int, seconds: float, slow: int, leaving: int) -> list[float]:
    """Times of eight clients while others misbehave."""
    others = [
        asyncio.create_task(slowly(port, work.bodies[n % len(work.bodies)], n % 2 == 0))
        for n in range(slow)
    ]
    await asyncio.sleep(1)
    others.append(asyncio.create_task(go_away(port, work.bodies, leaving, seconds)))
    times = await clients(port, 8, seconds, work.bodies, work.check)
    for one in others:
        one.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return times


def hostile(work: Work, options: argparse.Namespace) -> dict[str, Any]:
    with saccade(work.folder) as (_, port):
        asyncio.run(clients(port, 1, 2, work.bodies, work.check))
        answers = {name: asyncio.run(refused(port, sent)) for name, sent in refusals().items()}
        quiet, disturbed = list[float](), list[float]()
        seconds = options.seconds / 6
        for _ in range(2):
            quiet += asyncio.run(beside(work, port, seconds, 0, 0))
            disturbed += asyncio.run(beside(work, port, seconds, 200, 500))
        ready = asyncio.run(refused(port, request("/health/ready", {}).replace(b"POST", b"GET")))
    with tempfile.TemporaryDirectory() as folder:
        attacks = attack(make_models(Path(folder)))
    return {
        "status": {name: status for name, (status, _) in answers.items()},
        "seconds": {name: round(seconds, 4) for name, (_, seconds) in answers.items()},
        "slowest_refusal": max(seconds for _, seconds in answers.values()),
        "p50_ms_quiet": 1e3 * percentile(quiet, 0.5),
        "p50_ms_disturbed": 1e3 * percentile(disturbed, 0.5),
        "p99_ms_quiet": 1e3 * percentile(quiet, 0.99),
        "p99_ms_disturbed": 1e3 * percentile(disturbed, 0.99),
        "p99_ratio": percentile(disturbed, 0.99) / percentile(quiet, 0.99),
        "ready_after": ready[0],
        "answers": dict(work.counts),
        **attacks,
    }


if __name__ == "__main__":
    main({"fuzz": fuzz, "hostile": hostile}, __doc__ or "")
