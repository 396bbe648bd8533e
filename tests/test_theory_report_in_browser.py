"""The report in a real browser, a headless Chromium driven through WebDriver: no
complaint, no sideways scrolling, a true filter."""

import contextlib
import functools
import http.server
import json
import pathlib
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from toy_theory import ROWS, build, every_page

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


pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(missing()), reason=missing() or "installed"),
]

NARROW, WIDE = 390, 1280  # pixels of a telephone and of a desktop
SMALLEST_TEXT = 12.0  # pixels
SHOWN = "return [...document.querySelectorAll('tr[data-text]')]"
SHOWN += ".filter(row => row.offsetParent || row.getClientRects().length)"
SHOWN += ".map(row => row.querySelector('.id').textContent)"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    profile = tmp_path_factory.mktemp("browser") / "profile"
    with open_browser(profile) as browser:
        yield browser


@pytest.fixture(scope="module", params=["file", "http"])
def address(request, site) -> Iterator[str]:
    """Where the site is: on disk, or behind a server."""
    if request.param == "file":
        yield site.as_uri()
        return

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def small_texts(browser: Browser) -> list[str]:
    """Texts of the page that are set smaller than can be read; indices may be."""
    return browser.run(
        """
        const found = [], walk = document.createTreeWalker(document.body, 4);
        while (walk.nextNode()) {
          const at = walk.currentNode.parentElement;
          const text = walk.currentNode.data.trim();
          const small = 'sub, sup, msub, msup, msubsup, mfrac';
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


def paths(site: pathlib.Path) -> list[str]:
    return [path.relative_to(site).as_posix() for path in every_page(site)]


def test_no_page_complains_or_scrolls_sideways(browser, site, address):
    for pixels in (NARROW, WIDE):
        browser.set_width(pixels)
        for page in paths(site):
            browser.open(f"{address}/{page}")
            assert browser.errors() == [], page
            assert width(browser) <= pixels, page
            assert small_texts(browser) == [], page
            broken = "return [...document.images].filter(i => !i.naturalWidth).length"
            assert browser.run(broken) == 0, page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_in_both_schemes(browser, site, scheme):
    browser.set_width(WIDE)
    browser.set_scheme(scheme)
    for page in paths(site):
        browser.open(f"{site.as_uri()}/{page}")
        assert contrast(browser) == [], page
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") == (scheme == "light")
    browser.open(f"{site.as_uri()}/statements/toy.a.html")
    card = (
        "return getComputedStyle(document.querySelector('.plot img')).backgroundColor"
    )
    assert browser.run(card) == "rgb(255, 255, 255)"


def test_the_search_finds_words_in_any_order(browser, address):
    browser.set_width(WIDE)
    browser.open(f"{address}/index.html")
    assert browser.run(SHOWN) == [row.id for row in ROWS]
    browser.press("/")
    browser.press("unicorn")  # the key has put the focus there
    assert browser.run(SHOWN) == ["toy.band"]
    assert browser.run("return count.value") == "1 of 8 statements"
    browser.click("button[type=reset]")
    assert len(browser.run(SHOWN)) == len(ROWS)
    browser.write("[name=q]", "Remarkable  TOY nothing")
    assert browser.run(SHOWN) == ["toy.band"]
    browser.click("button[type=reset]")
    browser.write("[name=q]", "θ1* c1")  # as set
    assert len(browser.run(SHOWN)) == len(ROWS)
    browser.write("[name=q]", " absent")
    assert browser.run(SHOWN) == []
    assert browser.run("return document.querySelector('.nothing').checkVisibility()")
    assert browser.errors() == []


@pytest.mark.parametrize("pixels", [NARROW, WIDE])
def test_the_filters_do_what_they_say(browser, address, pixels):
    browser.set_width(pixels)
    browser.open(f"{address}/index.html")
    browser.click("[name=verdict][value=violated]")
    assert browser.run(SHOWN) == ["toy.a"]
    browser.click("[name=verdict][value=vacuous]")
    assert browser.run(SHOWN) == ["toy.a", "toy.none"]
    browser.click("button[type=reset]")
    browser.click("[name=evidence][value=exact]")
    assert browser.run(SHOWN) == ["toy.band"]
    browser.click("[name=class][value=printed]")
    assert browser.run(SHOWN) == []
    browser.click("[name=evidence][value=nominal]")
    assert browser.run(SHOWN) == ["toy.a"]
    browser.click("button[type=reset]")
    browser.click("[name=surprise]")
    assert browser.run(SHOWN) == ["toy.surprise"]
    browser.click("[name=verdict][value=holds]")
    assert browser.run(SHOWN) == []
    browser.click("button[type=reset]")
    browser.write("[name=paper]", "zoo")
    assert browser.run(SHOWN) == [ROWS[-1].id]
    browser.click("[name=verdict][value=violated]")
    assert browser.run(SHOWN) == []
    assert browser.errors() == []


def test_the_counts_lead_to_filtered_lists(browser, address):
    browser.set_width(WIDE)
    browser.open(f"{address}/index.html")
    browser.click(".summary a[href*='class=printed']")
    assert browser.run(SHOWN) == ["toy.a"]
    browser.open(f"{address}/index.html")
    browser.click(".summary a[href*=violated]")
    assert browser.run(SHOWN) == ["toy.a"]
    assert browser.run("return document.querySelector('[name=paper]').value") == "toy"
    browser.click("button[type=reset]")
    address_now = browser.run("return location.search")
    assert address_now == "" and len(browser.run(SHOWN)) == len(ROWS)


def test_without_a_script_all_is_there(browser, site):
    script = '<script src="assets/site.js" defer></script>'
    changed = changed_index(site, script, "")
    browser.open(changed.as_uri())
    assert browser.run(SHOWN) == [row.id for row in ROWS]
    assert browser.run("return document.getElementById('filter').offsetParent") is None
    changed.unlink()


def test_the_command_can_be_copied_and_read_by_keyboard(browser, address):
    browser.set_width(WIDE)
    browser.open(f"{address}/statements/toy.a.html")
    browser.press("\ue004")  # tab
    assert browser.run("return document.activeElement.className") == "skip"
    browser.click("[data-copy]")
    label = "return document.querySelector('[data-copy]').textContent"
    end = time.monotonic() + 10.0  # the clipboard answers when it likes
    while browser.run(label) == "Copy" and time.monotonic() < end:
        time.sleep(0.02)
    assert browser.run(label) in ("Copied", "Selected")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<h1>", "<h1 style='width: 500px'>"),
        ("<h1>", "<h1 style='white-space: nowrap'>" + "wide " * 50),
    ],
)
def test_a_wide_page_is_seen(browser, site, old, new):
    """Control: a page that is too wide does not pass."""
    changed = changed_index(site, old, new)
    browser.set_width(NARROW)
    browser.open(changed.as_uri())
    assert width(browser) > NARROW
    changed.unlink()


@pytest.mark.parametrize(
    "new",
    [
        "<main><script>nonsense()</script>",
        "<main><script>console.error('no')</script>",
        "<main><script src='absent.js'></script>",
    ],
)
def test_a_complaint_is_seen(browser, site, new):
    """Control: an error in a script or a missing file does not pass."""
    changed = changed_index(site, "<main", new + "<p")
    browser.errors()
    browser.open(changed.as_uri())
    assert browser.errors() != []
    changed.unlink()


def test_small_and_faint_texts_are_seen(browser, site):
    """Control: text that cannot be read does not pass."""
    changed = changed_index(site, "<h1>", "<p style='font-size: 9px'>tiny</p><h1>")
    browser.open(changed.as_uri())
    assert small_texts(browser) == ["tiny"]
    changed = changed_index(
        site, "<h1>", "<p style='color: #999; background: #fff'>faint</p><h1>"
    )
    browser.open(changed.as_uri())
    assert contrast(browser) == ["faint: 2.8"]
    changed.unlink()


def changed_index(site: pathlib.Path, old: str, new: str) -> pathlib.Path:
    """A copy of the index beside it, with a fault."""
    text = (site / "index.html").read_text(encoding="utf-8")
    assert old in text
    changed = site / "changed.html"
    changed.write_text(text.replace(old, new, 1), encoding="utf-8")
    return changed
