"""A headless Chromium, driven through WebDriver, and what tests ask of its pages."""

import contextlib
import json
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

NARROW, WIDE = 390, 1280  # pixels of a telephone and of a desktop
SMALLEST_TEXT = 12.0  # pixels
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_PATIENCE = 60.0  # seconds for the driver or a page


def missing() -> str:
    """Why there is no browser here, or nothing if there is one."""
    absent = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"not installed: {', '.join(absent)}" if absent else ""


MARKS = [  # of a module whose tests all need it
    pytest.mark.browser,
    pytest.mark.skipif(bool(missing()), reason=missing() or "installed"),
]


class Browser:
    """One window of one browser.

    Args:
      address: of the session at the driver.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def open(self, url: str) -> None:
        """Load a page, with its scripts."""
        self._call("POST", "url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script's `return` gives."""
        return self._call(
            "POST", "execute/sync", {"script": script, "args": list(arguments)}
        )

    def click(self, selector: str) -> None:
        """Click an element as a person would: it must be there and visible."""
        self._call("POST", f"element/{self._element(selector)}/click", {})

    def write(self, selector: str, text: str) -> None:
        """Type into an element."""
        body = {"text": text}
        self._call("POST", f"element/{self._element(selector)}/value", body)

    def press(self, keys: str) -> None:
        """Press keys wherever the focus is."""
        presses = [
            {"type": kind, "value": key}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        action = {"type": "key", "id": "keyboard", "actions": presses}
        self._call("POST", "actions", {"actions": [action]})

    def set_width(self, width: int, height: int = 844) -> None:
        """Make the page as wide as a device's; a narrow one is a telephone's."""
        metrics = {"width": width, "height": height, "mobile": width < 600}
        metrics["deviceScaleFactor"] = 1
        self._devtools("Emulation.setDeviceMetricsOverride", metrics)

    def set_scheme(self, scheme: str) -> None:
        """Prefer "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._devtools("Emulation.setEmulatedMedia", {"features": [feature]})

    def errors(self) -> list[str]:
        """What the console has complained of since the last call."""
        entries = self._call("POST", "se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def close(self) -> None:
        """End the browser."""
        self._call("DELETE", "", None)

    def _element(self, selector: str) -> str:
        body = {"using": "css selector", "value": selector}
        found = self._call("POST", "element", body)
        return next(iter(found.values()))

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        body = {"cmd": command, "params": parameters}
        return self._call("POST", "goog/cdp/execute", body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        return _request(method, f"{self._address}/{path}".rstrip("/"), body)


@contextlib.contextmanager
def open_browser(folder: pathlib.Path) -> Iterator[Browser]:
    """A browser with a profile of its own, ended with the block.

    Args:
      folder: of the profile; must not exist.
    """
    port = _free_port()
    driver = subprocess.Popen(
        [str(shutil.which("chromedriver")), f"--port={port}", "--log-level=SEVERE"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await(f"http://127.0.0.1:{port}/status", driver)
        flags = [*_FLAGS, f"--user-data-dir={folder}"]
        options = {"binary": shutil.which("chromium"), "args": flags}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        body = {"capabilities": {"alwaysMatch": wanted}}
        session = _request("POST", f"http://127.0.0.1:{port}/session", body)
        browser = Browser(f"http://127.0.0.1:{port}/session/{session['sessionId']}")
        try:
            yield browser
        finally:
            browser.close()
    finally:
        driver.terminate()
        driver.wait(_PATIENCE)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await(url: str, driver: subprocess.Popen[bytes]) -> None:
    """Until the driver answers."""
    end = time.monotonic() + _PATIENCE
    while driver.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError):
            if _request("GET", url, None)["ready"]:
                return
        time.sleep(0.05)
    raise RuntimeError("chromedriver does not answer")


def _request(method: str, url: str, body: dict[str, Any] | None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, kind, method=method)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=_PATIENCE) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        message = json.load(error)["value"]["message"].splitlines()[0]
        raise RuntimeError(f"{method} {url}: {message}") from error


def small_texts(browser: Browser) -> list[str]:
    """Texts of the page that are set smaller than can be read; indices may be."""
    return browser.run(
        """
        const found = [], walk = document.createTreeWalker(document.body, 4);
        while (walk.nextNode()) {
          const at = walk.currentNode.parentElement;
          const text = walk.currentNode.data.trim();
          const small = 'sub, sup, mfrac, '
            + 'msub, msup, msubsup, munder, mover, munderover';
          if (!text || at.closest(small) || at.closest('script')) continue;
          const size = parseFloat(getComputedStyle(at).fontSize);
          if (size < arguments[0]) found.push(text);
        }
        return found;
        """,
        SMALLEST_TEXT,
    )


def width(browser: Browser) -> int:
    """How wide the page really is."""
    return browser.run("return document.scrollingElement.scrollWidth")


def contrast(browser: Browser) -> list[str]:
    """Texts that stand out too little from what is behind them."""
    return browser.run(
        """
        const linear = c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
        const channel = c => linear(c / 255);
        const light = ([r, g, b]) =>
          .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
        const numbers = text => text.match(/[\\d.]+/g).map(Number);
        const behind = at => {
          for (; at; at = at.parentElement) {
            const colour = numbers(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] === 1) return colour;
          }
          return [255, 255, 255];
        };
        const found = [], walk = document.createTreeWalker(document.body, 4);
        while (walk.nextNode()) {
          const at = walk.currentNode.parentElement;
          const text = walk.currentNode.data.trim();
          if (!text || !at.getClientRects().length || at.closest('option')) continue;
          const two = [light(numbers(getComputedStyle(at).color)), light(behind(at))];
          const ratio = (Math.max(...two) + .05) / (Math.min(...two) + .05);
          if (ratio < 4.5) found.push(`${text}: ${ratio.toFixed(1)}`);
        }
        return found;
        """
    )
