"""The real command: started, asked by real clients, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serving_helpers import SENTENCES

from saccade import api
from saccade.serving.server import YIELD_SECONDS, Server, ignore_arrivals
from support import run_cli

ROOT = Path(__file__).parents[2]
KEY = "0123456789abcdef-key"
ALL = ["en-fr", "words", "labels", "tags", "captions", "questions"]


@contextmanager
def started(
    models: Path,
    *names: str,
    options: tuple[str, ...] = (),
    program: tuple[str, ...] = ("-m", "saccade"),
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, and its address."""
    words = [f"{name}={models / name}" for name in names]
    command = [
        sys.executable,
        *program,
        "serve",
        *words,
        "--port",
        "0",
        "--device",
        "cpu",
        "--json",
        *options,
    ]
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **how) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            assert json.loads(line)["models"] == list(names)
            yield process, json.loads(line)["url"]
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(30)


def ask(where: str, body: dict[str, Any], path: str = "/v1/translate", **headers: str) -> Any:
    request = urllib.request.Request(
        where + path,
        json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def check_stop(
    models: Path,
    process: subprocess.Popen[str],
    where: str,
    header: str = "",
    sign: signal.Signals = signal.SIGTERM,
) -> None:
    """Requests that were accepted before the signal are answered, and it ends with 0 within 10 seconds."""
    host, port = where.removeprefix("http://").split(":")
    expected = api.load(models / "en-fr", "cpu").translate(SENTENCES[2]).text
    accepted, found = threading.Barrier(9), list[str]()

    def client() -> None:
        body = json.dumps({"model": "en-fr", "text": [SENTENCES[2]] * 8}).encode()
        head = f"POST /v1/translate HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{header}\r\n"
        with socket.create_connection((host, int(port)), 20) as here:
            here.sendall(head.encode() + body[:-1])
            time.sleep(0.3)  # it is accepted, and its body not whole yet when the signal comes
            accepted.wait()
            time.sleep(0.3)
            here.sendall(body[-1:])
            got = b""
            while more := here.recv(65536):
                got += more
        found.append(got.decode())

    threads = [threading.Thread(target=client) for _ in range(8)]
    for one in threads:
        one.start()
    accepted.wait()
    process.send_signal(sign)
    for one in threads:
        one.join(120)
    assert process.wait(120) == 0
    assert len(found) == 8
    for got in found:
        assert got.startswith("HTTP/1.1 200 OK"), got
        assert [one["text"] for one in json.loads(got.partition("\r\n\r\n")[2])["results"]] == [
            expected
        ] * 8


def receive(here: socket.socket) -> tuple[int, bytes, bytes]:
    """One answer: its status, headers and body."""
    got = b""
    while b"\r\n\r\n" not in got and (part := here.recv(65536)):
        got += part
    head, _, body = got.partition(b"\r\n\r\n")
    while len(body) < int(re.findall(rb"content-length: (\d+)", head)[0]):
        body += here.recv(65536)
    return int(head.split()[1]), head, body


def send(where: str, sent: bytes, more: bytes = b"") -> tuple[int, bytes]:
    """The status and body of an answer to bytes that no HTTP library may want to send; `more` comes after it."""
    with connect(where) as here:
        here.sendall(sent)
        status, _, body = receive(here)
        here.sendall(more)
        return status, body


def connect(where: str) -> socket.socket:
    host, port = where.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 20)


