"""A real browser for tests: headless Chromium, driven by chromedriver over the WebDriver protocol with nothing but the standard
library. https://www.w3.org/TR/webdriver2/, and Chromium's own commands: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
]  # fmt: skip
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")


def missing() -> str | None:
    """Why there is no browser, or None."""
    if not any(map(shutil.which, CHROMIUM)):
        return "no Chromium: apt-get install chromium chromium-driver"
    return None if shutil.which("chromedriver") else "no chromedriver: apt-get install chromium-driver"


class Browser:
    """One page at a time."""

    def __init__(self, address: str, session: str) -> None:
        self._at = f"{address}/session/{session}"

    def command(self, name: str, **values: Any) -> Any:
        return _posted(f"{self._at}/{name}", values)

    def devtools(self, name: str, **values: Any) -> Any:
        """A command of Chromium's own."""
        return self.command("goog/cdp/execute", cmd=name, params=values)

    def open(self, place: str, width: int = 1200, height: int = 900, scheme: str = "light", media: str = "") -> None:
        """Shows a page in a window of that size, in the light or in the dark, on a screen or on paper."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", media=media, features=features)
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.command("url", url=place)

    def evaluate(self, program: str, *values: Any) -> Any:
        """What a function body of JavaScript returns; `values` are its `arguments`."""
        return self.command("execute/sync", script=program, args=list(values))

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last time."""
        lines = [json.loads(line["message"])["message"] for line in self.command("se/log", type="performance")]
        return [line["params"]["request"]["url"] for line in lines if line["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """What the browser wrote to its console since the last time."""
        return [str(line["message"]) for line in self.command("se/log", type="browser")]

    def screenshot(self, path: Path, top: int = 0, height: int | None = None, ratio: float = 1.0) -> None:
        """The page as a PNG, whole or from `top` on."""
        size = self.evaluate("return [document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": top, "width": size[0], "height": height or size[1] - top, "scale": ratio}
        found = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own, which ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    chromium = next(found for name in CHROMIUM if (found := shutil.which(name)))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        try:
            options = {"binary": chromium, "args": [*FLAGS, f"--user-data-dir={folder}"]}
            wanted = {"browserName": "chrome", "goog:chromeOptions": options}
            wanted["goog:loggingPrefs"] = {"performance": "ALL", "browser": "ALL"}
            found = _begun(address, {"capabilities": {"alwaysMatch": wanted}}, driver)
            made = Browser(address, found["sessionId"])
            try:
                yield made
            finally:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(urllib.request.Request(made._at, method="DELETE"), timeout=30).read()
        finally:
            driver.terminate()
            driver.wait(timeout=30)


def _begun(address: str, wanted: Any, driver: subprocess.Popen[bytes]) -> Any:
    for _ in range(300):
        try:
            return _posted(f"{address}/session", wanted)
        except urllib.error.URLError:
            assert driver.poll() is None, "chromedriver ended before it began"
            time.sleep(0.1)
    raise TimeoutError("chromedriver does not answer")


def _posted(place: str, values: Any) -> Any:
    request = urllib.request.Request(place, json.dumps(values).encode(), {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(json.load(error)["value"]["message"]) from None
