"""A real Chromium before a real service: what the tests of the page share."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from saccade.serving.service import Service
from saccade.serving.service_settings import Limits, Settings


@contextmanager
def serving(models: Path, *names: str, **more: Any) -> Iterator[str]:
    """The address of a service over some models, in a thread of this process."""
    limits = Limits(**more.pop("limits", {}))
    service = Service(
        Settings({name: models / name for name in names}, device="cpu", limits=limits, **more)
    )
    config = uvicorn.Config(
        service.app(),
        port=0,
        http="h11",
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 300
    while not server.started:
        assert time.monotonic() < end, "the service did not start"
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(120)


@contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's own Chromium, which `make browser` installs, or the one of this machine."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        own = Path(driver.chromium.executable_path)
        path = (
            str(own)
            if own.exists()
            else shutil.which("chromium")
            or shutil.which("chromium-browser")
            or shutil.which("google-chrome")
        )
        if path is None:
            pytest.skip("no Chromium on this machine; install one: make browser")
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """Opens pages of one service and hears everything that they ask for and complain about."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser, self.url = browser, url
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.contexts: list[Any] = []

    def open(
        self, fragment: str = "", before: Callable[[Any], None] | None = None, **options: Any
    ) -> Any:
        context = self.browser.new_context(
            **{"viewport": {"width": 1000, "height": 800}, **options}
        )
        context.set_default_timeout(120_000)
        self.contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: self.asked.append(request.url))
        page.on(
            "console",
            lambda told: told.type in ("error", "warning") and self.complaints.append(told.text),
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        if before is not None:
            before(page)
        page.goto(self.url + "/" + fragment)
        page.locator("#form, #trouble, #learn").filter(visible=True).first.wait_for()
        return page

    def check(self) -> None:
        for context in self.contexts:
            context.close()
        outside = [
            one for one in self.asked if not one.startswith((self.url + "/", "data:", "blob:"))
        ]
        assert not outside, "nothing is asked of others"
        assert not self.complaints, "no error on the console"


def eventually(page: Any, true: Callable[[], bool]) -> None:
    """Waits for something to become true on a page."""
    end = time.monotonic() + 300
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        page.wait_for_timeout(50)


def ready(page: Any) -> None:
    """Waits until the answer and its view are there."""
    page.wait_for_selector("#seen:not([hidden])")
    page.wait_for_selector("#stop", state="hidden")


def weights(page: Any, side: str = "columns") -> list[str]:
    """The percentages under the words of a view."""
    found: list[str] = page.locator(".attention").evaluate(
        "(root, side) => Array.from(root.saccade[side].children, (word) => word.lastChild.textContent)",
        side,
    )
    return found


def says(page: Any) -> str:
    return str(page.locator(".attention .says").inner_text())
