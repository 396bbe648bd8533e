"""A claim, the functions that put it to the test, and what a paper has wrong."""

import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np

from cfljax.statements.evaluation import Evaluation
from cfljax.statements.margin import Margin
from cfljax.statements.proofs import Step
from cfljax.statements.verdict import Status, Verdict

SEVERITIES = {  # of an erratum
    "A": "the statement is false",
    "B": "a step of the proof is false",
    "C": "a condition is missing",
    "D": "loose or vacuous",
    "E": "typographical",
}

FAULTS = {  # of a statement that is violated
    "printed": "false as printed",
    "reading": "false as read here: another reading is true",
    "misprint": "a misprint",
    "ours": "ours: the authors did not claim it",
}

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Preset:
    """How hard to try, and with which random numbers.

    Attributes:
      name: "quick" (seconds on two cores) or "full" (minutes).
      seed: at least 0; every check draws from streams of its own below it.
    """

    name: Literal["quick", "full"] = "quick"
    seed: int = 0

    def __post_init__(self):
        if self.name not in ("quick", "full"):
            raise ValueError(f'`name` must be "quick" or "full", got {self.name!r}.')
        if self.seed < 0:
            raise ValueError(f"`seed` must be at least 0, got {self.seed}.")

    def choose(self, *, quick: Value, full: Value) -> Value:
        """The value for this preset."""
        return quick if self.name == "quick" else full

    def generator(self, name: str, *indices: int) -> np.random.Generator:
        """A stream of random numbers that no other name or indices share."""
        branch = (zlib.crc32(name.encode()), *indices)
        return np.random.default_rng(
            np.random.SeedSequence(self.seed, spawn_key=branch)
        )


@dataclasses.dataclass(frozen=True)
class Erratum:
    """Something a paper has wrong, with the rows that show it.

    Attributes:
      id: dotted, such as "ifca.E1".
      paper: short name of the paper.
      place: where in the paper.
      severity: a letter of `SEVERITIES`.
      printed: what the paper says.
      correction: what holds instead.
      counterexample: what refutes it, with numbers.
      statements: ids of the rows that carry the evidence, at least one.
    """

    id: str
    paper: str
    place: str
    severity: Literal["A", "B", "C", "D", "E"]
    printed: str
    correction: str
    counterexample: str
    statements: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Statement:
    """One claim, where it stands, and the two functions that put it to the test.

    Attributes:
      id: dotted name that starts with the paper's, such as "ifca.lem1.bound". A
        corrected version of a false statement is a row of its own, `<id>.corrected`.
      paper: short name of the paper, such as "ifca".
      place: where the claim is made, such as "Lemma 1".
      text: the claim, in a line. Here and in all other prose formulas are LaTeX between
        dollar signs; what stands between backticks is code.
      preconditions: what the claim assumes, and the check therefore respects.
      constants: explicit values of the constants the paper leaves unnamed.
      expected: the verdict that the registry stands for.
      check: measures and judges; its verdict must be `expected`.
      control: the same check of a claim of which the opposite is known: one that is
        false, and must come out VIOLATED, or else the check could not have seen a
        violation; where VIOLATED is expected one that is true, and must come out
        HOLDS, or else the check would find fault with anything.
      fault: of a statement that is expected to be VIOLATED, a key of `FAULTS`.
      other_reading: id of the row with the reading that is true; for the fault
        "reading".
      proof: steps that prove the expected verdict for all parameters, checked by
        computer; a short written proof is its docstring.
      written_proof: a longer one, as Markdown with formulas between dollar signs: path
        of the file, from the folder of the paper unless it is absolute.
      proof_control: the same steps for a claim that is false, of which one must fail;
        several of them where a claim has several constants, one for each.
      evaluation: bound and truth at parameters of one's own.
      note: what is wrong, loose or remarkable about the claim, if anything.
      claimed: the paper's own constants, such as "c1, c2 > 0, unnamed".
      margins: by how much the preconditions are met where the check is made.
    """

    id: str
    paper: str
    place: str
    text: str
    check: Callable[[Preset], Verdict]
    control: Callable[[Preset], Verdict]
    expected: Status = Status.HOLDS
    fault: Literal["", "printed", "reading", "misprint", "ours"] = ""
    other_reading: str = ""
    proof: Callable[[], Sequence[Step]] | None = None
    proof_control: (
        Callable[[], Sequence[Step]] | Sequence[Callable[[], Sequence[Step]]] | None
    ) = None
    written_proof: str = ""
    evaluation: Evaluation | None = None
    preconditions: tuple[str, ...] = ()
    constants: Mapping[str, float] = dataclasses.field(default_factory=dict)
    note: str = ""
    claimed: str = ""
    margins: Callable[[], tuple[Margin, ...]] | None = None

    def __post_init__(self):
        if not self.id.startswith(f"{self.paper}."):
            raise ValueError(
                f"`id` must start with the paper's name and a dot, got {self.id!r} for "
                f"paper {self.paper!r}."
            )
        if self.fault and self.expected is not Status.VIOLATED:
            raise ValueError(
                f"`fault` is for statements that are expected to be violated, got "
                f"{self.fault!r} for {self.id}, expected {self.expected.value}."
            )
        if (self.fault == "reading") != bool(self.other_reading):
            raise ValueError(
                f"`other_reading` must name a row where `fault` is 'reading' and only "
                f"there, got {self.other_reading!r} for {self.id}."
            )
        if (self.proof is None) != (not self.proof_controls):
            raise ValueError(
                f"`proof` and `proof_control` must be given together, got one of "
                f"{self.id}."
            )

    @property
    def proof_controls(self) -> tuple[Callable[[], Sequence[Step]], ...]:
        """The steps for each false claim."""
        if self.proof_control is None:
            return ()
        if callable(self.proof_control):
            return (self.proof_control,)
        return tuple(self.proof_control)

    @property
    def prose(self) -> tuple[str, ...]:
        """Every text in which a formula may stand."""
        texts = [self.place, self.text, self.note, self.claimed, *self.preconditions]
        if self.evaluation is not None:
            texts += [self.evaluation.quantity, self.evaluation.note]
            texts += [one.meaning for one in self.evaluation.parameters]
            texts += [one.origin for one in self.evaluation.constants.values()]
        return tuple(texts)

    @property
    def control_expected(self) -> Status:
        """What the control must come out as."""
        violated = self.expected is Status.VIOLATED
        return Status.HOLDS if violated else Status.VIOLATED
