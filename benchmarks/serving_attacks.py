"""Attack a service with hostile bodies, signals and killed processes; run by `serving_hostile.py`.

Bodies at the limit of each route, in every form, with and without a key: how long /health/live does
not answer, and how much memory the request takes and keeps. Then counts of threads and files,
unread connections, signals and restarts.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from serving import HERE

MIB = 2**20
JSON, PLAIN, PARTS = (
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
)
PICTURE_ROUTES = ("/v1/caption", "/v1/answer", "/v1/classify", "/v1/look")
SENTENCE = " ".join(f"w{n}" for n in range(30))
DOG = {"text": "a dog"}


class Target:
    """A service in a process of its own, with what it writes to its log."""

    def __init__(self, models: list[str], *options: str, files: int = 4096) -> None:
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115 – closed with the target
        words = [
            sys.executable,
            "-m",
            "saccade",
            "serve",
            *models,
            "--port",
            "0",
            "--device",
            "cpu",
            "--json",
            *options,
        ]
        limited = ["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash", *words]
        self.process = subprocess.Popen(
            limited, stdout=subprocess.PIPE, stderr=self.log, text=True, env=HERE
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port = int(json.loads(line)["url"].rpartition(":")[2]) if line else 0

    def __enter__(self) -> Target:
        end = time.monotonic() + 60
        while self.port and time.monotonic() < end and self.status("GET", "/health/ready") != 200:
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        workers = self.workers()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        for one in (self.process.pid, *workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def workers(self) -> list[int]:
        return [
            int(one)
            for path in Path(f"/proc/{self.process.pid}/task").glob("*/children")
            for one in path.read_text().split()
        ]

    def said(self) -> str:
        return Path(self.log.name).read_text()

    def ask(
        self, method: str, path: str, body: Any = None, kind: str = JSON, **headers: str
    ) -> tuple[int, bytes]:
        there = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            there.request(
                method,
                path,
                data,
                {"Content-Type": kind, **headers} if data is not None else headers,
            )
            got = there.getresponse()
            return got.status, got.read()
        finally:
            there.close()

    def status(self, *given: Any, **named: Any) -> int | str:
        """The status, or the name of what went wrong."""
        try:
            return self.ask(*given, **named)[0]
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__

    def figure(self, name: str, process: int = 0) -> float:
        """A number of a process: memory in MiB, or a count."""
        lines = Path(f"/proc/{process or self.process.pid}/status").read_text().splitlines()
        words = next(line for line in lines if line.startswith(name + ":")).split()
        return int(words[1]) / (1024 if name.startswith("Vm") else 1)

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextlib.contextmanager
def pulse(target: Target, pause: float = 0.01) -> Iterator[list[float]]:
    """The seconds that each answer of /health/live took meanwhile."""
    times, ended = list[float](), threading.Event()

    def beat() -> None:
        while not ended.wait(pause):
            begun = time.perf_counter()
            target.status("GET", "/health/live")
            times.append(time.perf_counter() - begun)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield times
    finally:
        ended.set()
        thread.join()


def together(count: int, work: Callable[[int], Any]) -> Counter[Any]:
    """What some threads get, each from its own call."""
    found, threads = list[Any](), list[threading.Thread]()
    for n in range(count):
        threads.append(threading.Thread(target=lambda n=n: found.append(work(n))))  # type: ignore[misc]
        threads[-1].start()
    for one in threads:
        one.join()
    return Counter(found)


def part(
    content: bytes,
    disposition: bytes = b'form-data; name="image"; filename="a.png"',
    more: bytes = b"",
) -> bytes:
    return (
        b"--b\r\nContent-Disposition: "
        + disposition
        + b"\r\n"
        + more
        + b"\r\n"
        + content
        + b"\r\n--b--\r\n"
    )


def bodies(size: int) -> dict[str, tuple[str, Any]]:
    """Hostile bodies of about this size, by their names: their content type and bytes, a list of which is sent in chunks."""
    size -= 300
    lists = b'{"text":[' + b"[]," * (size // 3) + b"[]]}"
    return {
        "JSON: empty lists": (JSON, lists),
        "JSON: empty objects": (JSON, b'{"a":[' + b"{}," * (size // 3) + b"{}]}"),
        "JSON: keys": (JSON, b"{" + b",".join(b'"%07d":1' % n for n in range(size // 12)) + b"}"),
        "JSON: numbers": (JSON, b"[" + b"1.5," * (size // 4) + b"1]"),
        "JSON: digits": (JSON, b'{"text":0.' + b"9" * size + b"}"),
        "JSON: depth": (JSON, b"[" * size),
        "JSON: one text": (JSON, b'{"text": "' + b"a" * size + b'"}'),
        "JSON: escapes": (JSON, b'{"text": "' + b"\\u00e9" * (size // 6) + b'"}'),
        "JSON: a name": (JSON, b'{"' + b"a" * size + b'": 1}'),
        "JSON: an image of garbage": (JSON, b'{"image": "' + b"A" * (size & -4) + b'"}'),
        "JSON in chunks": (JSON, [lists[n : n + 65536] for n in range(0, len(lists), 65536)]),
        "form: escapes": (PLAIN, b"q=" + b"%41" * (size // 3)),
        "form: fields": (PLAIN, b"q=1&" * (size // 4)),
        "parts: encoded words": (
            PARTS,
            part(b"x", b'form-data; name="' + b"=?utf-8?q?a?= " * (size // 14) + b'"'),
        ),
        "parts: numbered names": (PARTS, part(b"x", b"form-data" + b";name*0*=a" * (size // 10))),
        "parts: folded header": (
            PARTS,
            part(b"x", b'form-data; name="image"' + b"\r\n a" * (size // 4)),
        ),
        "parts: header lines": (PARTS, part(b"x", more=b"X: y\r\n" * (size // 6))),
        "parts: newlines in a file": (PARTS, part(b"\n" * size)),
        "parts: newlines before all": (PARTS, b"\n" * size),
        "parts: a great many": (
            PARTS,
            b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n" * (size // 49) + b"--b--",
        ),
        "parts: almost boundaries": (PARTS, part(b"\r\n--bb" * (size // 7))),
    }


ROUTES = (
    "/v1/translate",
    "/v1/tag",
    "/v1/generate",
    "/v1/completions",
    "/v1/worked",
    "/translate",
    "/detect",
    *PICTURE_ROUTES,
)


def flood(models: list[str], key: str = "") -> dict[str, Any]:
    """Each body to each route, by somebody without a key; the worst of each route."""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write(key + "\n")
        file.flush()
        with Target(models, *(["--key-file", file.name] if key else [])) as target:
            # what is loaded or compiled at the first request is not counted
            for path in (*ROUTES, "/languages"):
                target.status(
                    "POST",
                    path,
                    {"text": "a dog", "q": "a dog", "source": "en", "target": "fr"},
                    JSON,
                )
                target.status("POST", path, b" " * 100_000, JSON)
                target.status(
                    "POST",
                    path,
                    {"image": picture(8, "RGB"), "question": "what color is it ?", "target": "a"},
                )
            for kind, sent in bodies(MIB).values():
                target.status(
                    "POST", "/v1/translate", iter(sent) if isinstance(sent, list) else sent, kind
                )
            return {path: flood_route(target, path) for path in (*ROUTES, "/languages")}


def flood_route(target: Target, path: str) -> dict[str, Any]:
    limit = (16 if path in PICTURE_ROUTES else 1) * MIB
    first, statuses, slowest, largest = target.figure("VmRSS"), Counter[str](), (0.0, ""), (0.0, "")
    for name, (kind, sent) in bodies(limit).items():
        Path(f"/proc/{target.process.pid}/clear_refs").write_text("5")  # the peak is counted anew
        before = target.figure("VmRSS")
        with pulse(target) as times:
            time.sleep(0.03)
            status = target.status(
                "GET" if path == "/languages" else "POST",
                path,
                iter(sent) if isinstance(sent, list) else sent,
                kind,
            )
            time.sleep(0.05)
        statuses[str(status)] += 1
        slowest = max(slowest, (max(times), name))
        largest = max(largest, (target.figure("VmHWM") - before, name))
    time.sleep(0.2)
    return {
        "statuses": dict(statuses),
        "silence_seconds": round(slowest[0], 3),
        "silent_for": slowest[1],
        "growth_mib": round(largest[0], 1),
        "grown_for": largest[1],
        "growth_by_limit": round(largest[0] * MIB / limit, 2),
        "kept_mib": round(target.figure("VmRSS") - first, 1),
    }


def picture(size: int, mode: str) -> str:
    made = io.BytesIO()
    Image.new(mode, (size, size)).save(made, "PNG")
    return base64.b64encode(made.getvalue()).decode()


def pictures(target: Target) -> dict[str, Any]:
    """The largest allowed pictures: what their pixels take, on top of the body."""
    found: dict[str, Any] = {}
    for mode in ("RGB", "RGBA", "I;16"):
        body = {"image": picture(4000, mode)}
        Path(f"/proc/{target.process.pid}/clear_refs").write_text("5")
        before = target.figure("VmRSS")
        with pulse(target) as times:
            status = target.status("POST", "/v1/caption", body)
        time.sleep(0.3)
        grown, kept = target.figure("VmHWM") - before, target.figure("VmRSS") - before
        found[mode] = {
            "status": status,
            "silence_seconds": round(max(times), 3),
            "growth_mib": round(grown),
            "kept_mib": round(kept),
        }
    return found


def work_out(target: Target, seconds: float = 4.0) -> dict[str, Any]:
    """32 clients that ask for the longest worked example again and again."""
    end = time.monotonic() + seconds

    def one(_: int) -> tuple[tuple[Any, int], ...]:
        found = Counter[Any]()
        while time.monotonic() < end:
            found[target.status("POST", "/v1/worked", {"text": SENTENCE})] += 1
        return tuple(found.items())

    with pulse(target) as times:
        answers = Counter[str]()
        for items, count in together(32, one).items():
            answers.update({str(status): n * count for status, n in items})
    return {"answers": dict(answers), "silence_seconds": round(max(times), 3)}


def unfinished(models: list[str], count: int = 60) -> dict[str, Any]:
    """Clients that send all but the last bytes of the largest body, to two processes."""
    head = (
        b"POST /v1/caption HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % (16 * MIB - 10)
    )
    with Target(models, "--workers", "2") as target:
        rss = lambda: sum(target.figure("VmRSS", one) for one in target.workers())
        before, held = rss(), list[socket.socket]()
        for _ in range(count):
            here = socket.create_connection(("127.0.0.1", target.port))
            held.append(here)
            here.settimeout(5)
            with contextlib.suppress(OSError):
                here.sendall(head)
                for _ in range(15):
                    here.sendall(b"a" * MIB)
        time.sleep(0.5)
        grown, other = rss() - before, target.status("POST", "/v1/translate", DOG)
        refused = sum(answered(one).startswith(b"HTTP/1.1 503") for one in held)
        for one in held:
            one.close()
        time.sleep(1)
        return {
            "bodies": count,
            "growth_mib": round(grown),
            "refused": refused,
            "another_client": other,
            "kept_mib": round(rss() - before),
        }


def answered(here: socket.socket) -> bytes:
    here.setblocking(False)
    with contextlib.suppress(OSError):
        return here.recv(100)
    return b""


def looks(target: Target, count: int = 5000) -> dict[str, Any]:
    """Threads and files before and after looks of eight clients."""
    body = json.dumps({"text": "the black cat", "target": "le chat noir"}).encode()

    def one(_: int) -> int:
        there, right = http.client.HTTPConnection("127.0.0.1", target.port, timeout=60), 0
        for _ in range(count // 8):
            there.request("POST", "/v1/look", body, {"Content-Type": JSON})
            got = there.getresponse()
            right += got.status == 200 and len(got.read()) > 0
        there.close()
        return right

    before = int(target.figure("Threads")), target.files()
    right = sum(n * times for n, times in together(8, one).items())
    time.sleep(0.2)
    return {
        "right": right,
        "threads": [before[0], int(target.figure("Threads"))],
        "files": [before[1], target.files()],
    }


def few_files(models: list[str]) -> dict[str, Any]:
    """150 idle connections to a service that may open 64 files: what one more client gets, and when they have left."""
    with Target(models[:1], files=64) as target:
        held = list[socket.socket]()
        with contextlib.suppress(OSError):
            for _ in range(150):
                held.append(socket.create_connection(("127.0.0.1", target.port), 2))
        time.sleep(0.5)
        begun = time.perf_counter()
        status = target.status("GET", "/health/live")
        seconds = time.perf_counter() - begun
        for one in held:
            one.close()
        time.sleep(3)
        after, errors = target.status("GET", "/health/live"), target.said().count("Traceback")
        return {
            "status": status,
            "seconds": round(seconds, 2),
            "status_after": after,
            "tracebacks": errors,
        }


def unread(models: list[str], seconds: int = 3) -> dict[str, Any]:
    """Clients that ask for large answers and read nothing: connections that are still held after a few seconds more."""
    text = " ".join(["a"] * 240)
    body = json.dumps({"text": text, "target": text, "look": {"pool": 1}}).encode()
    head = (
        b"POST /v1/look HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )
    with Target(models[:1], "--seconds", str(seconds)) as target:
        before, held = target.files(), list[socket.socket]()
        for _ in range(10):
            here = socket.socket()
            here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            here.connect(("127.0.0.1", target.port))
            here.sendall(head + body)
            held.append(here)
        time.sleep(2 * seconds + 9)
        left = target.files() - before
        for one in held:
            one.close()
        return {"clients": len(held), "held_after_seconds": 2 * seconds + 9, "held": left}


def deaths(models: list[str]) -> dict[str, Any]:
    """Workers that go on 2 seconds after their parent got a signal; and how soon a killed worker is replaced, and whether the log says why."""
    orphans, replaced = dict[str, int](), dict[str, Any]()
    for name in ("SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1"):
        with Target(models[:1], "--workers", "2") as target:
            workers = wait_for(
                lambda target=target: len(target.workers()) == 2 and target.workers()
            )  # type: ignore[misc]
            if name == "SIGKILL":
                begun = time.perf_counter()
                os.kill(workers[0], signal.SIGKILL)
                wait_for(
                    lambda target=target, gone=workers[0]: (
                        len(target.workers()) == 2 and gone not in target.workers()
                    )
                )  # type: ignore[misc]
                replaced = {
                    "seconds": round(time.perf_counter() - begun, 1),
                    "status": target.status("POST", "/v1/translate", DOG),
                }
                replaced["logged"] = (
                    "SIGKILL" in target.said()
                    or "signal 9" in target.said()
                    or "-9" in target.said()
                )
                workers = target.workers()
            target.process.send_signal(getattr(signal, name))
            time.sleep(2)
            alive = [one for one in workers if lives(one)]
            orphans[name] = len(alive)
            for one in alive:
                os.kill(one, signal.SIGKILL)
    return {"orphans": orphans, "replaced": replaced}


def wait_for(true: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def resets(models: list[str], clients: int = 24) -> dict[str, Any]:
    """SIGTERM to two workers while clients open a connection for each request: what became of the requests, by what they got."""
    with Target(models[:1], "--workers", "2") as target:
        ended, found, lock = threading.Event(), Counter[str](), threading.Lock()

        def one(_: int) -> None:
            while not ended.is_set():
                got = str(target.status("POST", "/v1/translate", DOG))
                if got == "ConnectionRefusedError":  # nobody listens any more
                    return
                with lock:
                    found[got] += 1

        asking = threading.Thread(target=together, args=(clients, one))
        asking.start()
        time.sleep(1.5)
        target.process.send_signal(signal.SIGTERM)
        code: int | str = "it did not end"
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = target.process.wait(15)
        ended.set()
        asking.join()
        return {
            "answers": dict(found),
            "resets": sum(n for name, n in found.items() if not name.isdigit()),
            "exit_code": code,
        }


def attack(models: list[str]) -> dict[str, Any]:
    """All of it; a figure for each limit that the service promises, and a table for people."""
    found: dict[str, Any] = {
        "without_key": flood(models, "a-key-of-enough-letters"),
        "open": flood(models),
    }
    for name in ("without_key", "open"):
        print(
            f"\nHostile bodies, {'a client without a key' if name == 'without_key' else 'no key is needed'}:"
        )
        print(
            f"{'route':16} {'silence, s':>10} {'memory, MiB':>12} {'of the limit':>12} {'kept, MiB':>10}  statuses"
        )
        for path, row in found[name].items():
            size = (
                f"{row['growth_mib']:12.1f} {row['growth_by_limit']:11.2f}× {row['kept_mib']:10.1f}"
            )
            statuses = ", ".join(f"{count} × {status}" for status, count in row["statuses"].items())
            print(f"{path:16} {row['silence_seconds']:10.3f} {size}  {statuses}")
    with Target(models) as target:
        target.status("POST", "/v1/look", {"text": "a dog", "target": "un"})
        found |= {"pictures": pictures(target), "worked": work_out(target), "looks": looks(target)}
    found |= {
        "unfinished": unfinished(models),
        "few_files": few_files(models),
        "unread": unread(models),
    }
    found |= {"deaths": deaths(models), "resets": resets(models)}
    rows = [row for name in ("without_key", "open") for row in found[name].values()]
    summary = {
        "longest_silence": max(row["silence_seconds"] for row in rows),
        "largest_growth_by_limit": max(row["growth_by_limit"] for row in rows),
        "most_kept_mib": max(row["kept_mib"] for row in rows),
        "bodies_in_flight_mib": found["unfinished"]["growth_mib"],
        "threads_after_5000_looks": found["looks"]["threads"][1],
        "orphans": sum(found["deaths"]["orphans"].values()),
        "resets": found["resets"]["resets"],
    }
    print("\nWhat else was tried:")
    for name in (
        "pictures",
        "worked",
        "looks",
        "unfinished",
        "few_files",
        "unread",
        "deaths",
        "resets",
    ):
        print(f"{name:12} {json.dumps(found[name])}")
    print("\n" + "\n".join(f"{name:28} {value}" for name, value in summary.items()), flush=True)
    return {**summary, "attacks": found}
