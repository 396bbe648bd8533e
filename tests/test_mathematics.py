"""Claims in plain letters as mathematics: what is set, what is left alone, and that no
letter of any text of the theory is lost."""

import collections
import re
import xml.etree.ElementTree as ET

import pytest

from cfljax.statements.site import typeset
from cfljax.statements.site.mathematics import (
    ACCENTS,
    GREEK,
    RELATIONS,
    SIGNS,
    WORDS,
)
from theory.registry import all_errata, listed

FORMS = {
    "mfrac": "[{} / {}]",
    "msub": "{}_{{{}}}",
    "msubsup": "{}_{{{}}}^{{{}}}",
    "msup": "{}^{{{}}}",
    "mover": "{}{}",
}


def read(html: str) -> str:
    """What is set, in a line: formulas in angles, roots in square brackets, what is
    raised and lowered in curly ones."""
    root = ET.fromstring(f"<p>{html.replace('<wbr>', '')}</p>")

    def text(node: ET.Element) -> str:
        inside = [text(child) for child in node]
        if node.tag in FORMS:
            return FORMS[node.tag].format(*inside)
        tails = [child.tail or "" for child in node]
        whole = "".join(map("".join, zip(inside, tails, strict=True)))
        whole = (node.text or "") + whole
        around = {"math": "⟨{}⟩", "msqrt": "sqrt[{}]"}.get(node.tag, "{}")
        return around.format(whole)

    return text(root)


def letters(text: str) -> collections.Counter[str]:
    """Every letter and sign, symbols by their names; brackets, spaces and what only
    raises or lowers apart."""
    known = GREEK | RELATIONS | SIGNS | WORDS | ACCENTS
    names = {shown: name for name, shown in known.items()}
    names |= {"′": "'", "‖": "||", "‘": "'", "’": "'", "epsilon": "eps", "==": "="}
    for shown, name in names.items():
        text = text.replace(shown, name)
    return collections.Counter(re.sub(r"[][\s(){}⟨⟩_^`]", "", text))


def test_nothing_of_any_text_is_lost():
    texts = [
        text
        for row in listed()
        for text in (row.place, row.text, row.note, row.claimed, *row.preconditions)
    ]
    for erratum in all_errata():
        texts += [erratum.place, erratum.printed, erratum.correction]
        texts.append(erratum.counterexample)
    assert len(texts) > 2000
    for text in set(texts):
        assert letters(read(typeset(text))) == letters(text), text


def test_every_root_is_set():
    """None of any text stays a word, and what it holds is in it."""
    roots = 0
    for row in listed():
        for text in (row.text, row.note, row.claimed, *row.preconditions):
            html = str(typeset(text))
            written = len(re.findall(r"\bsqrt\b", text))
            assert html.count("<msqrt>") == written, text
            assert "sqrt" not in html.replace("msqrt", ""), text
            roots += written
    assert roots > 200


