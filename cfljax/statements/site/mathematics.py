"""Claims written in plain letters, set as mathematics (MathML).

    typeset("theta_j* <= c1 sqrt(d/n')")

What parses as a formula is set: Greek letters, indices, powers, primes, hats, roots,
short fractions, relations, sums. All else is prose and stays as it was written, and so
does what could be read in two ways, such as n^-1/2. A formula becomes one element for
each part between relations and signs, because browsers break no line inside of one.
"""

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eps": "ε",
    "zeta": "ζ", "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ",
    "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ",
    "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ",
    "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Omega": "Ω",
}  # fmt: skip
RELATIONS = {
    "<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "=>": "⇒", "<~": "≲", ">~": "≳",
    "<<": "≪", ">>": "≫", "!~": "≁", "==": "=", ":=": "≔", "<": "<", ">": ">",
    "=": "=", "~": "∼",
}  # fmt: skip
SIGNS = {"+-": "±", "+": "+", "-": "−", "*": "*", "..": "‥", "...": "…", "x": "×"}
WORDS = {"in": "∈", "cap": "∩", "cup": "∪", "grad": "∇", "sum": "∑", "prod": "∏"}
ACCENTS = {"hat": "ˆ", "bar": "¯", "tilde": "˜"}
_FUNCTIONS = (
    "log", "ln", "exp", "max", "min", "sup", "inf", "argmax", "argmin", "lim", "avg",
    "Var", "Cov", "Pr", "arccos", "cos", "sin", "poly", "erf", "det", "tr", "sum",
    "prod",
)  # fmt: skip
_NO_ACCENTS = ("that", "That", "what", "What", "chat")
_ARTICLES = ("a", "A", "I")  # unless they stand beside a sign
# What a letter with a number is the name of after one of these.
_LABELS = re.compile(
    r"(?:Assumptions?|Lemmas?|Theorems?|Corollar(?:y|ies)|Tables?|Sections?|Appendix|"
    r"Eqs?\.?|Definitions?|Claims?|Propositions?|Algorithms?|Figures?|Fig\.|Steps?)$"
)
_CLOSING = {"(": ")]", "[": ")]", "{": "}", "|": "|", "||": "||"}
_LONG = 28  # letters of brackets within which a line may be broken
_SHORT = 5  # of the two sides of a fraction that is set upright
_NARROW = "\u202f"
_THIN = '<mspace width="0.17em"></mspace>'
_ROOM = {"relation": 0, "sign": 12, "product": 16, "slash": 20}  # before a break

