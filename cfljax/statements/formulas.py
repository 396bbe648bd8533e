r"""Prose with formulas in LaTeX between dollar signs: as MathML, and in plain letters.

    plain(r"$|\theta_j - \theta_j^*| \le c_1 \sqrt{d/n'}$ for all $j$")

is "|θ_j − θ_j*| ≤ c₁√(d/n′) for all j". What stands between backticks is code, and a
text without dollar signs is shown as it is. A dollar that opens no formula stays one.

latex2mathml reads a formula. It takes some that are none and leaves spacing open: both
are made good here, once, in the tree from which either form is written.
"""

import functools
import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree as ET

from markupsafe import Markup, escape

# Code is left alone; a formula has no space inside of its dollar signs, as text has.
FORMULA = re.compile(
    r"""
    (?P<code>^(?P<fence>```|~~~).*?^(?P=fence)|`[^`\n]+`)
    | (?<!\\)\$\$(?P<display>.+?)\$\$
    | (?<!\\)\$(?P<inline>(?!\s)(?:\\.|[^$\\])+?)(?<!\s)\$(?!\d)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
# Numbers as Python writes them, such as 1e-05.
_POWER_OF_TEN = re.compile(r"(?<![\w.])(1|\d+(?:\.\d+)?)e([+-]?)0*(\d+)(?!\w)")
_KINDS = {
    "relation": "≤≥=<>≠→⇒⟺≲≳≪≫∼≁≈≔∈∉⊂⊆∣∝",
    "sign": "+−±∓×·∘⊙∩∪∖⋅",
    "open": "([{⟨⌊⌈",
    "close": ")]}⟩⌋⌉",
    "bar": "|‖",
    "comma": ",;",
    "slash": "/",
    "large": "∑∏",
}
_KIND = {sign: kind for kind, signs in _KINDS.items() for sign in signs}
_NO_OPERATORS = "′″∞∅∂∇…⋯%"  # though they are no letters either
_RAISED = str.maketrans("0123456789+−=", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼")
_LOWERED = str.maketrans("0123456789+−=", "₀₁₂₃₄₅₆₇₈₉₊₋₌")
_ACCENTS = {"^": "\u0302", "¯": "\u0304", "~": "\u0303", "―": "\u0305"}
_LONG = 36  # letters of a formula that a narrow page has room for
_DEEPEST = 3  # brackets within which a line may be broken
_BELOW = ("msub", "msubsup", "munder", "munderover")
_ABOVE = ("msup", "msubsup", "mover", "munderover")
_GREEK = (
    "alpha|beta|gamma|delta|epsilon|eta|theta|kappa|lambda|mu|nu|pi|rho|sigma|tau|"
    "omega|Delta"
)


def typeset(text: str) -> Markup:
    """HTML of prose: formulas as MathML, code as code, all else escaped.

    A long formula becomes several elements, between which a line may be broken: before
    relations, before signs, between factors in brackets, outermost first.

    Raises:
      ValueError: if a formula cannot be read.
    """
    shown = {"prose": escape, "formula": _set, "code": Markup("<code>{}</code>").format}
    return Markup("").join(shown[piece.kind](piece.text) for piece in _pieces(text))


def plain(text: str) -> str:
    """The text in plain letters, with the signs, small digits and accents of Unicode.

    Raises:
      ValueError: if a formula cannot be read.
    """
    shown = {"prose": str, "formula": _letters, "code": "`{}`".format}
    return "".join(shown[piece.kind](piece.text) for piece in _pieces(text))


def check_formulas(name: str, texts: Iterable[str]) -> None:
    """Make sure that every formula of the texts can be read.

    Raises:
      ValueError: with the `name` of what they belong to, if one cannot.
    """
    for text in texts:
        try:
            plain(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


def left_side(text: str, relation: str) -> str:
    """What stands before the first relation, "<=", ">=" or "=", or its LaTeX."""
    latex = {"<=": r"<=|\\leq?\b", ">=": r">=|\\geq?\b", "=": "="}[relation]
    left = re.split(rf"\s*(?:{latex})\s*", text, maxsplit=1)[0]
    return f"{left}$" if left.count("$") % 2 else left


def symbols(name: str) -> str:
    r"""The name of a constant or parameter with its letters as formulas: "c1" as
    "$c_1$", "alpha" as "$\alpha$". Words stay words."""
    if "$" in name:
        return name
    return re.sub(
        rf"(?<![\w'])({_GREEK}|[A-Za-z])_?(\d*)('*)(?![\w'])",
        lambda found: "${}{}{}$".format(
            found[1] if len(found[1]) == 1 else f"\\{found[1]}",
            found[2] and f"_{{{found[2]}}}",
            found[3],
        ),
        name,
    )


def mathml(formula: str, *, display: bool = False) -> str:
    """One formula as one element.

    Raises:
      ValueError: if it cannot be read.
    """
    return _element(_tree(formula, display), {"display": "block"} if display else {})


class _Piece(NamedTuple):
    kind: str  # prose, code or formula
    text: str


def _pieces(text: str) -> Iterator[_Piece]:
    """Prose, code and formulas in their order."""
    end = 0
    for match in FORMULA.finditer(text):
        yield _Piece("prose", text[end : match.start()].replace(r"\$", "$"))
        formula = match["inline"] or match["display"]
        if formula:
            yield _Piece("formula", formula)
        else:
            yield _Piece("code", match["code"].strip("`"))
        end = match.end()
    yield _Piece("prose", text[end:].replace(r"\$", "$"))


# A formula as a row of elements, with what the converter leaves open.


def _tree(formula: str, display: bool = False) -> list[ET.Element]:
    """The parts of a formula.

    Raises:
      ValueError: if it cannot be read.
    """
    from latex2mathml.converter import Converter

    readable = _POWER_OF_TEN.sub(_power_of_ten, formula)
    readable = re.sub(r"(?<!\\)%", r"\\%", readable)  # which would be a comment
    try:
        _check_braces(readable)
        converter = Converter(display="block" if display else "inline")
        tree = converter.convert_to_element(readable)
        _check_whole(tree)
    except Exception as error:  # the converter has a dozen of its own
        what = str(error) or type(error).__name__.removesuffix("Error")
        raise ValueError(
            f"a formula between dollar signs must be LaTeX, got ${formula}$: {what}."
        ) from error
    return _tidied(list(tree[0]))


def _power_of_ten(found: re.Match[str]) -> str:
    power = f"10^{{{found[2].replace('+', '')}{found[3]}}}"
    return power if found[1] == "1" else rf"{found[1]} \cdot {power}"


def _check_braces(formula: str) -> None:
    """The converter takes what is never closed."""
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", formula):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            break
    if depth:
        raise ValueError("braces do not match")


def _check_whole(tree: ET.Element) -> None:
    """It also takes commands that it does not know, and fractions without a half."""
    for node in tree.iter():
        node.text = html.unescape(node.text or "").replace("\u2009", "")
        if node.text.startswith("\\") and node.tag != "mtext":
            raise ValueError(f"{node.text} is no command it knows")
        parts = {"mfrac": 2, "msub": 2, "msup": 2, "msubsup": 3, "mover": 2}
        if len(node) != parts.get(node.tag, len(node)):
            raise ValueError("something is missing")
        if node.tag == "mi" and not node.text:
            raise ValueError("something is raised or lowered twice")


def _tidied(row: Sequence[ET.Element]) -> list[ET.Element]:
    """The row with signs as operators, bars in pairs, and room around words."""
    found: list[ET.Element] = []
    for node in map(_unwrapped, row):
        if node.tag in ("mfrac", *_BELOW, *_ABOVE):
            node[:] = [_one(_tidied([child])) for child in node]
        else:
            node[:] = _tidied(list(node))
        _name_operator(node)
        if node.tag == "mover" and node[1].text in _ACCENTS:
            node.set("accent", "true")
            node[1].attrib = {} if node[1].text == "―" else {"stretchy": "false"}
        before = found[-1].text if found else ""
        if before == ":" and node.text == "=":
            found[-1].text = "≔"
        elif before == "," and found[-1].get("grouped") and node.tag == "mn":
            found[-2:] = [_made("mn", f"{found[-2].text},{node.text}")]
        else:
            found.append(node)
    _place_signs(found)
    return _with_room(found)


def _unwrapped(node: ET.Element) -> ET.Element:
    """What stands alone in a row; a comma in braces groups the digits of a number."""
    while node.tag == "mrow" and len(node) == 1:
        node = node[0]
        if node.text == ",":
            node.set("grouped", "true")
    return node


def _one(row: list[ET.Element]) -> ET.Element:
    if len(row) == 1:
        return row[0]
    whole = ET.Element("mrow")
    whole[:] = row
    return whole


def _made(tag: str, text: str = "", **attributes: str) -> ET.Element:
    node = ET.Element(tag, attributes)
    node.text = text
    return node


def _name_operator(node: ET.Element) -> None:
    """Signs are operators, words are none; a slash has no room around it."""
    text = node.text or ""
    if node.tag == "mi" and text == "~":
        text = node.text = "∼"
    if node.tag == "mi" and len(text) == 1 and text not in _NO_OPERATORS:
        if unicodedata.category(text)[0] in "SP":
            node.tag = "mo"
    elif node.tag == "mo" and text.isalpha():
        node.tag, node.attrib = "mi", {}
    if node.tag == "mo" and text == "/":
        node.attrib = {"lspace": "0", "rspace": "0"}


def _place_signs(row: Sequence[ET.Element]) -> None:
    """Say of each bar whether it opens or closes, and of each sign where it stands."""
    if len(row) == 1:  # it stands above or below something
        return
    open_bars: list[ET.Element] = []
    before = "start"
    for node in row:
        kind, core = _kind(node), _core(node)
        if kind == "bar":
            closes = node is not core or before in ("operand", "close", "word")
            if open_bars and closes and open_bars[-1].text == core.text:
                open_bars.pop()
                kind, form = "close", "postfix"
            else:
                open_bars.append(core)
                kind, form = "open", "prefix"
            core.set("form", form)
        elif kind in ("sign", "relation"):
            is_first = before in ("start", "open", "sign", "relation", "comma", "slash")
            is_prefix = kind == "sign" and is_first
            core.set("form", "prefix" if is_prefix else "infix")
        before = kind if kind != "space" else before
    for bar in open_bars:
        bar.set("form", "infix")


def _with_room(row: list[ET.Element]) -> list[ET.Element]:
    """A thin space between a word and what stands beside it."""
    found: list[ET.Element] = []
    for node in row:
        before, kind = _kind(found[-1]) if found else "", _kind(node)
        after_word = before == "word" and kind in ("operand", "word")
        if after_word or (kind == "word" and before in ("operand", "close")):
            found.append(_made("mspace", width="0.167em"))
        found.append(node)
    return found


def _core(node: ET.Element) -> ET.Element:
    """What carries the scripts, or the node."""
    while node.tag in (*_BELOW, *_ABOVE) and node.get("accent") != "true":
        node = node[0]
    return node


def _kind(node: ET.Element) -> str:
    """What a part of a row is to its neighbours: of `_KINDS`, a word, an operand or a
    space."""
    core = _core(node)
    text = core.text or ""
    if core.tag == "mspace":
        return "space"
    if core.tag == "mo" and text in _KIND:
        places = {"prefix": "open", "postfix": "close", "infix": "relation"}
        kind = _KIND[text]
        return places.get(core.get("form", ""), kind) if kind == "bar" else kind
    is_word = core.tag in ("mi", "mtext") and len(text) > 1 and text.isalpha()
    return "word" if is_word else "operand"


# As MathML.


def _element(row: Sequence[ET.Element], attributes: dict[str, str]) -> str:
    whole = ET.Element("math", attributes)
    whole[:] = row
    return ET.tostring(whole, encoding="unicode", short_empty_elements=False)


@functools.cache  # A report has most texts on several pages.
def _set(formula: str) -> Markup:
    """A formula in parts that fit into a line each, as far as it has any."""
    parts = _parts(_tree(formula), depth=0)
    return Markup("<wbr>".join(_element(part, {}) for part in parts))


def _parts(row: list[ET.Element], depth: int) -> list[list[ET.Element]]:
    """The row, where it is long, broken before the relations outside of so many
    brackets, then before the signs, between factors, and then a bracket deeper."""
    found = [row]
    for kind in ("relation", "sign", "factor"):
        found = [
            piece
            for part in found
            for piece in (_split(part, kind, depth) if _is_long(part) else [part])
        ]
    if depth == _DEEPEST:
        return found
    return [
        piece
        for part in found
        for piece in (_parts(part, depth + 1) if _is_long(part) else [part])
    ]


def _is_long(row: Sequence[ET.Element]) -> bool:
    return len(_row(row)) > _LONG


def _split(row: list[ET.Element], kind: str, depth: int) -> list[list[ET.Element]]:
    """The row before each relation, sign or factor at a depth of brackets."""
    found: list[list[ET.Element]] = [[]]
    level, before = 0, ""
    for node in row:
        own = _kind(node)
        level -= own == "close"
        between = own == kind and _core(node).get("form") == "infix"
        if kind == "factor":
            between = before == "close" and own in ("open", "word")
        if between and level == depth and len(_row(found[-1])) > _LONG // 4:
            found.append([])
        found[-1].append(node)
        level += own == "open"
        before = own if own != "space" else before
    return found


# In plain letters.


@functools.cache
def _letters(formula: str) -> str:
    return _row(_tree(formula)).strip()


def _row(row: Sequence[ET.Element]) -> str:
    """Parts beside each other, with spaces around relations, signs and words, and where
    a root or an index would take what follows for its own."""
    text, before = "", ""
    for place, node in enumerate(row):
        kind, written = _kind(node), _written(node)
        after = _kind(row[place + 1]) if place + 1 < len(row) else ""
        if node.tag == "mfrac" and node.get("linethickness") != "0":
            beside = {before, after} & {"operand", "word", "slash", "large"}
            if beside or before == "close" or after == "open":
                written = f"({written})"
        is_prefix = _core(node).get("form") == "prefix"
        if kind in ("relation", "sign") and not is_prefix:
            text += f" {written} "
        elif kind == "comma":
            text += f"{written} "
        elif kind == "space":
            text += " "
        else:
            takes = re.search(r"(√\w+|[_^]\w+[′*]*)$", text) and kind == "operand"
            digits = written[0].isdigit() and before == "operand" if written else False
            apart = takes and re.match(r"[\w√]", written)
            text += " " * bool(apart or digits or before == "large") + written
        before = kind if kind != "space" else before
    return re.sub(" +", " ", text)


def _written(node: ET.Element) -> str:
    """One part in letters."""
    inside = list(node)
    if node.tag == "mover" and node.get("accent") == "true":
        text, accent = _written(inside[0]), _ACCENTS[inside[1].text or ""]
        return f"{text[0]}{accent}{text[1:]}"
    if node.tag in (*_BELOW, *_ABOVE):
        base = _written(inside[0])
        if inside[0].tag in ("mrow", "mfrac"):
            base = f"({base})"
        lowered = _script(inside[1], "_") if node.tag in _BELOW else ""
        raised = _script(inside[-1], "^") if node.tag in _ABOVE else ""
        return base + lowered + raised
    if node.tag == "mfrac":
        above, below = inside
        if node.get("linethickness") == "0":
            return f"{_written(above)} over {_written(below)}"
        return f"{_side(above)}/{_side(below, is_below=True)}"
    if node.tag == "msqrt":
        is_one = len(inside) == 1 and inside[0].tag in ("mi", "mn")
        return f"√{_row(inside)}" if is_one else f"√({_row(inside)})"
    if inside:
        return _row(inside)
    return (node.text or "").replace("\xa0", " ").replace("∣", "|")


def _side(node: ET.Element, *, is_below: bool = False) -> str:
    """A side of a fraction, in brackets where it would fall apart without."""
    parts = list(node) if node.tag == "mrow" else [node]
    kinds = [_kind(part) for part in parts]
    text = _row(parts)
    whole = kinds[0] == "open" and kinds[-1] == "close" and kinds.count("open") == 1
    apart = {"sign", "relation", "comma", "slash"} & set(kinds) or "/" in text
    return f"({text})" if not whole and (apart or is_below * len(parts) > 1) else text


def _script(node: ET.Element, mark: str) -> str:
    """What stands below or above: digits as small ones, else after its mark."""
    text = re.sub(r" ?([^\w\s]) ?", r"\1", _written(node)).strip()
    rest = text.lstrip("′″*") if mark == "^" else text
    small = rest.translate(_RAISED if mark == "^" else _LOWERED)
    taken = text.removesuffix(rest)
    if all(letter != shown for letter, shown in zip(rest, small, strict=True)):
        return taken + small
    is_one = re.fullmatch(r"[\w.∞]+[′*]*|\([^()]*\)", rest)
    is_product = mark == "^" and node.tag == "mrow"
    bare = is_one and not (is_product and rest[0] != "(")
    return f"{taken}{mark}{rest}" if bare else f"{taken}{mark}({rest})"
