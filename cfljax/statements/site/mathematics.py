"""Claims written in plain letters, set as mathematics.

    typeset("theta_j* <= c1 sqrt(d/n')")  # θ<sub>j</sub>* ≤ c<sub>1</sub> √(d/n′)

Only what is unambiguous is changed; everything else stays as it was written.
"""

import re

from markupsafe import Markup, escape

_LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eps": "ε",
    "zeta": "ζ", "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ",
    "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ",
    "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ",
    "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Omega": "Ω", "chi2": "χ²",
}  # fmt: skip
_OPERATORS = {
    "<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "+-": "±", "<~": "≲", ">~": "≳",
    "||": "‖", "==": "=",
}  # fmt: skip
_HAT = "\N{COMBINING CIRCUMFLEX ACCENT}"
_PRIME = "′"

_PRIMES = r"'+(?!s\b)"  # an apostrophe before an s is a genitive
_TOKEN = re.compile(
    rf"""
    `(?P<code>[^`]+)`
    | (?<![\w)\]}}|*'])'(?P<quoted>[^'\s][^']*)'(?!\w)
    | (?P<operator><=|>=|!=|->|\+-|<~|>~|\|\||==)
    | \b(?P<root>sqrt)\ ?(?=[(\w])
    | \b(?P<meet>cap)(?=\ [A-Z](?![a-z]))
    | \b(?P<gradient>grad)\ (?=[A-Zf](?![a-z]))
    | (?<![A-Za-z0-9_])
      (?:(?P<word>max|min|argmin|argmax|sup|inf|log|sum)(?=_)
        |(?P<greek>{"|".join(sorted(_LETTERS, key=len, reverse=True))})(?P<hat>hat)?
        |(?P<latin>[A-Za-z]))
      (?P<digits>\d+)?
      (?P<primes>{_PRIMES})?
      (?P<below>_(?:\{{[^{{}}]*\}}|[A-Za-z0-9]+)(?:{_PRIMES})?)?
      (?:(?<=[}}'])|(?![A-Za-z0-9_]))
    | (?<=[)|\]])_(?P<index>\{{[^{{}}]*\}}|[A-Za-z0-9]+)
    | \^(?P<power>\{{[^{{}}]*\}}|\((?:[^()]|\([^()]*\))*\)|[A-Za-z]+'*|\d+(?:\.\d+)?
          |-\d+(?:\.\d+)?(?!/|\.?\d)|\*)
    """,
    re.VERBOSE,
)


def typeset(text: str) -> Markup:
    """HTML of a claim: Greek letters, indices, powers, primes, roots and relations.
    What would be markup is escaped, text between backticks becomes code. A negative
    power before a slash, as in n^-1/2, could be read in two ways and is left alone."""
    pieces, end = [], 0
    for match in _TOKEN.finditer(text):
        pieces += [escape(text[end : match.start()]), _set(match)]
        end = match.end()
    return Markup("").join([*pieces, escape(text[end:])])


def _set(match: re.Match[str]) -> Markup:
    part = match.groupdict()
    if part["code"]:
        return Markup("<code>{}</code>").format(part["code"])
    if part["quoted"]:
        return Markup("‘{}’").format(typeset(part["quoted"]))
    if part["operator"]:
        return escape(_OPERATORS[part["operator"]])
    if part["root"]:
        return Markup("√")
    if part["meet"]:
        return Markup("∩")
    if part["gradient"]:
        return Markup("∇")
    if part["power"]:
        return Markup("<sup>{}</sup>").format(_inside(part["power"]))
    if part["index"]:
        return Markup("<sub>{}</sub>").format(_inside(part["index"]))
    return _symbol(part)


def _symbol(part: dict[str, str | None]) -> Markup:
    base = part["word"] or part["greek"] or part["latin"] or ""
    letter = _LETTERS.get(base, base) + (_HAT if part["hat"] else "")
    below = [part["digits"] or "", (part["below"] or "").removeprefix("_")]
    index = Markup(",").join(_inside(text) for text in below if text)
    primes = _PRIME * len(part["primes"] or "")
    return escape(letter + primes) + (
        Markup("<sub>{}</sub>").format(index) if index else ""
    )


def _inside(text: str) -> Markup:
    """What stands in an index or a power; braces only held it together."""
    if text.startswith("{"):
        text = text[1:-1]
    return typeset(text.replace("-", "−"))
