"""Benchmark the service under load; each part writes `benchmarks/results/serve-PART.json`.

    python benchmarks/serving.py load overload restarts [--model FOLDER] [--seconds 60] [--restarts 100] [--out FOLDER]

load: answers per second with 1 and 32 clients, with one process and one per core; latency of a
single client against a call without HTTP; the same model by CTranslate2 behind a plain FastAPI
endpoint (`pip install ctranslate2 fastapi`). overload: requests at four times the capacity, each
sent on schedule. restarts: repeated SIGTERM and start while 16 clients send requests. Without
--model a small Transformer is trained on the embedded phrasebook, in about a minute.
`serving_hostile.py` has the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from saccade import api
from saccade.experiments.results import Table

TRAINED = Path("runs/serving")
RECIPE = "phrasebook-transformer"
SETTINGS = [
    "model.family=transformer-base",
    "training.updates=400",
    "training.tokens=1500",
    "training.warmup=100",
]
SETTINGS += ["training.evaluate_every=400", "data.options.train=6000", "data.options.dev=100"]
HERE = {**os.environ, "OMP_NUM_THREADS": "1"}


def request(path: str, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


class Client:
    """A connection that stays open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writer: Any = None

    async def ask(self, sent: bytes) -> tuple[int, bytes]:
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(sent)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        body = await self.reader.readexactly(
            int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        )
        if b"connection: close" in head:
            self.close()
        return int(head[9:12]), body

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.writer = None


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[tuple[int, int]]:
    """The process of a service that prints its address as JSON: its number and its port."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=HERE) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        finally:
            process.terminate()
            process.wait(30)


def saccade(model: Path, *options: str) -> Any:
    return started(
        [
            sys.executable,
            "-m",
            "saccade",
            "serve",
            f"en-fr={model}",
            "--port",
            "0",
            "--device",
            "cpu",
            "--json",
            *options,
        ]
    )


async def clients(
    port: int,
    count: int,
    seconds: float,
    bodies: list[bytes],
    check: Callable[[int, int, bytes], Any],
) -> list[float]:
    """The times of all answers to some clients, each of which asks again as soon as it is answered."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def one(n: int) -> None:
        client = Client(port)
        while (begun := time.perf_counter()) < end:
            status, body = await client.ask(bodies[n % len(bodies)])
            times.append(time.perf_counter() - begun)
            check(n % len(bodies), status, body)
            n += count
        client.close()

    await asyncio.gather(*map(one, range(count)))
    return times


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]