@pytest.mark.parametrize(
    "spoilt", ["<mi>c</mi>", '<mo form="infix">≤</mo>', "<mn>1</mn>"]
)
def test_a_lost_letter_is_seen(spoilt):
    """Control: a formula without one of its parts is not the text."""
    text = "theta_j* <= c1 sqrt(d/n')"
    html = str(typeset(text))
    assert letters(read(html)) == letters(text) and spoilt in html
    assert letters(read(html.replace(spoilt, "<mrow></mrow>"))) != letters(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("theta_j* <= c1", "⟨θ_{j}^{*}⟩⟨ ≤ c_{1}⟩"),
        ("E_i^{j,j'} -> 0", "⟨E_{i}^{j,j^{′}}⟩⟨ → 0⟩"),
        ("sqrt(d/n') != sqrt d", "⟨sqrt[[d / n^{′}]]⟩⟨ ≠ sqrt[d]⟩"),
        # All that a root holds is one fraction where it is divided once.
        ("sqrt(p_1 d / (m n'))", "⟨sqrt[[p_{1} d / m n^{′}]]⟩"),
        ("sqrt(2 sigma^2/(n_i T))", "⟨sqrt[[2 σ^{2} / n_{i} T]]⟩"),
        ("sqrt(max(1, A^2) V/T)", "⟨sqrt[[max(1, A^{2}) V / T]]⟩"),
        ("sqrt(M/min m_k)", "⟨sqrt[[M / min m_{k}]]⟩"),
        ("sqrt(x d / ((2 - x) p |M_t| n'))", "⟨sqrt[[x d / (2 − x) p |M_{t}| n^{′}]]⟩"),
        ("sqrt((a + b)/(2n))", "⟨sqrt[[a + b / 2n]]⟩"),
        ("sqrt((A + B)(C + D)/n)", "⟨sqrt[[(A + B)(C + D) / n]]⟩"),
        ("sqrt(a/b + c)", "⟨sqrt[[a / b] + c]⟩"),
        ("sqrt(a/b/c)", "⟨sqrt[a/b/c]⟩"),
        ("sqrt(a/b c)", "⟨sqrt[a/b c]⟩"),  # which is divided by b, or by b c
        ("sqrt(log k/n)", "⟨sqrt[log k/n]⟩"),
        ("sqrt(log(k)/n)", "⟨sqrt[[log(k) / n]]⟩"),
        ("sqrt((a/b + c)/n)", "⟨sqrt[([a / b] + c)/n]⟩"),  # not one in another
        ("e^{sqrt(d/n)}", "⟨e^{sqrt[d/n]}⟩"),
        ("|S_1 cap not S_1*| not A", "⟨|S_{1} ∩ not\u202fS_{1}^{*}|⟩ not A"),
        ("(alpha rho)^2 e^{-d/2}", "⟨(α ρ)^{2} e^{−d/2}⟩"),
        ("||X'eps||_op, X'X", "⟨‖X^{′}ε‖_{op}⟩, ⟨X^{′}X⟩"),
        ("thetahat_j and fbar", "⟨θˆ_{j}⟩ and ⟨f¯⟩"),
        ("|theta_j+ - theta_j*|^2", "⟨|θ_{j}^{+} − θ_{j}^{*}|^{2}⟩"),
        ("|e_j+| <= 2 m^-a", "⟨|e_{j}^{+}|⟩⟨ ≤ 2 m^{−a}⟩"),
        ("chi2_N", "⟨χ_{N}^{2}⟩"),
        ("grad F_i, grad f", "⟨∇F_{i}⟩, ⟨∇f⟩"),
        ("S_1 cap S_1* with a cap", "⟨S_{1} ∩ S_{1}^{*}⟩ with a cap"),
        ("max_j p_max over k", "⟨max_{j} p_{max}⟩ over ⟨k⟩"),
        ("sum_l N_lj e_lj", "⟨∑_{l} N_{lj} e_{lj}⟩"),
        ("log K^2 and log(NM/delta)", "⟨log K^{2}⟩ and ⟨log([NM / δ])⟩"),
        ("p in (0, 1), X in R^{N x d}", "⟨p⟩⟨ ∈ (0, 1)⟩, ⟨X⟩⟨ ∈ R^{N × d}⟩"),
        ("P(all heads) <= a", "⟨P⟩(all heads) ≤ a"),
        ("P(A | B) >= 1/(2 L)", "⟨P(A | B)⟩⟨ ≥ [1 / 2 L]⟩"),
        ("(sigma + tau)/n", "⟨[σ + τ / n]⟩"),
        ("I <= 1", "⟨I⟩⟨ ≤ 1⟩"),
        ("`theory check a_b`", "theory check a_b"),
        ("'a power of p', n'", "‘a power of ⟨p⟩’, ⟨n^{′}⟩"),
        ("a client's n's", "a client's ⟨n⟩'s"),
        ("a < b & c", "⟨a⟩⟨ < b⟩ & ⟨c⟩"),
        # What is divided is not clear, or too long to be stacked.
        ("log k/n", "⟨log k/n⟩"),
        ("d/n log k", "⟨d/n log k⟩"),
        ("a/b/c", "⟨a/b/c⟩"),
        ("(sigma + tau + 1)/n", "⟨(σ + τ + 1)/n⟩"),
        # Words, names, numbers, what could be read in two ways.
        ("What that is, a sum over all", "What that is, a sum over all"),
        ("num_clients snake_case float32", "num_clients snake_case float32"),
        ("n^-1/5 and 1e-6", "n^-1/5 and 1e-6"),
        ("graduate maximum alphabet", "graduate maximum alphabet"),
        ("sigma = Delta/10,000", "⟨σ⟩⟨ = Δ/10,000⟩"),
        ("24 (n, M) and f(n, M)", "24 ⟨(n, M)⟩ and ⟨f(n, M)⟩"),
        ("1/2 of 10 trials, 5 - 10", "1/2 of 10 trials, 5 - 10"),
        ("Assumption A4, Lemma 1, e.g. i.i.d.", "Assumption A4, Lemma 1, e.g. i.i.d."),
        ("k-means in two-dimensional space", "⟨k⟩-means in two-dimensional space"),
    ],
)
def test_claims_are_set(text, shown):
    assert read(typeset(text)) == shown


def test_a_line_can_be_broken_in_a_long_formula():
    text = "|theta_j+ - theta_j*| <= (1 - gamma p_j lambda) |theta_j - theta_j*| + c2 r"
    parts = typeset(text).split("<wbr>")
    assert len(parts) == 3 and all(part.startswith("<math>") for part in parts)