def check_hostile(where: str) -> None:
    """What no HTTP library sends is refused at once, with a sentence; chunks are read."""
    post = f"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {KEY}\r\n"
    chunked = f"{post}Transfer-Encoding: chunked\r\n\r\n"
    body = json.dumps({"text": SENTENCES[0], "beam": 2})
    in_chunks = chunked + "".join(f"1\r\n{sign}\r\n" for sign in body) + "0\r\n\r\n"
    status, got = send(where, in_chunks.encode())
    assert (status, b"results" in got) == (200, True), got
    for sent in (
        post + "".join(f"X-{n}: 1\r\n" for n in range(10_000)) + "\r\n",
        chunked + "1\r\n \r\n" * 5000,
        chunked + "1\r\n \r\n" * 5000 + "0\r\n\r\n",
        chunked + f"{2**20 + 1:x}\r\n" + " " * (2**20 + 1) + "\r\n0\r\n\r\n",
        chunked + "nonsense\r\n",
        post + "Content-Length: 1e9\r\n\r\n",
        post + "Content-Length: 5\r\nContent-Encoding: gzip\r\n\r\n12345",
        post
        + "Content-Length: 5\r\nContent-Encoding: gzip\r\nContent-Encoding: identity\r\n\r\n12345",
        post
        + f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n\r\n"
        + in_chunks.partition("\r\n\r\n")[2],
        post.replace("HTTP/1.1", "HTTP/9.9") + f"Content-Length: {len(body)}\r\n\r\n{body}",
        post
        + "".join(f"X-{n}: {'y' * 80}\r\n" for n in range(400))
        + f"Content-Length: {len(body)}\r\n\r\n{body}",
        "POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        f"GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {KEY}\r\n\r\n",
        "nonsense\r\n\r\n",
    ):
        status, got = send(where, sent.encode(), b"nonsense" * 1000)
        assert 400 <= status < 500, sent[:200]
        assert list(json.loads(got)) == ["error", "code"], sent[:200]


