"""Cleanup policies: what failed and successful tries of an edge do to it."""

from __future__ import annotations

import abc
import copy
import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError

from .settings import MOST_STEPS, number, shortened, steps


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one edge from trying it.

    Attributes:
        successes: tries in which the edge's target was reached.
        failures: tries in which it was not.
        streak: failures since the last success.
        removed_at: which `record` call removed the edge (1 is the first ever made), or was the last one when it was
            removed by hand (0: there was none); None while it stands.
        guarded: the policy gave the edge up, but the guard kept it.
        spare: the edge is longer than those of its source's k nearest successors, but the guard or
            `memory.bridge` let it in.
    """

    successes: int = 0
    failures: int = 0
    streak: int = 0
    removed_at: int | None = None
    guarded: bool = False
    spare: bool = False

    @property
    def attempts(self) -> int:
        """Tries in all."""
        return self.successes + self.failures

    def asdict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return dataclasses.asdict(self)

    def after(self, reached: bool) -> Evidence:
        """The evidence after one more try."""
        if reached:
            return dataclasses.replace(self, successes=self.successes + 1, streak=0, guarded=False)
        return dataclasses.replace(self, failures=self.failures + 1, streak=self.streak + 1)


def expected_steps(
    weight: NDArray[Any], successes: NDArray[Any], failures: NDArray[Any], max_steps: float
) -> NDArray[np.float64]:
    """Expected steps to get through an edge that is tried until it works, each failure costing `max_steps`.

    With p the mean of Beta(1 + successes, 1 + failures), there are (1 − p) / p failures before the first success. An
    edge that was never tried has p = 1/2, so it is charged one failure: plans prefer edges known to work.
    """
    return np.asarray(weight + max_steps * (1.0 + failures) / (1.0 + successes), np.float64)


@dataclasses.dataclass(frozen=True)
class CleanupPolicy(abc.ABC):
    """Decides when an edge is given up and what the planner pays for it. Subclass it for a rule of your own.

    Prices matter to plans by distance; plans by hops count edges, and count one that only the guard keeps once more for
    each of its failures.

    Attributes:
        guard: never remove an edge whose loss would shrink the largest strongly connected component of the graph; such
            an edge is only re-priced, by `expected_steps`.
        spares: whenever the guard keeps an edge, let in another one: of the edges that the k-nearest filter left out,
            the shortest that would hold the component together in its place. Until it has been reached once, it does
            not count as holding anything.
        max_steps: MaxSteps, what a failed try costs, steps; None: 3 × MaxDist, as in the authors' code.
    """

    name: ClassVar[str] = ""

    guard: bool = False
    max_steps: float | None = None
    spares: bool = False

    def __post_init__(self) -> None:
        """Check the parameters and make NumPy scalars plain."""
        for name in ("guard", "spares"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise InputError(f"{name} is {getattr(self, name)!r}: expected True or False")
            object.__setattr__(self, name, bool(getattr(self, name)))
        if self.spares and not self.guard:
            raise InputError("spares is True without a guard: spares are let in where the guard keeps an edge")
        if self.max_steps is not None:
            object.__setattr__(self, "max_steps", steps("max_steps", self.max_steps, high=10 * MOST_STEPS))

    @abc.abstractmethod
    def gives_up(self, evidence: Evidence) -> bool:
        """Whether an edge with this evidence, the last try having failed, should be removed."""

    def price(self, weight: NDArray[Any], successes: NDArray[Any], failures: NDArray[Any]) -> NDArray[np.float64]:
        """What the planner pays for edges, steps: arrays of one shape in, the same shape out."""
        return np.asarray(weight, np.float64)

    def guarded_price(
        self, weight: NDArray[Any], successes: NDArray[Any], failures: NDArray[Any]
    ) -> NDArray[np.float64]:
        """What the planner pays for edges that only the guard keeps."""
        return expected_steps(weight, successes, failures, self.cost_of_failure)

    @property
    def cost_of_failure(self) -> float:
        """`max_steps`, once the memory has filled it in."""
        assert self.max_steps is not None
        return self.max_steps

    def bound_to(self, max_dist: float) -> CleanupPolicy:
        """This policy with `max_steps` filled in."""
        if self.max_steps is not None:
            return self
        bound = copy.copy(self)
        object.__setattr__(bound, "max_steps", 3.0 * max_dist)
        return bound

    def asdict(self) -> dict[str, Any]:
        """Name and parameters as JSON can hold them; the inverse of `policy_from_dict`."""
        return {"name": self.name or type(self).__name__, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class FirstFailure(CleanupPolicy):
    """The paper's rule (Sec. 4.3): an edge is removed when a try of it fails."""

    name = "first-failure"

    def gives_up(self, evidence: Evidence) -> bool:
        """Always: one failure is enough."""
        return True


