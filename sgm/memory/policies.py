"""Cleanup policies: when failed tries remove an edge, and what tries change about its cost."""

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
    """Outcomes of the tries of one edge, and its state.

    Attributes:
        successes: number of tries that reached the target of the edge.
        failures: number of tries that did not.
        streak: number of failures since the last success.
        removed_at: number of the try that removed the edge (1 is the first of the memory); for an edge removed by hand,
            the number of tries before (0: none). None if the edge is not removed.
        guarded: the policy gave the edge up, but the guard kept it.
        spare: the edge does not lead to one of the k nearest successors of its source, but was added by the guard or
            `memory.bridge`.
    """

    successes: int = 0
    failures: int = 0
    streak: int = 0
    removed_at: int | None = None
    guarded: bool = False
    spare: bool = False

    @property
    def attempts(self) -> int:
        """Number of tries."""
        return self.successes + self.failures

    def asdict(self) -> dict[str, Any]:
        """Return plain numbers, ready for JSON."""
        return dataclasses.asdict(self)

    def after(self, reached: bool) -> Evidence:
        """Return the evidence after one more try."""
        if reached:
            return dataclasses.replace(self, successes=self.successes + 1, streak=0, guarded=False)
        return dataclasses.replace(self, failures=self.failures + 1, streak=self.streak + 1)


def expected_steps(
    weight: NDArray[Any], successes: NDArray[Any], failures: NDArray[Any], max_steps: float
) -> NDArray[np.float64]:
    """Expected steps to follow an edge that is tried until it succeeds, if each failure costs `max_steps`.

    With p the mean of Beta(1 + successes, 1 + failures), (1 − p) / p failures are expected before the first success. An
    edge that was never tried has p = 1/2 and so the cost of one failure: plans prefer edges that are known to work.
    """
    return np.asarray(weight + max_steps * (1.0 + failures) / (1.0 + successes), np.float64)