def test_real_clients_and_the_lines_of_the_docs(models: Path, tmp_path: Path) -> None:
    """`libretranslatepy`, `openai` and `curl`, all with a key."""
    libre, openai = pytest.importorskip("libretranslatepy"), pytest.importorskip("openai")
    from PIL import Image

    Image.linear_gradient("L").convert("RGB").save(tmp_path / "photo.png")
    (tmp_path / "keys").write_text(KEY + "\n")
    with started(models, *ALL, options=("--key-file", str(tmp_path / "keys"))) as (process, where):
        client = libre.LibreTranslateAPI(where, KEY)
        expected = api.load(models / "en-fr", "cpu").translate(SENTENCES[0]).text
        assert client.translate(SENTENCES[0], "en", "fr") == expected
        assert client.detect("a dog") == [{"confidence": 100, "language": "en"}]
        assert [one["code"] for one in client.languages()] == ["en", "fr"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            libre.LibreTranslateAPI(where, "wrong").languages()
        with openai.OpenAI(base_url=f"{where}/v1", api_key=KEY, max_retries=0) as client:
            how: dict[str, Any] = {
                "model": "words",
                "prompt": "the cat",
                "max_tokens": 12,
                "temperature": 0,
            }
            expected = api.load(models / "words", "cpu").generate("the cat", 12, temperature=0).text
            assert client.completions.create(**how).choices[0].text == expected
            parts = [one.choices[0].text for one in client.completions.create(**how, stream=True)]
            assert "".join(parts) == expected
            assert len(parts) > 3
            listed = list(client.models.list())
            assert [one.id for one in listed] == ALL
            assert all(abs(one.created - time.time()) < 86_400 for one in listed)
            with pytest.raises(openai.BadRequestError, match="expected 1 to 1 as 'n', got 2"):
                client.completions.create(**how, n=2)
        wrong = pytest.raises(openai.AuthenticationError, match="a key is needed")
        with openai.OpenAI(base_url=f"{where}/v1", api_key="wrong", max_retries=0) as client, wrong:
            client.completions.create(**how)
        check_hostile(where)
        if shutil.which("curl") is None:
            pytest.skip("there is no curl")
        page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
        lines = [
            line
            for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
            for line in block.splitlines()
        ]
        assert len(lines) >= 15
        for line in lines:
            assert line.startswith("curl ")
            typed = line.replace("http://127.0.0.1:8080", where).replace(
                "Bearer KEY", f"Bearer {KEY}"
            )
            typed += "" if KEY in typed else f" -H 'X-API-Key: {KEY}'"
            got = subprocess.run(
                ["bash", "-c", f"{typed} -f"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=30,
            )
            assert got.returncode == 0, (line, got.stderr)
            assert got.stdout
        [shown] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        typed = shown.replace("http://127.0.0.1:8080", where).replace("any, where none is set", KEY)
        got = subprocess.run(
            [sys.executable, "-c", typed], capture_output=True, text=True, timeout=60
        )
        assert (got.returncode, bool(got.stdout.strip())) == (0, True), got.stderr
        check_stop(models, process, where, f"X-API-Key: {KEY}\r\n")
        assert process.stderr is not None
        assert KEY not in process.stderr.read()


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("sign", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"])
def test_accepted_requests_are_answered_when_it_is_stopped(
    models: Path, workers: str, sign: str
) -> None:
    with started(models, "en-fr", options=("--workers", workers)) as (process, where):
        ask(where, {"text": "a dog"})
        check_stop(models, process, where, sign=signal.Signals[sign])


@pytest.mark.parametrize("workers", ["2", pytest.param("1", marks=pytest.mark.slow)])
def test_no_connection_is_reset_when_it_is_stopped(models: Path, workers: str) -> None:
    """Clients that open a connection for each request get an answer (503 at the end), or are refused when nobody listens."""
    got, ended = Counter[str](), threading.Event()

    def client() -> None:
        while not ended.is_set():
            try:
                with connect(where) as here:
                    here.sendall(
                        b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                    )
                    got[str(receive(here)[0])] += 1
            except ConnectionRefusedError:
                got["refused"] += 1
                return
            except (OSError, IndexError) as error:  # reset, or closed without an answer
                got[type(error).__name__] += 1

    with started(models, "en-fr", options=("--workers", workers)) as (process, where):
        ask(where, {"text": "a dog"})
        threads = [threading.Thread(target=client) for _ in range(6)]
        for one in threads:
            one.start()
        while got["200"] < 100:
            time.sleep(0.01)
        process.terminate()
        assert process.wait(60) == 0
        for one in threads:
            one.join(60)
        ended.set()
    assert got.pop("refused") == 6
    assert set(got) <= {"200", "503"}, got


def test_few_open_files_are_enough_to_refuse_at_once_and_to_stop(
    models: Path, tmp_path: Path
) -> None:
    """With 64 files and 150 connections that send nothing, each further one is answered; SIGHUP lets accepted requests finish."""
    script = tmp_path / "serve.py"
    script.write_text("""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from saccade.serving import protocol
protocol.HEAD_SECONDS = 600.0  # idle connections stay
from saccade.cli import run
sys.exit(run(sys.argv[1:]))
""")
    with started(models, "en-fr", program=(str(script),)) as (process, where):
        idle = [connect(where) for _ in range(150)]
        for _ in range(3):
            with connect(where) as one:
                one.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert receive(one)[0] == 503
        for one in idle:
            one.close()
        while True:
            with (
                contextlib.suppress(urllib.error.HTTPError),
                urllib.request.urlopen(f"{where}/health/live", timeout=30),
            ):
                break
        check_stop(models, process, where, sign=signal.SIGHUP)
        assert process.stderr is not None
        assert process.stderr.read() == "", "no traceback"


LIFECYCLE = """
import logging, os, sys, time
sys.modules["resource"] = None  # as on Windows, where the modules can be imported
os.environ["PROMETHEUS_MULTIPROC_DIR"] = sys.argv[1]
from saccade.errors import SaccadeError
from saccade.serving import server
from saccade.serving.service_settings import Settings

settings = Settings({}, port=0, workers=2)
logging.basicConfig(format="%(message)s")
for work in sys.argv[2:]:
    def run(settings, here, counts, number):
        def ready():
            counts[number] = 0
            print(os.getpid(), flush=True)
        exec(work)

    server.run = run
    print("ends with", server.Workers(settings, server.bind(settings)).run(), "", sep="\\n", file=sys.stderr, flush=True)
"""


@contextmanager
def workers_that(folder: Path, *work: str) -> Iterator[subprocess.Popen[str]]:
    """Services of two workers, one after another, which do this instead of loading models; `ready()` says that they have."""
    command = [sys.executable, "-c", LIFECYCLE, str(folder), *work]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_worker_that_dies_is_replaced_and_none_is_left_alone(tmp_path: Path) -> None:
    with workers_that(tmp_path, "ready(); time.sleep(600)") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        workers = [int(process.stdout.readline()) for _ in range(2)]
        for _ in range(7):  # as often and as quickly as may be: each was ready
            os.kill(workers[0], signal.SIGKILL)
            assert (
                f"(process {workers[0]}) ended by signal 9 (Killed)\n" in process.stderr.readline()
            )
            workers[0] = int(process.stdout.readline())
        assert process.poll() is None
        process.kill()
        process.wait(60)
        assert process.stdout.read() == "", (
            "its end: no worker holds the other end of the pipe any more"
        )


def test_workers_that_are_never_ready_end_the_service(tmp_path: Path) -> None:
    mistake = "raise SaccadeError('a mistake; another way')"
    later = f"if os.path.exists('{tmp_path}/first'): {mistake}\nopen('{tmp_path}/first', 'w').close(); ready(); os._exit(4)"
    with workers_that(
        tmp_path, "os._exit(3)", "raise ValueError('defect')", mistake, later
    ) as process:
        said = process.communicate(timeout=120)[1]
    code, defect, first, second, rest = said.split("ends with\n")
    assert code.count("ended with code 3 before it was ready\n") == 5
    assert "5 workers ended within 60 seconds before they were ready; the service ends\n" in code
    assert defect.startswith("1\n")
    assert defect.count("ValueError: defect\n") >= 5
    assert first.startswith("1\n")
    assert "saccade: a mistake; another way\n" in first
    assert first.count("ended with code 2 before it was ready\n") == 1, (
        "another start would say the same"
    )
    assert second.startswith("2\n")
    assert second.count("ended with code 2 before it was ready\n") == 5, (
        "one was ready: maybe its model is being written again"
    )
    assert rest == "1\n\n"


def test_who_sends_nothing_or_is_one_too_many_is_sent_away(models: Path, tmp_path: Path) -> None:
    """With short times and few connections; who asks properly is answered all the while."""
    script = tmp_path / "serve.py"
    script.write_text("""
import sys
from saccade.serving import protocol, server
server.LAST_ANSWER_SECONDS = 60.0  # it ends as soon as all are answered
protocol.HEAD_SECONDS = 4.0
protocol.Protocol.most = 6
from saccade.cli import run
sys.exit(run(sys.argv[1:]))
""")
    get = b"GET /health/%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        started(models, "en-fr", program=(str(script),)) as (process, where),
        connect(where) as kept,
    ):
        kept.sendall(get % b"live")
        assert receive(kept)[0] == 200
        idle = [connect(where) for _ in range(5)]
        for n, one in enumerate(idle):
            one.sendall(b"POST /v1/tr"[: 3 * n])
        with connect(where) as surplus:
            status, head, body = receive(surplus)
        assert (status, b"retry-after: 1\r\n" in head) == (503, True)
        sentence = "too many connections are open; try again in a second"
        assert json.loads(body) == {"error": sentence, "code": "busy"}
        for one in idle:
            assert one.recv(10) == b""  # closed
            one.close()
        assert ask(where, {"text": SENTENCES[0]})["results"][0]["text"]
        kept.sendall(get % b"live")
        assert receive(kept)[0] == 200
        process.terminate()  # what comes now on an open connection is answered, as the last on it
        wait_until_refused(where)
        kept.sendall(get % b"ready")
        status, head, _ = receive(kept)
        assert (status, b"connection: close" in head) == (503, True)
        assert kept.recv(10) == b""
        assert process.wait(60) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a packet filter of Linux")
def test_a_socket_that_closes_keeps_its_queue_and_starts_no_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        where = here.getsockname()
        with socket.create_connection(where) as queued:
            ignore_arrivals(here)
            with pytest.raises(TimeoutError):
                socket.create_connection(where, timeout=0.2)
            with here.accept()[0] as taken:
                queued.sendall(b"a request")
                assert taken.recv(100) == b"a request"
            here.setblocking(False)
            with pytest.raises(BlockingIOError):
                here.accept()


def wait_until_refused(where: str) -> None:
    """Until nobody listens any more; until then every connection is taken."""
    while True:
        try:
            connect(where).close()
        except (
            ConnectionResetError
        ):  # the system's answer to a handshake in the very moment of the close
            continue
        except ConnectionRefusedError:
            return


def test_a_process_with_more_connections_lets_another_take_the_next() -> None:
    """It takes one at once where no other has fewer, and otherwise only where nobody else did meanwhile."""

    async def work(counts: list[int], other_takes: bool) -> tuple[int, int]:
        made: Any = Server.__new__(Server)
        made.service, made.counts, made.number, made.coming = (
            SimpleNamespace(stopping=False),
            counts,
            0,
            set(),
        )
        made.server_state, taken = (
            SimpleNamespace(connections=set(range(3))),
            list[asyncio.Protocol](),
        )
        made.protocol = lambda: taken.append(asyncio.Protocol()) or taken[-1]
        with (
            socket.create_server(("127.0.0.1", 0)) as here,
            socket.create_connection(here.getsockname()),
        ):
            here.setblocking(False)
            made.take(here)
            await asyncio.sleep(0)
            at_once = len(made.coming)
            if other_takes:
                here.accept()[0].close()
            await asyncio.sleep(5 * YIELD_SECONDS)
            made.service.stopping = True
            asyncio.get_running_loop().remove_reader(here)
            return at_once, len(taken)

    assert asyncio.run(work([0, 3], False)) == (1, 1)
    assert asyncio.run(work([0, 2], False)) == (0, 1)
    assert asyncio.run(work([0, 2], True)) == (0, 0)


@pytest.mark.slow
def test_several_processes_count_together(models: Path) -> None:
    with started(models, "en-fr", options=("--workers", "2")) as (_, where):
        for text in SENTENCES:
            ask(where, {"text": text})
        text = urllib.request.urlopen(f"{where}/metrics", timeout=60).read().decode()
        assert (
            f'saccade_requests_total{{route="/v1/translate",status="200"}} {len(SENTENCES)}.0'
            in text
        )


@pytest.mark.slow
def test_a_foreign_program_finds_nothing_wrong(models: Path, tmp_path: Path) -> None:
    """Schemathesis asks what /openapi.json describes, and what it forbids."""
    pytest.importorskip("schemathesis")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,positive_data_acceptance"
    # 422: the request is as described, and the model cannot answer it
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(
        '[checks.positive_data_acceptance]\nexpected-statuses = ["2xx", "404", "422", "429", "5xx"]\n'
    )
    with started(models, *ALL) as (_, where):
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings)]
        command += ["run", f"{where}/openapi.json", "--checks", checks, "-n", "100"]
        got = subprocess.run(
            [*command, "--phases", "examples,fuzzing,stateful"],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert got.returncode == 0, got.stdout[-5000:]
        assert "Stateful (not applicable)" not in got.stdout, "links lead from answer to question"


def test_mistakes_of_the_command(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error(*words: object) -> str:
        printed = run_cli("serve", *words, "--device", "cpu")
        assert (printed.code, printed.out) == (2, "")
        return printed.err

    assert "no key is set; give --key-file FILE, or --open" in error(
        models / "en-fr", "--host", "0.0.0.0"
    )
    with monkeypatch.context() as windows:
        windows.delattr(os, "fork")
        assert "serve does not run on this system; use Linux or macOS, on Windows in WSL" in error(
            models / "en-fr"
        )
    assert "config.json" in error(tmp_path, "--port", 0) or "model folder" in error(
        tmp_path, "--port", 0
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen at 127.0.0.1:" in error(
            models / "en-fr", "--port", taken.getsockname()[1]
        )
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert (
        "serve needs the package starlette; install it with: pip install 'saccade-attention[serve]'"
        in error(models / "en-fr")
    )
