"""Settings of a service: models, access and limits."""

import hmac
import ipaddress
import socket
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import SaccadeError

MIN_KEY_CHARACTERS = 16  # characters
OWN_NAMES = ("localhost", "127.0.0.1", "::1")
STOP_SECONDS = 8.0  # seconds in which accepted requests are answered after SIGTERM


@dataclass(frozen=True)
class Limits:
    """What one request may have, and what waits at the same time."""

    body: int = 2**20  # bytes
    image_body: int = 16 * 2**20  # bytes, where an image may be in it
    bodies: int = 256 * 2**20  # bytes of all bodies in flight, of all processes together
    text: int = 5000  # characters of one text
    texts: int = 64  # in one request
    pixels: int = 16_000_000
    beam: int = 16
    tokens: int = 1024  # of one output
    cells: int = 250_000  # weights in one answer
    seconds: float = 30.0
    queue: int = 256  # texts that wait or are worked on
    together: int = 64  # texts that are worked on together

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value <= 2**40:
                raise SaccadeError(
                    f"expected a limit of {name} above 0, got {value}; give a larger one",
                    code="out-of-range",
                )


@dataclass(frozen=True)
class Settings:
    """What `saccade serve` was asked for."""

    models: dict[str, Path]
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # further names under which the service is reached
    origins: tuple[str, ...] = ()  # web pages whose scripts may ask
    open: bool = False  # to any network without a key
    reload: bool = False
    device: str = "auto"
    precision: str = "float32"
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not is_local(self.host) and not self.keys and not self.open:
            what = f"the address {self.host} can be reached from other machines, and no key is set"
            raise SaccadeError(
                f"{what}; give --key-file FILE, or --open to let anybody in", code="key-missing"
            )
        if "*" in self.origins or any(
            not one.startswith(("http://", "https://")) for one in self.origins
        ):
            raise SaccadeError(
                "expected origins such as https://example.org; name each with --cors",
                code="bad-origin",
            )

    def knows_key(self, given: str) -> bool:
        """Whether a key is one of ours; takes as long for any wrong one."""
        found = [
            hmac.compare_digest(given.encode("utf-8", "replace"), key.encode()) for key in self.keys
        ]
        return any(found)

    def knows_host(self, given: str) -> bool:
        """Whether a Host header names this service: an address, which no foreign DNS entry can be, or one of its names."""
        name = (
            given.rpartition(":")[0]
            if given.rpartition(":")[2].isdigit() and not given.endswith("]")
            else given
        )
        name = name.strip("[]").lower()
        if is_address(name):
            return True
        return name in {
            *OWN_NAMES,
            self.host.lower(),
            socket.gethostname().lower(),
            *(one.lower() for one in self.hosts),
        }


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    return host in OWN_NAMES or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def read_keys(path: Path) -> tuple[str, ...]:
    """The keys of a file, one per line."""
    try:
        lines = path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        raise SaccadeError(
            f"the key file {path} cannot be read as lines of ASCII; check its path and permissions",
            code="cannot-read",
        ) from None
    short = next((n for n, key in enumerate(lines, 1) if len(key) < MIN_KEY_CHARACTERS), None)
    if short is not None or not lines:
        got = f"key {short} of {path} is shorter" if short else f"{path} is empty"
        raise SaccadeError(
            f"expected keys of at least {MIN_KEY_CHARACTERS} characters, one per line; {got}; make one: openssl rand -hex 32",
            code="bad-key",
        )
    return tuple(lines)
