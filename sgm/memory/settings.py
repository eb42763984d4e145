"""Settings of a memory: one frozen dataclass, checked when it is made, and stored in every file."""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Any

from sgm.errors import InputError

CRITERIA = ("two-way", "incoming", "outgoing", "perceptual", "uniform", "none")
MERGE = ("two-way", "incoming", "outgoing", "perceptual")  # the criteria by which observations are merged
SCOPES = ("neighbors", "memory")
MOST_STEPS = 1e30  # largest threshold, so that thresholds and sums of costs stay finite in single precision
MOST_COUNT = 2**31 - 1
BACKWARDS = 1.2  # factor on the weight of an edge followed backwards, with reversible=True
MOST_FACTOR = 1e6
_LATER = {"candidates": None, "approximate": False}  # settings that are stored only if they differ from these values


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings that determine the graph of a stream of observations.

    Attributes:
        criterion: when two observations become one node (Sec. 4.1 and the ablation in the paper).
        tau_a: threshold on C_in and C_out, steps (Eq. 3).
        tau_p: threshold of the perceptual pre-check in feature space (Eq. 4); infinity switches it off.
        max_dist: MaxDist, the longest edge, steps (Algorithm 1).
        k: successors kept for each node by the filter; None keeps all.
        scope: the nodes that ω and s0 range over: the "neighbors" of the candidate (authors' code; comparisons are
            strict) or the whole "memory" (Eq. 3; comparisons are not strict, as printed).
        size: number of nodes that the "uniform" criterion keeps.
        seed: seed of the "uniform" criterion.
        feature_average: how far a merge moves the feature of the node towards the new one (authors: 0.05; 0 is off).
        keep_observations: store the observation of each node, for figures and for controllers that need goal images.
        reversible: every edge can also be followed backwards, at its weight times this factor; None: edges backwards
            exist only if the distance or an episode makes them.
        candidates: an observation is compared only with this number of nodes, those with the nearest embeddings; None:
            with all nodes that can be within MaxDist, so that no edge is missed.
        approximate: the candidates are found by an approximate index (usearch), which may miss some of the nearest.
    """

    criterion: str = "two-way"
    tau_a: float = 5.0
    tau_p: float = 0.05
    max_dist: float = 10.0
    k: int | None = 5
    scope: str = "neighbors"
    size: int | None = None
    seed: int = 0
    feature_average: float = 0.0
    keep_observations: bool = False
    reversible: float | None = None
    candidates: int | None = None
    approximate: bool = False

    def __post_init__(self) -> None:
        """Check every field and convert NumPy scalars to Python values."""
        _one_of("criterion", self.criterion, CRITERIA)
        _one_of("scope", self.scope, SCOPES)
        self._set("tau_a", steps("tau_a", self.tau_a))
        self._set("tau_p", number("tau_p", self.tau_p))
        self._set("max_dist", steps("max_dist", self.max_dist))
        self._set("feature_average", number("feature_average", self.feature_average, high=1.0))
        self._set("seed", whole("seed", self.seed, 0, high=2**63 - 1))
        if self.k is not None:
            self._set("k", whole("k", self.k, 1, "; None keeps every edge", high=MOST_COUNT))
        if self.criterion == "uniform":
            what = ": the number of nodes that uniform subsampling keeps"
            self._set("size", whole("size", self.size, 1, what, high=MOST_COUNT))
        elif self.size is not None:
            raise InputError(
                f'size={shortened(self.size)} goes with criterion="uniform"; got criterion={self.criterion!r}'
            )
        if not isinstance(self.keep_observations, bool):
            raise InputError(f"keep_observations is {shortened(self.keep_observations)}: expected True or False")
        self._set("reversible", _factor(self.reversible))
        if not isinstance(self.approximate, bool):
            raise InputError(f"approximate is {shortened(self.approximate)}: expected True or False")
        if self.approximate and self.candidates is None:
            raise InputError("approximate=True goes with candidates=M, the number of nearest nodes to look for")
        if self.candidates is not None:
            self._set("candidates", whole("candidates", self.candidates, 1, "; None misses no edge", high=MOST_COUNT))
            merges = self.criterion in ("two-way", "incoming", "outgoing")
            if (
                (merges and not self.strict)
                or self.feature_average
                or (math.isinf(self.tau_p) and self.criterion in MERGE)
            ):
                raise InputError(
                    f"candidates={self.candidates} goes with scope='neighbors', a tau_p and no feature_average; got "
                    f"scope={self.scope!r}, tau_p={self.tau_p:g}, feature_average={self.feature_average:g}"
                )

    def _set(self, name: str, value: float | None) -> None:
        object.__setattr__(self, name, value)

    @property
    def strict(self) -> bool:
        """Whether thresholds are compared with < (authors' code) instead of ≤ (the paper's equations)."""
        return self.scope == "neighbors"

    def asdict(self) -> dict[str, Any]:
        """Return the settings, ready for JSON; the inverse of `fromdict`.

        `candidates` and `approximate` are left out if they are None and False, so that earlier versions can read the
        file.
        """
        values = {**dataclasses.asdict(self), "tau_p": None if math.isinf(self.tau_p) else self.tau_p}
        return {name: value for name, value in values.items() if name not in _LATER or value != _LATER[name]}

    @classmethod
    def fromdict(cls, values: Any) -> Settings:
        """Make settings from the result of `asdict`; InputError for anything else."""
        names = {field.name for field in dataclasses.fields(cls)}
        if isinstance(values, dict):
            values = {"reversible": None, **_LATER, **values}  # files of earlier versions do not have these settings
        if not isinstance(values, dict) or set(values) != names:
            raise InputError(f"settings are {values!r}: expected {', '.join(sorted(names))}")
        return cls(**{**values, "tau_p": off_is_infinite(values["tau_p"])})


def _factor(reversible: Any) -> float | None:
    """Return the factor on the weight of an edge followed backwards; True: `BACKWARDS`, False or None: None."""
    if reversible is None or isinstance(reversible, bool):
        return BACKWARDS if reversible else None
    factor = number("reversible", reversible, high=MOST_FACTOR)
    if factor < 1:
        raise InputError(f"reversible is {shortened(reversible)}: expected True, or a factor from 1 to {MOST_FACTOR:g}")
    return factor


def off_is_infinite(tau_p: float | None) -> float:
    """Return the threshold as a number: infinity for None, which means no perceptual check."""
    return math.inf if tau_p is None else tau_p


def _one_of(name: str, value: Any, accepted: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in accepted:
        raise InputError(f"{name} is {shortened(value)}: expected one of {', '.join(map(repr, accepted))}")


def number(name: str, value: Any, *, high: float = math.inf) -> float:
    """Return a number from 0 to `high` as a Python float; InputError for anything else."""
    try:
        plain = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        plain = math.nan
    if not 0 <= plain <= high:
        raise InputError(f"{name} is {shortened(value)}: expected a number from 0 to {high:g}")
    return plain


def steps(name: str, value: Any, *, high: float = MOST_STEPS) -> float:
    """Return a finite number of steps as a Python float; InputError for anything else."""
    if isinstance(value, float) and math.isinf(value):
        raise InputError(f"{name} is {value!r}: expected a finite number of steps, 0 or more")
    return number(name, value, high=high)


def whole(name: str, value: Any, low: int, more: str = "", *, high: int | None = None) -> int:
    """Return a whole number from `low` to `high` as a Python int; InputError for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < low:
        raise InputError(f"{name} is {shortened(value)}: expected a whole number, {low} or more{more}")
    if high is not None and int(value) > high:
        raise InputError(f"{name} is {shortened(value)}: expected a whole number, at most {high}{more}")
    return int(value)


def shortened(value: Any) -> str:
    """Format a value for an error message; long text is cut off."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return f"a whole number of about 2^{value.bit_length()}"
    try:
        text = repr(value)
    except ValueError:  # the value contains an integer with more digits than Python prints
        return f"a {type(value).__name__} too long to print"
    return text if len(text) <= 200 else text[:200] + "…"
