"""Numbers printed in the paper (Emmons et al., NeurIPS 2020), the one source for all tables and figures."""

from __future__ import annotations

from typing import Any, NamedTuple


class Quoted(NamedTuple):
    """A number and its ±, or None if the paper gives none."""

    value: float
    spread: float | None = None

    def text(self, unit: str = " %", digits: int = 1) -> str:
        """Format the number as the paper does."""
        spread = "" if self.spread is None else f" ± {self.spread:.{digits}f}"
        return f"{self.value:.{digits}f}{spread}{unit}"


class MainRow(NamedTuple):
    """A row of the paper's Table 1: success in percent, and the cleanup steps before it, None without cleanup."""

    benchmark: str
    method: str
    success: Quoted
    cleanup_steps: int | None


MAIN = (
    MainRow("point", "sorb", Quoted(28.0, 6.3), 400_000),
    MainRow("point", "sorb+sgm", Quoted(100.0, 0.1), 400_000),
    MainRow("doom", "sptm", Quoted(39.3, 4.0), None),
    MainRow("doom", "sptm+sgm", Quoted(60.7, 4.0), 114_000),
    MainRow("safety", "consptm", Quoted(68.2, 4.1), 1_000_000),
    # One row in the paper: its Table 3 says that it merges by two-way consistency, its appendix says by both criteria.
    MainRow("safety", "two-way", Quoted(92.9, 1.4), 1_000_000),
    MainRow("safety", "both", Quoted(92.9, 1.4), 1_000_000),
)
# Table 2 by method and cleanup steps: easy, medium, hard and overall, percent. The last row is from the appendix.
LEVELS = {
    ("random", 0): (58.0, 21.5, 12.0, Quoted(30.5)),
    ("controller", 0): (75.0, 34.5, 18.5, Quoted(42.7)),
    ("sptm", 0): (70.0, 34.0, 14.0, Quoted(39.3)),
    ("sptm+sgm", 54_000): (88.0, 52.0, 26.0, Quoted(55.3)),
    ("sptm+sgm", 114_000): (92.0, 64.0, 26.0, Quoted(60.7)),
    ("dense", 0): (75.0, 55.0, 35.0, Quoted(55.0, 6.4)),
}
# Table 3 by criterion: success without and with 1,000,000 steps of cleanup, percent.
ABLATION = {
    "uniform": (Quoted(31.2, 3.8), Quoted(64.6, 3.4)),
    "perceptual": (Quoted(31.8, 3.6), Quoted(77.0, 2.5)),
    "incoming": (Quoted(33.6, 3.1), Quoted(84.1, 2.0)),
    "outgoing": (Quoted(28.7, 3.2), Quoted(86.8, 2.9)),
    "two-way": (Quoted(38.2, 3.8), Quoted(92.9, 1.2)),
}
# Table 4: milliseconds to take an action, mean and standard deviation.
TIME = {"sorb": Quoted(550.0, 220.0), "sorb+sgm": Quoted(77.0, 4.0)}
# PointEnv without a memory: the paper's text says that these do not reach far goals, but gives no number.
NEAR_ZERO = ("d3pg", "ddpg+her", "sac+her")
POINT_ENVIRONMENT = "point:FourRooms-thin"  # name of the paper's PointEnv in results
# Prefixes of the names of the paper's environments, by benchmark; for PointEnv only the paper's maze.
ENVIRONMENTS = {"point": POINT_ENVIRONMENT, "doom": "doom:", "safety": "safety:"}
# Settings of the paper's PointEnv; runs with other values rank behind runs with these.
SETTINGS: dict[str, dict[str, Any]] = {
    "point": {"criterion": "two-way", "difficulty": 0.95, "resize": 5, "buffer_size": 1000}
}


def main_row(benchmark: str, method: str) -> MainRow | None:
    """Return the row of Table 1 for a method, if there is one."""
    return next((row for row in MAIN if (row.benchmark, row.method) == (benchmark, method)), None)


def doom_overall(method: str, steps: int) -> Quoted | None:
    """Overall success in ViZDoom after so many cleanup steps: Table 2, with the ± of Table 1 where that has one."""
    row = main_row("doom", method)
    if row and (row.cleanup_steps or 0) == steps:
        return row.success
    return LEVELS[method, steps][-1] if (method, steps) in LEVELS else None


def ablation(method: str) -> tuple[Quoted | None, Quoted | None]:
    """Success in SafetyGym without and with cleanup: Table 3, or Table 1 for methods that are not in Table 3."""
    row = main_row("safety", method)
    return ABLATION.get(method, (None, row.success if row else None))


def final(benchmark: str, method: str) -> tuple[tuple[int, float], ...]:
    """(cleanup steps, success from 0 to 1) of a method after the paper's longest cleanup; none without cleanup."""
    row = main_row(benchmark, method)
    return ((row.cleanup_steps, row.success.value / 100),) if row and row.cleanup_steps else ()