_TOKEN = re.compile(
    r"""
    (?P<code>`[^`]+`)
    | (?P<quoted>(?<![\w)\]}|*'+])'[^'\s][^']*'(?!\w))
    | (?P<space>\s+)
    | (?P<number>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+(?!\w))?)
    | (?P<prose>[A-Za-z]+(?:\.[A-Za-z]+)+\.?)
    | (?P<name>[A-Za-z][A-Za-z0-9]*)
    | (?P<sign><=|>=|!=|->|=>|<~|>~|<<|>>|!~|==|:=|\+-|\|\||\.\.\.|\.\.|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_LETTER = re.compile(
    rf"({'|'.join(sorted(GREEK, key=len, reverse=True))}|[A-Za-z])"
    rf"({'|'.join(ACCENTS)})?(\d*)"
)


class _Token(NamedTuple):
    kind: str
    text: str


class _Item(NamedTuple):
    """A part of a formula: what it is, its MathML, and how many letters it shows."""

    kind: str  # operand, function, relation, sign, slash, comma, open, close
    html: str
    size: int
    is_strong: bool = False  # whether it alone shows that this is a formula
    is_spaced: bool = False  # whether a space stood before it


@functools.cache  # A report has most texts on several pages.
def typeset(text: str) -> Markup:
    """HTML of a claim, its formulas as MathML. What would be markup is escaped, text
    between backticks becomes code."""
    tokens = [
        _Token(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(text)
    ]
    reader, pieces, before = _Reader(tokens), [], ""
    while reader.here.kind:
        start, label = reader.place, _LABELS.search(before.rstrip())
        hyphen = reader.here.text == "-" and before[-1:].isalnum()
        odd = label or hyphen or re.search(r"[_^]$|\w'$", before)
        items = None if odd or reader.here.kind == "space" else reader.row()
        if items and any(item.is_strong for item in items):
            pieces.append(_formula(items))
        else:
            reader.place = start + 1
            pieces.append(_prose(tokens[start]))
        before += "".join(token.text for token in tokens[start : reader.place])
    return Markup("").join(pieces)


def _prose(token: _Token) -> Markup:
    """What is no formula, with relations as they are printed."""
    if token.kind == "code":
        return Markup("<code>{}</code>").format(token.text[1:-1])
    if token.kind == "quoted":
        return Markup("‘{}’").format(typeset(token.text[1:-1]))
    if token.kind == "sign" and token.text not in ("-", "*"):
        known = RELATIONS | SIGNS | {"||": "‖"}
        return escape(known.get(token.text, token.text))
    return escape(token.text)


class _Reader:
    """Reads formulas from tokens, each attempt whole or not at all.

    Args:
      tokens: of a text, or of what stands in an index or a power.
      is_small: whether it is set small, where nothing is stacked.
    """

    def __init__(self, tokens: list[_Token], *, is_small: bool = False) -> None:
        self._tokens = [*tokens, _Token("", "")]
        self._is_small = is_small
        self._open = ["{"] if is_small else []  # brackets around this place
        self.place = 0

    @property
    def here(self) -> _Token:
        """The next token."""
        return self._tokens[self.place]

    def row(self, *, is_root: bool = False) -> list[_Item]:
        """Operands with relations and signs between them; empty if there are none. What
        a root holds is one fraction where all of it is divided once."""
        items: list[_Item] = []
        whole = 0  # items up to the last operand, and the place behind it
        end = self.place
        while True:
            spaced = self._skip_space() and bool(items)
            found = None
            if len(items) > whole or not items:
                is_first = not items or items[-1].kind in ("relation", "comma")
                if is_first and self.here.text in ("-", "+", "+-"):
                    sign = self._sign("prefix", form="prefix")
                    items.append(sign._replace(is_spaced=spaced))
                    spaced = self._skip_space()
                found = self._operand(after_sign=bool(items))
            elif (between := self._between(spaced)) is not None:
                items.append(between._replace(is_spaced=spaced))
                continue
            elif not self._closes() and not (spaced and self.here.kind == "number"):
                found = self._operand(after_sign=False)
                apart = spaced and items[-1].kind == "operand"
                if apart and found and '<mo form="infix">,<' in found[0].html:
                    found = None  # a list in brackets is no factor
            if found is None:
                break
            items += [found[0]._replace(is_spaced=spaced), *found[1:]]
            whole, end = len(items), self.place
        self.place = end
        divided = _whole_fraction(items[:whole]) if is_root else None
        if divided and not self._is_small:
            return [divided]
        return self._with_fractions(items[:whole])

    def _skip_space(self) -> bool:
        is_space = self.here.kind == "space"
        self.place += is_space
        return is_space

    def _closes(self, ahead: int = 0) -> bool:
        """Whether the next token, or one ahead, closes the brackets around here."""
        text = self._tokens[self.place + ahead].text
        return bool(self._open) and text in _CLOSING[self._open[-1]]

    def _sign(self, kind: str, form: str = "infix") -> _Item:
        """The token as an operator."""
        text = self.here.text
        self.place += 1
        shown = (RELATIONS | SIGNS | WORDS).get(text, text)
        close = ' lspace="0" rspace="0"' * (kind == "slash")
        html = f'<mo form="{form}"{close}>{escape(shown)}</mo>'
        return _Item(kind, html, len(shown) + 2, kind == "relation")

    def _between(self, spaced: bool) -> _Item | None:
        """A relation, sign or separator after an operand, if there is one."""
        kind, text = self.here
        if kind == "name":
            follows = self._tokens[self.place + 1 : self.place + 4]
            if not (spaced and len(follows) > 1 and follows[0].kind == "space"):
                return None
            if text == "x" and self._is_small:
                return self._sign("sign")
            if text == "in" and follows[1].text in ("(", "[", "{", "R"):
                return self._sign("relation")
            if text not in ("cap", "cup"):
                return None
            is_set = _is_capital(follows[1]) or self._is_complement(ahead=2)
            return self._sign("sign") if is_set else None
        if kind != "sign" or self._closes():
            return None
        if text in RELATIONS:
            return self._sign("relation")
        if text == "/":
            return self._sign("slash")
        follows = self._tokens[self.place + 1]
        given = text == "|" and spaced and follows.kind == "space"
        if self._open and (text in (",", ";") or given):
            return self._sign("comma")
        return self._sign("sign") if text in SIGNS else None

    # What stands between signs.

    def _operand(self, *, after_sign: bool) -> list[_Item] | None:
        """One operand with its indices and powers; None, and nothing read, if the next
        tokens are none."""
        start = self.place
        found = self._bare_operand(after_sign)
        if found is None:
            self.place = start
        return found

    def _bare_operand(self, after_sign: bool) -> list[_Item] | None:
        kind, text = self.here
        if kind == "number":
            self.place += 1
            return self._scripted(_Item("operand", f"<mn>{text}</mn>", len(text)))
        if text in _CLOSING and kind == "sign":
            return self._bracketed()
        if text == "..." or (text == ".." and after_sign):
            return [self._sign("operand")]
        if kind != "name":
            return None
        if text == "sqrt":
            return self._root()
        if text == "grad":
            return self._gradient()
        if text == "not" and after_sign and self._is_complement():
            return self._complement()
        if text in _FUNCTIONS:
            return self._function()
        letter = _LETTER.fullmatch(text)
        if letter and text not in _NO_ACCENTS:
            return self._letter(*letter.groups(), after_sign=after_sign)
        if re.fullmatch(r"[A-Z]{2,3}|[a-z][A-Z]", text):  # a name or a product
            self.place += 1
            found = self._scripted(_Item("operand", f"<mi>{text}</mi>", len(text)))
            return found if after_sign or self._is_before_sign() else None
        return None

    def _letter(
        self, base: str, accent: str | None, digits: str, *, after_sign: bool
    ) -> list[_Item] | None:
        """A letter with its accent and number."""
        self.place += 1
        html = f"<mi>{GREEK.get(base, base)}</mi>"
        if accent:
            over = f'<mo stretchy="false">{ACCENTS[accent]}</mo>'
            html = f'<mover accent="true">{html}{over}</mover>'
        number = [f"<mn>{digits}</mn>"] if digits else []
        item = _Item("operand", html, 1 + len(digits), is_strong=True)
        squared = base + digits == "chi2"  # the name of a law
        found = self._scripted(item, [] if squared else number, number * squared)
        if base in _ARTICLES and found and found[0].html == html:
            is_article = not (after_sign or self._open or self._is_before_sign())
            return None if is_article or self._is_before_word() else found
        return found

    def _is_before_sign(self) -> bool:
        """Whether what was read is the side of a relation or a part of a product."""
        spaced = self.here.kind == "space"
        text = self._tokens[self.place + spaced].text
        return text in RELATIONS | SIGNS or (not spaced and text in ("/", "(", "|"))

    def _is_before_word(self) -> bool:
        """Whether a word follows after a space."""
        follows = self._tokens[self.place + (self.here.kind == "space")]
        letter = _LETTER.fullmatch(follows.text)
        return follows is not self.here and follows.kind == "name" and not letter

    def _root(self) -> list[_Item] | None:
        """A root of what is in brackets, or of one operand."""
        self.place += 1
        self._skip_space()
        bracketed = self.here.text == "("
        inside = (
            self._bracket(is_root=True) if bracketed else self._operand(after_sign=True)
        )
        if inside is None:
            return None
        # Brackets that only held the content together are not shown.
        shown = inside[1:-1] if bracketed else inside
        size = sum(item.size for item in shown)
        html = f"<msqrt>{_row(shown)}</msqrt>"
        return self._scripted(_Item("operand", html, size + 1, is_strong=True))

    def _gradient(self) -> list[_Item] | None:
        self.place += 1
        self._skip_space()
        if self.here.kind != "name":
            return None
        found = self._operand(after_sign=True)
        if found is None or not re.search(r"<mi>[A-Zf]<", found[0].html):
            return None
        html = f'<mo form="prefix">∇</mo>{found[0].html}'
        return [found[0]._replace(html=html, size=found[0].size + 1), *found[1:]]

    def _is_complement(self, ahead: int = 0) -> bool:
        """Whether "not" and a set follow."""
        here = self._tokens[self.place + ahead : self.place + ahead + 3]
        words = [token.text for token in here]
        return len(here) == 3 and words[:2] == ["not", " "] and _is_capital(here[2])

    def _complement(self) -> list[_Item] | None:
        """All that is not in a set, whose name follows."""
        self.place += 2
        found = self._operand(after_sign=True)
        if found is None:
            return None
        html = f"<mrow><mtext>not{_NARROW}</mtext>{found[0].html}</mrow>"
        return [found[0]._replace(html=html, size=found[0].size + 3), *found[1:]]

    def _function(self) -> list[_Item] | None:
        """A function's name, where what follows is its argument."""
        name = self.here.text
        self.place += 1
        shown = WORDS.get(name, name)
        tag = "mo" if name in WORDS else "mi"
        html = f"<{tag}>{shown}</{tag}>"
        found = self._scripted(_Item("function", html, len(shown), is_strong=True))
        if found is None:
            return None
        start = self.place
        self._skip_space()
        argument = self._operand(after_sign=False)
        self.place = start
        return found if argument or found[0].html != html else None

    def _bracketed(self) -> list[_Item] | None:
        """Brackets with all that is in them: one part if they are short or carry an
        index, else many."""
        found = self._bracket()
        if found is None:
            return None
        size = sum(item.size for item in found)
        strong = any(item.is_strong for item in found)
        whole = _Item("operand", f"<mrow>{_row(found)}</mrow>", size, strong)
        scripted = self._scripted(whole)
        if scripted is None or scripted[0].html != whole.html or size <= _LONG:
            return scripted
        return found

    def _bracket(self, *, is_root: bool = False) -> list[_Item] | None:
        """Opening bracket, content and closing bracket."""
        opening = self.here.text
        self.place += 1
        self._open.append(opening)
        inside = self.row(is_root=is_root)
        self._open.pop()
        self._skip_space()
        closing = self.here.text
        if not inside or closing not in _CLOSING[opening] or not closing:
            return None
        self.place += 1
        ends = (("open", "prefix", opening), ("close", "postfix", closing))
        first, last = (
            _Item(kind, f'<mo form="{form}">{text.replace("||", "‖")}</mo>', 1)
            for kind, form, text in ends
        )
        return [first, *inside, last]

    # Indices and powers.

    def _scripted(
        self, item: _Item, below: Sequence[str] = (), above: Sequence[str] = ()
    ) -> list[_Item] | None:
        """The operand with the indices, powers and primes behind it; None where they
        cannot be read."""
        below, above = list(below), list(above)
        size, indexed = 0, False
        while self.here.kind == "sign":
            text = self.here.text
            follows = self._tokens[self.place + 1]
            if text == "'":
                if (follows.kind, follows.text) == ("name", "s"):
                    break  # a genitive
                above.append("<mo>′</mo>")
                self.place += 1
            elif text in ("_", "^"):
                if text == "_" and indexed:
                    return None
                self.place += 1
                script = self._script(is_power=text == "^")
                if script is None:
                    return None
                indexed |= text == "_"
                (below if text == "_" else above).append(script.html)
                size += script.size
            elif text in ("*", "+") and not (
                item.html.startswith("<mn")
                or follows.kind in ("name", "number")
                or (text == "+" and follows.text in _CLOSING and not self._closes(1))
            ):
                above.append(f"<mo>{text}</mo>")
                self.place += 1
            else:
                break
        return [_with_scripts(item, below, above, size)]

    def _script(self, *, is_power: bool) -> _Item | None:
        """What stands in an index or a power; None if it could be read in two ways."""
        kind, text = self.here
        if text == "{":
            tokens = self._balanced("{", "}")
            return None if tokens is None else _small(tokens[1:-1])
        if text == "(":
            tokens = self._balanced("(", ")")
            return None if tokens is None else _small(tokens)
        if is_power and text in ("*", "+"):
            self.place += 1
            return _Item("operand", f"<mo>{text}</mo>", 1)
        taken = []
        if is_power and text == "-":
            taken, self.place = [self.here], self.place + 1
            kind, text = self.here
            if self._tokens[self.place + 1].text == "/":
                return None
        if kind not in ("name", "number"):
            return None
        taken.append(self.here)
        self.place += 1
        while self.here.text == "'" and self._tokens[self.place + 1].text != "s":
            taken.append(self.here)
            self.place += 1
        return _small(taken)

    def _balanced(self, opening: str, closing: str) -> list[_Token] | None:
        """All tokens from one bracket to the other."""
        start, depth = self.place, 0
        while self.here.kind:
            depth += (self.here.text == opening) - (self.here.text == closing)
            self.place += 1
            if not depth:
                return self._tokens[start : self.place]
        return None

    def _with_fractions(self, items: list[_Item]) -> list[_Item]:
        """Short operands above each other, where it is clear what is divided."""
        if self._is_small:
            return items
        for place in range(len(items) - 2, 0, -1):
            if items[place].kind != "slash":
                continue
            top, bottom = map(_unbracketed, (items[place - 1], items[place + 1]))
            left = items[place - 2].kind if place > 1 else ""
            right = items[place + 2].kind if place + 2 < len(items) else ""
            clear = left not in ("slash", "function") and right in (
                "", "relation", "sign", "comma", "close",
            )  # fmt: skip
            short = max(top.size, bottom.size) <= _SHORT
            plain = "<mfrac" not in top.html + bottom.html
            plain &= {top.kind, bottom.kind} == {"operand"}
            if clear and short and plain:
                html = f"<mfrac>{_one(top)}{_one(bottom)}</mfrac>"
                size = max(top.size, bottom.size)
                strong = top.is_strong or bottom.is_strong
                items[place - 1 : place + 2] = [
                    _Item("operand", html, size, strong, top.is_spaced)
                ]
        return items


def _is_capital(token: _Token) -> bool:
    return len(token.text) == 1 and token.text.isupper()


def _whole_fraction(items: list[_Item]) -> _Item | None:
    """All of a product over one factor; None where more or less is divided, or it is
    not clear what is, or a fraction would stand in another one."""
    level, levels = 0, []
    for item in items:
        level -= item.kind == "close"
        levels.append(level)
        level += item.kind == "open"
    outer = [item for item, own in zip(items, levels, strict=True) if own == 0]
    kinds = [item.kind for item in outer]
    if kinds.count("slash") != 1 or {"relation", "sign", "comma"} & set(kinds):
        return None
    at = next(
        place
        for place, own in enumerate(levels)
        if own == 0 and items[place].kind == "slash"
    )
    top, bottom = items[:at], items[at + 1 :]
    divided = kinds[kinds.index("slash") + 1 :]
    is_one_factor = divided in (
        ["operand"], ["open", "close"], ["function", "operand"],
    )  # fmt: skip
    is_bare = re.compile(r"<mrow><mo|<mo").match(top[-1].html) is None
    of_function = len(top) > 1 and top[-2].kind == "function" and is_bare
    stacked = any("<mfrac" in item.html for item in (*top, *bottom))
    if not is_one_factor or of_function or stacked:
        return None
    sides = [_side(top), _side(bottom)]
    html = f"<mfrac>{''.join(f'<mrow>{_row(side)}</mrow>' for side in sides)}</mfrac>"
    size = max(sum(item.size for item in side) for side in sides)
    return _Item("operand", html, size, is_strong=True)


def _side(items: list[_Item]) -> list[_Item]:
    """One side of a fraction, without the brackets that only held it together."""
    first, *others = items
    if not others:
        return [_unbracketed(first)._replace(is_spaced=False)]
    kinds = [item.kind for item in items]
    whole = (kinds[0], kinds[-1]) == ("open", "close") and "(" in first.html
    if whole and "close" not in kinds[1:-1]:
        return others[:-1]
    return [first._replace(is_spaced=False), *others]


def _unbracketed(item: _Item) -> _Item:
    """The side of a fraction without the brackets that only held it together."""
    inside = re.fullmatch(r"<mrow>.{18}\(</mo>(.*)<mo.{15}>\)</mo></mrow>", item.html)
    if inside is None:
        return item
    return item._replace(html=f"<mrow>{inside[1]}</mrow>", size=item.size - 2)


def _small(tokens: list[_Token]) -> _Item:
    """An index or a power: a formula if all of it is one, else upright text."""
    reader = _Reader(tokens, is_small=True)
    items = reader.row()
    if not items or reader.here.kind:
        text = "".join(token.text for token in tokens)
        tag = "mi" if text.isalnum() else "mtext"
        return _Item("operand", f"<{tag}>{escape(text)}</{tag}>", len(text))
    return _Item("operand", _row(items), sum(item.size for item in items))


def _with_scripts(item: _Item, below: list[str], above: list[str], size: int) -> _Item:
    """The operand with what stands below and above it."""
    if not below and not above:
        return item
    scripts = [("sub", "<mo>,</mo>".join(below)), ("sup", "".join(above))]
    scripts = [(name, html) for name, html in scripts if html]
    tag = "m" + "".join(name for name, _ in scripts)
    parts = "".join(_one(item._replace(html=html)) for _, html in scripts)
    html = f"<{tag}>{_one(item)}{parts}</{tag}>"
    return item._replace(html=html, size=item.size + size + len(above), is_strong=True)


def _one(item: _Item) -> str:
    """The item as one element."""
    is_one = re.fullmatch(r"<(m[ino])>[^<]*</\1>|<mrow>.*", item.html)
    return item.html if is_one else f"<mrow>{item.html}</mrow>"


def _row(items: list[_Item]) -> str:
    """Elements beside each other, with the spaces of the text, which are not shown, and
    room around functions, which is."""
    parts, before = [], ""
    for item in items:
        argument = item.html.startswith(("<mrow><mo", "<mo"))  # in brackets
        if before == "function" and item.kind in ("operand", "function"):
            parts.append("" if argument else _THIN)
        elif before == "operand" and item.kind == "function":
            parts.append(_THIN)
        parts.append(" " * item.is_spaced + item.html)
        before = item.kind
    return "".join(parts)


def _formula(items: list[_Item]) -> Markup:
    """One element for each part after which a line may be broken."""
    parts: list[list[_Item]] = [[]]
    for item in items:
        size = sum(one.size for one in parts[-1])
        before = parts[-1][-1].kind if parts[-1] else ""
        between = "product" if (before, item.kind) == ("operand",) * 2 else item.kind
        room = 0 if before == "comma" else _ROOM.get(between)
        if before and room is not None and size >= room:
            parts.append([])
        parts[-1].append(item)
    return Markup("<wbr>".join(f"<math>{_row(part)}</math>" for part in parts))
