"""The documentation site: it builds without a warning, its links lead somewhere, the
search finds words, and every page can be read on a telephone and in the dark.

`CFLJAX_DOCS` names a folder with the site; without it, it is built here, its tutorials
not executed.
"""

import html
import html.parser
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse
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

from experiments.registry import EXPERIMENTS

pytest.importorskip("sphinx", reason="the extra docs is not installed")
pytestmark = MARKS

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIGURES = ROOT / "figures"
# What has a look of its own, in large numbers: one page of each kind is looked at.
KINDS = (
    "index.html",
    "install.html",
    "findings.html",
    "gallery.html",
    "ledger.html",
    "glossary.html",
    "fast.html",
    "search.html",
    "heatmap.html",
    "theory/index.html",
    "theory/ifca.html",
    "theory/errata.html",
    "theory/proofs/ifca_theorem1.html",
    "algorithms/index.html",
    "algorithms/clove.html",
    "api/index.html",
    "api/engine.html",
    "_modules/theory/ifca/theorem1.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> pathlib.Path:
    if "CFLJAX_DOCS" in os.environ:
        return pathlib.Path(os.environ["CFLJAX_DOCS"]).resolve()
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    command += ["-D", "nb_execution_mode=off", str(ROOT / "docs"), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    profile = tmp_path_factory.mktemp("browser") / "profile"
    with open_browser(profile) as browser:
        yield browser


class Page(html.parser.HTMLParser):
    """Links, pictures and anchors of a page."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element leads to, and what leads to it."""
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.add(value)
            if value and name in ("id", "name"):
                self.anchors.add(value)


def broken(site: pathlib.Path) -> list[str]:
    """Links inside of the site that lead nowhere; pages of the report are its own."""
    pages = {
        path: Page(path)
        for path in site.rglob("*.html")
        if path.relative_to(site).parts[0] not in ("report", "_static")
    }
    found = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
            anchor = urllib.parse.unquote(parts.fragment)
            is_lost = anchor and target in pages and anchor not in pages[target].anchors
            if not target.is_file() or is_lost:
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def test_links_lead_somewhere(site):
    assert broken(site) == []


def test_sources_are_in_the_site(site):
    """Of statements, experiments and the library."""
    for page in ("theory/ifca.html", "gallery.html", "api/index.html"):
        links = [link for link in Page(site / page).links if "_modules/" in link]
        assert links
        target = (site / page).parent / links[0].split("#")[0]
        assert "import" in target.read_text("utf-8")


def test_a_picture_has_its_caption_below_it(site):
    page = html.unescape((site / "gallery.html").read_text("utf-8"))
    names = [name for name in EXPERIMENTS if (FIGURES / name).is_dir()]
    told = [text for name in names for text in (FIGURES / name).glob("*.txt")]
    assert page.count("<figcaption>") == len(told) > 40
    for text in told:
        first = text.read_text("utf-8").partition(". ")[0].strip()
        assert first.split("`")[0] in page


def test_claims_are_set_as_mathematics(site):
    page = (site / "theory/ifca.html").read_text("utf-8")
    (claim,) = re.findall(
        r'id="ifca-thm1" .*?<blockquote>(.*?)</blockquote>', page, re.S
    )
    assert claim.count("<math") > 4 and "θ_j" not in claim


@pytest.mark.parametrize(
    "link", ["absent.html", "index.html#absent", "figures/absent.svg"]
)
def test_links_that_lead_nowhere_are_seen(tmp_path, link):
    """Control: a page, an anchor and a picture that are not there."""
    here = f'<a href="there.html#it">it</a> <a href="{link}">lost</a>'
    (tmp_path / "index.html").write_text(here)
    (tmp_path / "there.html").write_text('<p id="it"><a href="https://example.org">')
    assert broken(tmp_path) == [f"index.html: {link}"]


def test_nothing_is_asked_of_the_network(site):
    """Scripts, styles, fonts and pictures are files of the site."""
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        assert 'src="http' not in text and "src='http" not in text, path
        assert 'rel="stylesheet" type="text/css" href="http' not in text, path


def open_page(browser: Browser, site: pathlib.Path, page: str) -> None:
    """Open a page; of many items of one kind the first ten stay."""
    browser.open(f"{site.as_uri()}/{page}")
    browser.run(
        """
        for (const many of ['[data-item]', 'section section section'])
          document.querySelectorAll(many).forEach((one, i) => i > 9 && one.remove());
        """
    )


def cut(browser: Browser) -> list[str]:
    """What of the page's text reaches beyond a telephone, and cannot be scrolled to, as
    the theme hides what is too wide."""
    return browser.run(
        """
        const scrolls = at => /auto|scroll/.test(getComputedStyle(at).overflowX);
        const beyond = at => at.getBoundingClientRect().right > arguments[0] + 1;
        const reached = at => {
          for (; at.matches('article[role=main] *'); at = at.parentElement)
            if (scrolls(at) && !beyond(at)) return true;
          return false;
        };
        const every = [...document.querySelectorAll('article[role=main] *')];
        return every.filter(at => at.getClientRects().length)
          .filter(at => beyond(at) && !reached(at))
          .map(at => `${at.tagName} ${at.className}: ${at.textContent.slice(0, 40)}`);
        """,
        NARROW,
    )


def test_no_page_is_cut_on_a_telephone(browser, site):
    browser.set_width(NARROW)
    for page in KINDS:
        open_page(browser, site, page)
        assert browser.errors() == [], page
        assert width(browser) <= NARROW, page
        assert cut(browser) == [], page
        assert small_texts(browser) == [], page


def test_a_cut_page_is_seen(browser, site):
    """Control: what is wider than a telephone is noticed, unless it scrolls."""
    browser.set_width(NARROW)
    open_page(browser, site, "install.html")
    browser.run("document.querySelector('h1').style.width = '500px'")
    assert cut(browser)[0].startswith("H1")
    browser.run("document.querySelector('h1').parentElement.style.overflowX = 'auto'")
    assert cut(browser) == []


def test_the_table_of_algorithms_is_stacked_on_a_telephone(browser, site):
    cells = """
        const row = document.querySelector('table.stacked tbody tr');
        return [...row.cells].map(cell => cell.getBoundingClientRect())
          .map(box => [box.left, box.right, box.top]);
        """
    browser.set_width(NARROW)
    browser.open(f"{site.as_uri()}/algorithms/index.html")
    boxes = browser.run(cells)
    assert all(left >= 0 and right <= NARROW for left, right, _ in boxes)
    assert len({top for *_, top in boxes}) == len(boxes) > 3
    browser.set_width(WIDE)
    assert len({top for *_, top in browser.run(cells)}) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_in_both_schemes(browser, site, scheme):
    browser.set_width(WIDE)
    browser.set_scheme(scheme)
    for page in KINDS:
        open_page(browser, site, page)
        assert contrast(browser) == [], page
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") == (scheme == "light")


def results(browser: Browser, site: pathlib.Path, words: str) -> list[str]:
    """Addresses of what the search finds, as soon as it has told how much."""
    browser.open(f"{site.as_uri()}/search.html?q={urllib.parse.quote(words)}")
    end = time.monotonic() + 30.0
    status = "return document.querySelector('.search-summary')?.textContent || ''"
    while "Search finished" not in browser.run(status) and time.monotonic() < end:
        if "did not match" in browser.run(status):
            return []
        time.sleep(0.1)
    found = "return [...document.querySelectorAll('ul.search li a')].map(a => a.href)"
    return browser.run(found)


@pytest.mark.parametrize(
    "words, page",
    [
        ("min-cost matching", "algorithms/clove.html"),
        ("clopper_pearson", "api/intervals.html"),
        ("Voronoi", "theory/ifca.html"),
    ],
)
def test_the_search_finds_words(browser, site, words, page):
    assert any(page in address for address in results(browser, site, words))


def test_the_search_finds_nothing_where_nothing_is(browser, site):
    """Control: a word that stands nowhere."""
    assert results(browser, site, "xylophonic") == []


SHOWN = "return [...document.querySelectorAll('[data-item]')]"
SHOWN += ".filter(item => item.checkVisibility()).length"


def test_the_ledger_filters_and_sorts(browser, site):
    browser.set_width(WIDE)
    browser.open(f"{site.as_uri()}/ledger.html")
    browser.run("document.documentElement.style.scrollBehavior = 'auto'")
    every = browser.run(SHOWN)
    browser.click("input[value=agrees]")
    agreeing = browser.run(SHOWN)
    assert 0 < agreeing < every
    wrong = "return [...document.querySelectorAll('[data-item]')].filter(item =>"
    wrong += " item.checkVisibility() && item.dataset.verdict !== 'agrees').length"
    assert browser.run(wrong) == 0
    browser.write("input[name=words]", "clove fmnist")
    assert 0 < browser.run(SHOWN) < agreeing
    browser.click("button[type=reset]")
    time.sleep(0.1)
    assert browser.run(SHOWN) == every
    browser.click("table.sortable thead th:nth-child(4)")
    first = "return document.querySelector('table.sortable tbody td:nth-child(4)')"
    lowest = float(browser.run(f"{first}.textContent").split()[0])
    browser.click("table.sortable thead th:nth-child(4)")
    assert lowest < float(browser.run(f"{first}.textContent").split()[0])


def test_the_statements_filter(browser, site):
    browser.open(f"{site.as_uri()}/theory/ifca.html")
    every = browser.run(SHOWN)
    browser.click("input[value=violated]")
    violated = browser.run(SHOWN)
    assert 0 < violated < every
    browser.click("input[value=proved]")
    assert 0 < browser.run(SHOWN) < violated
    headings = "return [...document.querySelectorAll('section section')].filter(s =>"
    headings += " s.checkVisibility() && !s.querySelector('article:not([hidden])'))"
    assert browser.run(f"{headings}.length") == 0
