"""Numbers and tables as the tables of the paper print them: in columns for a terminal, or in Markdown for a page."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from sgm.errors import printable

from . import tables
from .tables import NONE, Cell, Pooled, Table


class Quoted(NamedTuple):
    """A number and its ±; None where there is none."""

    value: float
    spread: float | None = None

    def text(self, unit: str = " %", digits: int = 1) -> str:
        """As the paper prints it."""
        spread = "" if self.spread is None else f" ± {self.spread:.{digits}f}"
        return f"{self.value:.{digits}f}{spread}{unit}"


class Printed(NamedTuple):
    """A table of the paper.

    Attributes:
        title: what it shows.
        parts: tables, each with a heading unless that is empty.
        notes: what to know when reading it.
        sources: the run folders it is from and what made them.
    """

    title: str
    parts: Sequence[tuple[str, Table]]
    notes: Sequence[str]
    sources: Sequence[str]

    def console(self) -> str:
        """Columns of plain text, without anything that a terminal would obey."""
        blocks = [self.title]
        for heading, table in self.parts:
            blocks += [printable(heading), tables.columns(table)]
        # A line with a command is left whole, to be copied.
        notes = map(printable, self.notes)
        wrapped = [note if "`" in note else textwrap.fill(note, 120) for note in notes]
        blocks += ["\n".join(wrapped), "\n".join(map(printable, self.sources))]
        return "\n\n".join(block for block in blocks if block).replace("`", "")

    def markdown(self) -> str:
        """For a page, without the title."""
        blocks = []
        for heading, table in self.parts:
            blocks += [f"**{printable(heading)}**" if heading else "", tables.markdown(table)]
        blocks.append("\n".join(f"- {printable(line)}" for line in [*self.notes, *self.sources]))
        return "\n\n".join(block for block in blocks if block)


def cells(*texts: str) -> list[Cell]:
    """A line of a table."""
    return [Cell(text) for text in texts]


def success_text(item: Pooled | None) -> str:
    """Success of all episodes together and its interval."""
    return tables.plain(tables.success_cell(item))


def seeds_text(item: Pooled | None) -> str:
    """Mean over seeds and its standard error; one seed has none."""
    rates = [100 * row["successes"] / row["episodes"] for row in item.rows] if item else []
    if len(rates) < 2:
        return NONE
    return Quoted(statistics.mean(rates), statistics.stdev(rates) / math.sqrt(len(rates))).text()


def batch_text(item: Pooled | None) -> str:
    """Milliseconds per action: mean and standard deviation over seeds."""
    known = [row["seconds_per_action"] for row in item.rows] if item else []
    times = [1000 * seconds for seconds in known if seconds is not None]
    if not times:
        return NONE
    return number_text(statistics.mean(times)) + (f" ± {number_text(statistics.stdev(times))}" if times[1:] else "")


def episodes_text(item: Pooled | None) -> str:
    """How many seeds and episodes were pooled."""
    return tables.episodes_text(item) if item else NONE


def steps_text(steps: int | None) -> str:
    """A whole number of steps."""
    return tables.rounded(steps)


def number_text(value: float | None) -> str:
    """Two digits, or a whole number."""
    return NONE if value is None else f"{value:#.2g}" if value < 10 else f"{value:,.0f}"