@dataclasses.dataclass(frozen=True)
class CleanupPolicy(abc.ABC):
    """Decides when an edge is removed, and its cost for the planner. Subclass it for a rule of your own.

    Costs are used by plans by distance. Plans by hops count edges; an edge that only the guard keeps counts once more
    for each of its failures.

    Attributes:
        guard: never remove an edge whose loss would shrink the largest strongly connected component of the graph; such
            an edge only becomes more costly, see `expected_steps`.
        spares: whenever the guard keeps an edge, add a spare one: of the edges that the k-nearest filter left out, the
            shortest that would hold the component together instead. Until a try of it succeeds, a spare edge does not
            count as holding the component together.
        max_steps: MaxSteps, the cost of a failed try, steps; None: 3 × MaxDist, as in the authors' code.
    """

    name: ClassVar[str] = ""

    guard: bool = False
    max_steps: float | None = None
    spares: bool = False

    def __post_init__(self) -> None:
        """Check the parameters and convert NumPy scalars to Python values."""
        for name in ("guard", "spares"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise InputError(f"{name} is {getattr(self, name)!r}: expected True or False")
            object.__setattr__(self, name, bool(getattr(self, name)))
        if self.spares and not self.guard:
            raise InputError("spares is True without a guard: a spare edge is added when the guard keeps an edge")
        if self.max_steps is not None:
            object.__setattr__(self, "max_steps", steps("max_steps", self.max_steps, high=10 * MOST_STEPS))

    @abc.abstractmethod
    def gives_up(self, evidence: Evidence) -> bool:
        """Whether an edge with this evidence should be removed; it is called after a failed try."""

    def price(self, weight: NDArray[Any], successes: NDArray[Any], failures: NDArray[Any]) -> NDArray[np.float64]:
        """Cost of edges for the planner, steps; arguments and result are arrays of one shape."""
        return np.asarray(weight, np.float64)

    def guarded_price(
        self, weight: NDArray[Any], successes: NDArray[Any], failures: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Cost of edges that only the guard keeps, steps."""
        return expected_steps(weight, successes, failures, self.cost_of_failure)

    @property
    def cost_of_failure(self) -> float:
        """Cost of a failed try in steps, `max_steps`, which the memory has filled in by now."""
        assert self.max_steps is not None
        return self.max_steps

    def bound_to(self, max_dist: float) -> CleanupPolicy:
        """Return this policy with `max_steps` filled in."""
        if self.max_steps is not None:
            return self
        bound = copy.copy(self)
        object.__setattr__(bound, "max_steps", 3.0 * max_dist)
        return bound

    def asdict(self) -> dict[str, Any]:
        """Return name and parameters, ready for JSON; the inverse of `policy_from_dict`."""
        return {"name": self.name or type(self).__name__, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class FirstFailure(CleanupPolicy):
    """The paper's rule (Sec. 4.3): an edge is removed when a try of it fails for the first time."""

    name = "first-failure"

    def gives_up(self, evidence: Evidence) -> bool:
        """Return True: one failure is enough."""
        return True


@dataclasses.dataclass(frozen=True)
class SecondFailure(CleanupPolicy):
    """An edge is removed at the second failure in a row."""

    name = "second-failure"

    def gives_up(self, evidence: Evidence) -> bool:
        """Whether the last two tries failed."""
        return evidence.streak >= 2


@dataclasses.dataclass(frozen=True)
class Belief(CleanupPolicy):
    """A Beta(1 + successes, 1 + failures) posterior for each edge.

    The cost of an edge is the expected number of steps to follow it. An edge is removed when the mean probability that
    a try succeeds falls below `threshold`.
    """

    name = "belief"

    threshold: float = 0.15

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        object.__setattr__(self, "threshold", number("threshold", self.threshold, high=1.0))

    def gives_up(self, evidence: Evidence) -> bool:
        """Whether the posterior mean is below the threshold."""
        return (1 + evidence.successes) / (2 + evidence.attempts) < self.threshold

    def price(self, weight: NDArray[Any], successes: NDArray[Any], failures: NDArray[Any]) -> NDArray[np.float64]:
        """Expected steps to follow edges, see `expected_steps`."""
        return expected_steps(weight, successes, failures, self.cost_of_failure)


class ForeignPolicy(CleanupPolicy):
    """Placeholder for a user's own policy in a memory that was loaded without it; it cannot clean up."""

    def __init__(self, facts: dict[str, Any]) -> None:
        """Store the facts about the policy in the file."""
        super().__init__()
        object.__setattr__(self, "facts", facts)

    def gives_up(self, evidence: Evidence) -> bool:
        """Raise InputError: the rule is not in the file."""
        raise InputError("this memory was loaded without its cleanup policy: give it to load(), policy=…")

    def asdict(self) -> dict[str, Any]:
        """Return the facts about the policy in the file."""
        return dict(self.__dict__["facts"])


GUARDED = "guarded"  # short for FirstFailure(guard=True), the default policy of memories
POLICIES: dict[str, type[CleanupPolicy]] = {policy.name: policy for policy in (FirstFailure, SecondFailure, Belief)}


def make_policy(policy: str | CleanupPolicy) -> CleanupPolicy:
    """Return the policy with this name; a policy object is returned as it is."""
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
    """Make a policy of this package from the result of its `asdict`; InputError for anything else."""
    parameters = dict(values) if isinstance(values, dict) else {}
    name = parameters.pop("name", None)
    if name not in POLICIES:
        raise InputError(
            f"the policy is {name!r}, not one of {', '.join(map(repr, POLICIES))}: give the policy object, policy=…"
        )
    parameters.setdefault("spares", False)  # files of version 0.1.0 do not have it
    if set(parameters) != {field.name for field in dataclasses.fields(POLICIES[name])}:
        raise InputError(f"the policy {name!r} has parameters {sorted(parameters)}")
    return POLICIES[name](**parameters)