def memory(process: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Work:
    """The model, what is asked, and what the model answers by itself, one text at a time."""

    def __init__(self, model: Path, count: int = 200) -> None:
        torch.set_num_threads(1)
        self.folder, self.system = model, api.load(model, "cpu")
        self.texts = list(dict.fromkeys(pair.source for pair in self.system.read("test")))[:count]
        self.expected = [self.system.translate(text).text for text in self.texts]
        self.bodies = [request("/v1/translate", {"text": text}) for text in self.texts]
        self.counts: Counter[str] = Counter()

    def check(self, n: int, status: int, body: bytes) -> None:
        right = status == 200 and json.loads(body)["results"][0]["text"] == self.expected[n]
        self.counts["right" if right else "wrong" if status == 200 else str(status)] += 1


def load(work: Work, options: argparse.Namespace) -> dict[str, Any]:
    """A process per core, one process, and the peer, in turn."""
    seconds, cores = min(options.seconds / 6, 10), os.cpu_count() or 1
    peer = [sys.executable, __file__, "peer", "--model", str(work.folder)]
    many = saccade(work.folder, "--workers", str(cores))
    with many as (_, port), saccade(work.folder) as (_, single), started(peer) as (_, other):
        alone, lone = asyncio.run(side_by_side(work, port))
        rates, same = dict[str, list[float]](), Counter[bool]()
        check = {
            "ctranslate2": lambda n, _, body: same.update(
                [json.loads(body)["text"] == work.expected[n]]
            )
        }
        for _, count in itertools.product(range(3), (1, 32)):
            for name, where in (("saccade", port), ("one_process", single), ("ctranslate2", other)):
                begun = time.perf_counter()
                times = asyncio.run(
                    clients(where, count, seconds, work.bodies, check.get(name, work.check))
                )
                rates.setdefault(f"{name}_{count}", []).append(
                    len(times) / (time.perf_counter() - begun)
                )
    rate = {name: statistics.median(found) for name, found in rates.items()}
    ratio = {
        name: [b / a for a, b in zip(rates[f"{name}_1"], rates[f"{name}_32"], strict=True)]
        for name in ("saccade", "one_process", "ctranslate2")
    }
    found: dict[str, Any] = {"processes": cores}
    for name, before in (
        ("saccade", ""),
        ("one_process", "one_process_"),
        ("ctranslate2", "ctranslate2_"),
    ):
        found[f"{before}per_second_1_client"], found[f"{before}per_second_32_clients"] = (
            rate[f"{name}_1"],
            rate[f"{name}_32"],
        )
        found[f"{before}throughput_ratio"] = statistics.median(ratio[name])
    return {
        **found,
        "throughput_ratios": ratio["saccade"],
        "p50_ms_call": 1e3 * statistics.median(alone),
        "p50_ms_lone_client": 1e3 * statistics.median(lone),
        "p50_ratio": statistics.median(lone) / statistics.median(alone),
        "ctranslate2_same_texts": same[True] / max(same.total(), 1),
        "answers": dict(work.counts),
    }


async def side_by_side(work: Work, port: int) -> tuple[list[float], list[float]]:
    """Times of calls without HTTP and of a lone client, in turn."""
    client, alone, lone = Client(port), [], []
    for n, (text, body) in enumerate(zip(work.texts, work.bodies, strict=True)):
        begun = time.perf_counter()
        work.system.translate(text)
        middle = time.perf_counter()
        status, got = await client.ask(body)
        lone.append(time.perf_counter() - middle)
        alone.append(middle - begun)
        work.check(n, status, got)
    client.close()
    return alone[10:], lone[10:]


def serve_peer(model: Path) -> None:
    """CTranslate2 with the model's parameters behind a plain FastAPI endpoint that batches nothing, as one would write it first."""
    import ctranslate2
    import uvicorn
    from fastapi import Body, FastAPI

    from saccade.studies.bench.decoding_speed import ctranslate2_spec

    system = api.load(model, "cpu")
    source, target, lengths = system.task.source, system.task.target, system.task.lengths
    spec = ctranslate2_spec(ctranslate2, system.model)
    spec.validate()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ctranslate2.Translator(
            folder, compute_type="float32", intra_threads=1, inter_threads=1
        )
    names = ["<pad>", "<unk>", "<s>", "</s>", *(f"w{id}" for id in range(4, len(target)))]
    ids, app, given = {name: id for id, name in enumerate(names)}, FastAPI(), Body(embed=True)

    @app.post("/v1/translate")
    def translate(text: str = given) -> dict[str, str]:
        words = [names[id] for id in [*source.encode_ids([text])[0], source.eos]]
        found = translator.translate_batch(
            [words], beam_size=1, max_decoding_length=lengths.limit(len(words))
        )
        return {"text": target.decode([ids[word] for word in found[0].hypotheses[0]])}

    # without Nagle's algorithm, as uvicorn's own
    here = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    here.bind(("127.0.0.1", 0))
    print(json.dumps({"url": f"http://127.0.0.1:{here.getsockname()[1]}"}), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run([here])


def overload(work: Work, options: argparse.Namespace) -> dict[str, Any]:
    with saccade(work.folder) as (process, port):
        asyncio.run(clients(port, 64, 5, work.bodies, work.check))
        times = asyncio.run(clients(port, 32, 10, work.bodies, work.check))
        capacity = len(times) / 10
        before = statistics.median(asyncio.run(clients(port, 1, 5, work.bodies[:1], work.check)))
        work.counts.clear()
        size = memory(process)
        surplus, accepted, largest, back = asyncio.run(
            arrivals(work, port, process, 4 * capacity, options.seconds, 1.5 * before)
        )
    refused = work.counts["429"] + work.counts["503"]
    return {
        "capacity_per_second": capacity,
        "sent_per_second": work.counts.total() / options.seconds,
        "seconds": options.seconds,
        "right": work.counts["right"],
        "wrong": work.counts["wrong"],
        "refused": refused,
        "other": work.counts.total() - refused - work.counts["right"] - work.counts["wrong"],
        "refused_p50_ms": 1e3 * statistics.median(surplus),
        "refused_p99_ms": 1e3 * percentile(surplus, 0.99),
        "accepted_p50_ms": 1e3 * statistics.median(accepted),
        "memory_growth": largest / size - 1,
        "seconds_to_normal": back,
    }


async def arrivals(
    work: Work, port: int, process: int, rate: float, seconds: float, normal: float
) -> tuple[Any, Any, int, float]:
    """An open model: a request is sent when its time comes. Times of what was refused and of what was answered, memory, recovery."""
    idle, surplus, accepted, largest = list[Client](), list[float](), list[float](), 0
    running: set[asyncio.Task[None]] = set()

    async def one(n: int) -> None:
        client = idle.pop() if idle else Client(port)
        begun = time.perf_counter()
        try:
            status, body = await client.ask(work.bodies[n])
        except (OSError, asyncio.IncompleteReadError):
            work.counts["no answer"] += 1
            client.close()
            return
        (accepted if status == 200 else surplus).append(time.perf_counter() - begun)
        work.check(n, status, body)
        idle.append(client)

    begun, sent = time.perf_counter(), 0
    while (now := time.perf_counter() - begun) < seconds:
        while sent < now * rate:
            task = asyncio.create_task(one(sent % len(work.bodies)))
            running.add(task)
            task.add_done_callback(running.discard)
            sent += 1
        largest = max(largest, memory(process)) if sent % 50 < 5 else largest
        await asyncio.sleep(0.002)
    ended, times = time.perf_counter(), list[float]()
    client = Client(port)
    while len(times) < 5 or max(times[-5:]) > normal:  # five times in a row as quick as before
        at = time.perf_counter()
        status, _ = await client.ask(work.bodies[0])
        times.append(time.perf_counter() - at if status == 200 else 60.0)
        if time.perf_counter() - ended > 60:
            break
    back = time.perf_counter() - ended - sum(times[-5:])
    await asyncio.gather(*running)
    for each in (*idle, client):
        each.close()
    return surplus, accepted, max(largest, memory(process)), back


def launch(model: Path) -> None:
    """Starts a service at each line of stdin, by a fork of this process, in which everything is imported; prints its number, then its code."""
    from saccade.serving.server import serve
    from saccade.serving.service_settings import Settings

    torch.set_num_threads(1)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            os._exit(
                serve(Settings({"en-fr": model}, port=int(line), device="cpu"), lambda where: None)
            )
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


async def restarts(work: Work, options: argparse.Namespace) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ended, codes, seconds = False, Counter[int](), list[float]()

    async def client(n: int) -> None:
        """Asks on a connection as long as it stays; a connection that is refused was accepted by nobody."""
        mine = Client(port)
        while not ended:
            try:
                status, body = await mine.ask(work.bodies[n % len(work.bodies)])
                work.check(n % len(work.bodies), status, body)
            except ConnectionRefusedError:
                work.counts["nobody there"] += 1
                await asyncio.sleep(0.02)
            except (OSError, asyncio.IncompleteReadError):
                work.counts["lost"] += 1
                mine.close()
            n += 16
        mine.close()

    pipe = asyncio.subprocess.PIPE
    launcher = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        "launch",
        "--model",
        str(work.folder),
        stdin=pipe,
        stdout=pipe,
        env=HERE,
    )
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    asking = [asyncio.create_task(client(n)) for n in range(16)]
    for n in range(options.restarts):
        launcher.stdin.write(f"{port}\n".encode())
        process, before = int(await launcher.stdout.readline()), work.counts["right"]
        while work.counts["right"] < before + 8 + n % 40:  # at another moment each time
            await asyncio.sleep(0.01)
        begun = time.perf_counter()
        os.kill(process, signal.SIGTERM)
        codes[int(await launcher.stdout.readline())] += 1
        seconds.append(time.perf_counter() - begun)
    ended = True
    await asyncio.gather(*asking)
    launcher.stdin.close()
    await launcher.wait()
    kinds = {name: work.counts[name] for name in ("right", "wrong", "lost", "503", "429")}
    return {
        "restarts": options.restarts,
        **kinds,
        "exit_codes": dict(codes),
        "seconds_to_end": max(seconds),
    }


def trained(options: argparse.Namespace) -> Path:
    if options.model is None and not (TRAINED / "best").exists():
        command = [
            sys.executable,
            "-m",
            "saccade",
            "train",
            RECIPE,
            *SETTINGS,
            "--out",
            str(TRAINED),
        ]
        subprocess.run(command, check=True)
    return options.model or TRAINED


PARTS: dict[str, Callable[..., Any]] = {
    "load": load,
    "overload": overload,
    "restarts": lambda *given: asyncio.run(restarts(*given)),
}


def main(parts: dict[str, Callable[..., Any]], about: str) -> None:
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("parts", nargs="+", choices=[*parts, "peer", "launch"], metavar="PART")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--restarts", type=int, default=100)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    if options.parts[0] in ("peer", "launch"):
        (serve_peer if options.parts[0] == "peer" else launch)(options.model)
        return
    model = trained(options)
    for part in options.parts:
        figures = {**parts[part](Work(model), options), "load_average": os.getloadavg()[0]}
        print(part, json.dumps(figures, indent=2), flush=True)
        notes = f"{os.cpu_count()} cores for the service, the clients and whatever else ran; one thread for the model"
        print(Table(f"serve-{part}", {RECIPE: figures}, RECIPE, notes=notes).write(options.out))


if __name__ == "__main__":
    main(PARTS, __doc__ or "")
