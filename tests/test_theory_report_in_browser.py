"""The report in a real browser: no complaint, no sideways scrolling, a true filter."""

import functools
import http.server
import pathlib
import threading
import time
from collections.abc import Iterator

import pytest
from browser import (
    MARKS,
    NARROW,
    WIDE,
    Browser,
    contrast,
    open_browser,
    small_texts,
    width,
)
from toy_theory import ROWS, build, every_page

pytestmark = MARKS

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