@dataclasses.dataclass(frozen=True)
class SecondFailure(CleanupPolicy):
    """An edge is removed at its second failure without a success between."""

    name = "second-failure"

    def gives_up(self, evidence: Evidence) -> bool:
        """At two failures in a row."""
        return evidence.streak >= 2


@dataclasses.dataclass(frozen=True)
class Belief(CleanupPolicy):
    """A Beta(1 + successes, 1 + failures) posterior per edge.

    The planner pays the expected number of steps to get through an edge, and an edge is removed when the mean
    probability that it works falls under `threshold`.
    """

    name = "belief"

    threshold: float = 0.15

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        object.__setattr__(self, "threshold", number("threshold", self.threshold, high=1.0))

    def gives_up(self, evidence: Evidence) -> bool:
        """When the posterior mean is under the threshold."""
        return (1 + evidence.successes) / (2 + evidence.attempts) < self.threshold

    def price(self, weight: NDArray[Any], successes: NDArray[Any], failures: NDArray[Any]) -> NDArray[np.float64]:
        """Expected steps, see `expected_steps`."""
        return expected_steps(weight, successes, failures, self.cost_of_failure)


class ForeignPolicy(CleanupPolicy):
    """Stands for a policy that only its author has, in a memory that is only looked at."""

    def __init__(self, facts: dict[str, Any]) -> None:
        """Remember what the file says of it."""
        super().__init__()
        object.__setattr__(self, "facts", facts)

    def gives_up(self, evidence: Evidence) -> bool:
        """InputError: the rule is not in the file."""
        raise InputError("this memory was loaded without its cleanup policy: give it to load(), policy=…")

    def asdict(self) -> dict[str, Any]:
        """What the file says."""
        return dict(self.__dict__["facts"])


GUARDED = "guarded"  # short for FirstFailure(guard=True), what memories have unless they are told otherwise
POLICIES: dict[str, type[CleanupPolicy]] = {policy.name: policy for policy in (FirstFailure, SecondFailure, Belief)}


def make_policy(policy: str | CleanupPolicy) -> CleanupPolicy:
    """A policy from its name, or the policy itself."""
    if isinstance(policy, CleanupPolicy):
        return policy
    if policy == GUARDED:
        return FirstFailure(guard=True)
    if not isinstance(policy, str) or policy not in POLICIES:
        raise InputError(
            f"policy is {shortened(policy)}: expected one of {', '.join(map(repr, (GUARDED, *POLICIES)))}, or a "
            "CleanupPolicy object such as sgm.Belief(threshold=0.2, guard=True)"
        )
    return POLICIES[policy]()


def policy_from_dict(values: Any) -> CleanupPolicy:
    """Read what `asdict` wrote for one of the policies here; InputError if it is anything else."""
    parameters = dict(values) if isinstance(values, dict) else {}
    name = parameters.pop("name", None)
    if name not in POLICIES:
        raise InputError(
            f"the policy is {name!r}, not one of {', '.join(map(repr, POLICIES))}: give the policy object, policy=…"
        )
    parameters.setdefault("spares", False)  # files of 0.1.0 do not say
    if set(parameters) != {field.name for field in dataclasses.fields(POLICIES[name])}:
        raise InputError(f"the policy {name!r} has parameters {sorted(parameters)}")
    return POLICIES[name](**parameters)
