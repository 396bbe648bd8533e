"""LaTeX in prose as MathML and in plain letters: what is set, what stays as it is, that
every text of the theory can be read, and that what is no formula is refused."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

import cfljax as cfl
from cfljax.statements import check_formulas, plain, symbols, typeset
from cfljax.statements.formulas import left_side, mathml
from theory.registry import all_errata, listed


@pytest.fixture(scope="module")
def texts() -> dict[str, Sequence[str]]:
    """Every text of the theory that a formula may stand in, by what it belongs to."""
    found: dict[str, Sequence[str]] = {row.id: row.prose for row in listed()}
    for one in all_errata():
        found[one.id] = (one.place, one.printed, one.correction, one.counterexample)
    return found


# Every text, against what a reader must not see.


@pytest.mark.long
def test_every_formula_can_be_read(texts):
    assert len(texts) > 550
    for name, prose in texts.items():
        check_formulas(name, prose)


@pytest.mark.parametrize("spoilt", [r"$\frac{1}{x$", r"$\thetta$", "$x^a^b$"])
def test_a_formula_that_cannot_be_read_is_named(texts, spoilt):
    """Control: one broken formula among them all."""
    name = "ifca.lem1.bound"
    with pytest.raises(ValueError, match=rf"^{name}: a formula .* must be LaTeX"):
        check_formulas(name, [*texts[name], f"the claim {spoilt}"])


def test_no_formula_is_left_in_letters(texts):
    """No dollar, command, power or relation outside of a formula."""
    odd = re.compile(r"\$|\\[a-z]|[\w)][_^][\w{(]|<=|>=|->|\bsqrt\b|\w_\w+\*")
    names = re.compile(r"`[^`]*`|\b\w+(\.\w+)+|\b\w+/\S+")  # ids, files, code
    for name, prose in texts.items():
        for text in prose:
            outside = re.sub(r"(?<!\\)\$(?:\\.|[^$\\])+\$", "", text)
            assert not odd.search(names.sub("", outside)), (name, text)


def test_a_formula_in_letters_is_seen():
    """Control."""
    with pytest.raises(AssertionError, match="c_1"):
        test_no_formula_is_left_in_letters({"x": ("at most c_1 |x|",)})


# Single texts, against what they should read.


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"$|\theta_j - \theta_j^*| \le c_1 \sqrt{d/n'}$", "|θ_j − θ_j*| ≤ c₁√(d/n′)"),
        # What is divided stays together.
        (r"$\frac{a + b}{c}$", "(a + b)/c"),
        (r"$\frac{1}{2 L}$ and $\frac{1}{2} x$", "1/(2L) and (1/2)x"),
        (r"$\frac{a/b}{c} + \frac{(a + b)}{c}$", "(a/b)/c + (a + b)/c"),
        (r"$\frac{a}{b}^2$", "(a/b)²"),
        (r"$\sqrt 2 \ne \sqrt{\frac{d}{n}} \sqrt{n} \kappa$", "√2 ≠ √(d/n)√n κ"),
        (r"$\hat\theta_j^+, \bar F_0, \nabla \bar f_i$", "θ̂_j⁺, F̄₀, ∇f̄_i"),
        (r"$S_1 \cap \overline{S_1^*}$", "S₁ ∩ S̅₁*"),
        # Indices and powers end where they end.
        (r"$e^{-x} n^{-1/2} n^{-2}$", "e^(−x)n^(−1/2)n⁻²"),
        (r"$v_i v_{l-1} r^T |e_0|^2$", "v_i v_(l−1)r^T|e₀|²"),
        (r"$E_i^{j,j'} \kappa^{*2} m_{i,t}$", "E_i^(j,j′)κ*²m_(i,t)"),
        (r"$d \log^2 k/n + \max_j x$", "d log² k/n + max_j x"),
        (r"$\sum_{j \sim i} y_j$", "∑_(j∼i) y_j"),
        # Bars are brackets, signs stand apart or not.
        (r"$-x + ||a| - |b||^2$", "−x + ||a| − |b||²"),
        (r"$\|X' \varepsilon\|_{\mathrm{op}} \cdot |X|_F$", "‖X′ε‖_op · |X|_F"),
        (r"$P(A \mid B) = P(\text{not } A)$", "P(A | B) = P(not A)"),
        (r"$\langle \nabla F, e \rangle := \lfloor x \rfloor$", "⟨∇F, e⟩ ≔ ⌊x⌋"),
        (r"$x \in \mathbb{R}^{N \times d}$", "x ∈ ℝ^(N×d)"),
        (r"$\binom{m}{M}$", "(m over M)"),
        # Numbers as they come.
        ("$n = 1e-05$, $3.3e+07$, $60{,}000$, $5%$",
         "n = 10⁻⁵, 3.3 · 10⁷, 60,000, 5%"),
        # Prose and code stay as they are.
        ("|theta_1| <= c1, 5$ and 6$", "|theta_1| <= c1, 5$ and 6$"),
        (r"`a_b $x$` costs \$x$", "`a_b $x$` costs $x$"),
    ],
)  # fmt: skip
def test_plain_letters(text, shown):
    assert plain(text) == shown
    letters = re.sub(r"<[^>]*>|\s", "", typeset(text))
    assert ET.fromstring(f"<p>{typeset(text)}</p>").tag == "p"
    assert "\\" not in letters


def test_mathml_has_what_latex_says():
    html = mathml(r"|\theta_j^+| \le c_1 \sqrt{\frac{d}{n'}} \log m")
    bar = '<mo stretchy="false" form="{}">|</mo>'
    assert html == (
        f"<math>{bar.format('prefix')}<msubsup><mi>θ</mi><mi>j</mi><mo>+</mo></msubsup>"
        f'{bar.format("postfix")}<mo form="infix">≤</mo>'
        "<msub><mi>c</mi><mn>1</mn></msub>"
        "<msqrt><mfrac><mi>d</mi><msup><mi>n</mi><mi>′</mi></msup></mfrac></msqrt>"
        '<mspace width="0.167em"></mspace><mi>log</mi>'
        '<mspace width="0.167em"></mspace><mi>m</mi></math>'
    )
    assert mathml("x", display=True) == '<math display="block"><mi>x</mi></math>'


def test_html_is_escaped_and_code_is_code():
    assert typeset("a < b & `c_1 < 2`") == "a &lt; b &amp; <code>c_1 &lt; 2</code>"
    assert "&lt;" in typeset("$a < b$") and "<math>" in typeset("$a < b$")


def test_a_line_can_be_broken_in_a_long_formula():
    """Outside of brackets, unless what is in them is long itself."""
    text = (
        r"$|\theta_j^+ - \theta_j^*| \le (1 - \gamma p) |\theta_j - \theta_j^*| + "
        r"c \sigma \sqrt{d/n} + r$"
    )
    first, *others = typeset(text).split("<wbr>")
    assert first.endswith("|</mo></math>")
    assert [re.findall(r">([≤+])<", part)[0] for part in others] == ["≤", "+", "+"]
    inside = "+".join("a" * 9)
    assert "<wbr>" in typeset(f"$f({inside}+{inside}+{inside})$")
    assert "<wbr>" not in typeset(f"$f({inside})$")


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        (r"\frac{a", "braces do not match"),
        ("a } b", "braces do not match"),
        (r"\frac a", "something is missing"),
        (r"\nosuch x", r"\\nosuch is no command"),
        ("x_", "MissingSuperScriptOrSubscript"),
        ("a_b_c", "DoubleSubscripts"),
        ("a^^b", "raised or lowered twice"),
        (r"\left( a", "ExtraLeftOrMissingRight"),
    ],
)
def test_what_is_no_formula_is_refused(formula, reason):
    for read in (plain, typeset):
        with pytest.raises(ValueError, match=rf"must be LaTeX, got \$.*{reason}"):
            read(f"a ${formula}$")


def test_a_claim_that_cannot_be_read_is_refused_by_its_name():
    fields = {"bound": lambda n: n, "truth": lambda n: n, "grid": {"n": [1]}}
    with pytest.raises(ValueError, match=r"^mine\.a: a formula between dollar signs"):
        cfl.statements.claim(id="mine.a", text="$x_$", control=0.5, **fields)
    made = cfl.statements.claim(id="mine.a", text="x_ <= 1", control=0.5, **fields)
    assert made.evaluation is not None and made.evaluation.quantity == "x_"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (r"$P(x > t) \le 2 e^{-t}$", "$P(x > t)$"),
        (r"of $x$: $x \leq y \le z$", "of $x$: $x$"),
        ("P(any) <= n p", "P(any)"),
    ],
)
def test_the_left_side_is_a_text_again(text, left):
    assert left_side(text, "<=") == left


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("c1", "$c_{1}$"),
        ("c'", "$c'$"),
        ("alpha0", r"$\alpha_{0}$"),
        ("step_size", "step_size"),
        ("c3 of Lemma 2", "$c_{3}$ of Lemma 2"),
        ("rate of $p$", "rate of $p$"),
    ],
)
def test_names_of_constants_are_symbols(name, shown):
    assert symbols(name) == shown
