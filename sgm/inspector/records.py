"""The files beside a memory file, for the page: floor plan, episodes and guarantee."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import SGMError, UnknownNode
from sgm.navigation.beside import Episode, Floor, read_episodes, read_floor, read_guarantee

from .view import REMOVED, View, drawn_at

NO_CERTIFICATE = (
    "There is no certificate for this memory. Benchmark runs and sgm fit write one (guarantee.json); "
    "memory.certificate(observations) computes it."
)
# Conditions of the certificate that can be checked with the memory file alone; see sgm.memory.certificate.
NO_FILTER = "no edge is left out by the k-nearest filter"
NO_REMOVAL = "no edge has been removed by cleanup"
ALL_MERGED = "every observation is a node or merged into one"


@dataclasses.dataclass
class Records:
    """The files beside a memory file; `problems` lists the files that could not be read, a sentence each."""

    floor: Floor | None = None
    episodes: list[Episode] = dataclasses.field(default_factory=list)
    guarantee: dict[str, Any] | None = None
    problems: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def read(cls, path: Path, nodes: int) -> Records:
        """Read the files beside the memory file `path` with this number of nodes."""
        records = cls()
        for name, read in (
            ("floor", lambda: read_floor(path)),
            ("episodes", lambda: read_episodes(path, nodes=nodes)),
            ("guarantee", lambda: read_guarantee(path)),
        ):
            try:
                setattr(records, name, read())
            except (SGMError, OSError) as error:
                records.problems.append(f"{str(error)[:300]}")
        return records

    @property
    def axes(self) -> str:
        """Axes of positions, see `Floor.axes`."""
        return "xy" if self.floor is None else self.floor.axes


def floor(records: Records) -> dict[str, Any] | None:
    """Lines of the walls, x to the right and y upwards; None if they are unknown."""
    if records.floor is None:
        return None
    lines = drawn_at(records.floor.lines.reshape(-1, 2), records.axes).reshape(-1, 4)
    return {"lines": np.round(lines, 4).tolist(), "unit": records.floor.unit}


# -- episodes ----------------------------------------------------------------------------------------------------


def episodes(view: View, records: Records) -> dict[str, Any]:
    """List the stored episodes."""
    listed = [
        {
            "id": number,
            "title": one.title,
            "kind": one.kind,
            "success": one.success,
            "reason": one.reason,
            "steps": len(one),
            "goal": _node(one.goal_node),
            "start": next((int(node) for node in one.nodes if node >= 0), None),
        }
        for number, one in enumerate(records.episodes)
    ]
    text = "" if listed else "This memory has no stored episodes: evaluation and cleanup write them (episodes.npz)."
    return {"version": view.version, "episodes": listed, "text": text}


def episode(view: View, records: Records, number: int) -> dict[str, Any]:
    """Describe an episode step by step."""
    one = _episode(records, number)
    places = drawn_at(one.positions, records.axes)
    happened = _happened(one)
    steps = [
        {
            "t": t,
            "position": _place(places[t]),
            "node": _node(one.nodes[t]),
            "waypoint": _node(one.waypoints[t]),
            "event": "; ".join(happened.get(t, [])),
            "image": f"/api/episode/{number}/image/{t}" if t in one.images else None,
        }
        for t in range(len(one))
    ]
    goal = None if one.goal_position is None else drawn_at(np.asarray(one.goal_position)[None, :2], records.axes)[0]
    return {
        "version": view.version,
        "id": number,
        "title": one.title,
        "text": _told(one),
        "success": one.success,
        "goal": {"node": _node(one.goal_node), "position": None if goal is None else _place(goal)},
        "steps": steps,
        "plans": [{"t": t, "nodes": list(nodes)} for t, nodes in one.plans],
        "gave_up": one.gave_up and {"t": one.gave_up[0], "edge": [_node(one.gave_up[1]), _node(one.gave_up[2])]},
    }


def episode_image(records: Records, number: int, step: int) -> NDArray[np.uint8] | None:
    """Observation image of the robot at a step; None if it was not stored."""
    return _episode(records, number).images.get(step)


def _episode(records: Records, number: int) -> Episode:
    if not 0 <= number < len(records.episodes):
        raise UnknownNode(f"there is no episode {number}: {len(records.episodes)} are stored, numbered from 0")
    return records.episodes[number]


def _happened(one: Episode) -> dict[int, list[str]]:
    """Describe the events at each step in words."""
    found: dict[int, list[str]] = {}
    for t, nodes in one.plans:
        found.setdefault(t, []).append(f"planned a path of {len(nodes)} nodes")
    for t in np.flatnonzero(np.diff(one.nodes)).tolist():
        if one.nodes[t + 1] >= 0:
            found.setdefault(t + 1, []).append(f"reached node {one.nodes[t + 1]}")
    for t, u, v in one.cuts:
        found.setdefault(t, []).append(f"edge {u}→{v} failed" if u >= 0 else f"node {v} was not reached")
    if one.gave_up:
        t, u, v = one.gave_up
        found.setdefault(t, []).append(f"gave up on edge {u}→{v}" if u >= 0 else f"gave up on the way to node {v}")
    elif one.success and len(one):
        found.setdefault(len(one) - 1, []).append("reached the goal")
    return found


def _told(one: Episode) -> str:
    plans = f"{len(one.plans)} plans" if len(one.plans) != 1 else "1 plan"
    cuts = f"{len(one.cuts)} edges failed" if len(one.cuts) != 1 else "1 edge failed"
    end = "reached its goal" if one.success else f"did not reach its goal ({one.reason or 'reason not stored'})"
    return f"The robot {end} after {max(0, len(one) - 1):,} steps; {plans}, {cuts}."


def _node(number: Any) -> int | None:
    return int(number) if number is not None and number >= 0 else None


def _place(xy: Any) -> list[float] | None:
    return [round(float(value), 4) for value in xy] if np.isfinite(xy).all() else None


# -- the guarantee -----------------------------------------------------------------------------------------------


def guarantee(view: View, records: Records) -> dict[str, Any]:
    """Describe the guarantee of Theorem 1 for this memory and its conditions; or why there is none."""
    known = records.guarantee
    now = _conditions_now(view)
    if known is None or known.get("applies") is None:
        text = NO_CERTIFICATE if known is None else str(known.get("reason", NO_CERTIFICATE))
        conditions = [_condition(name, holds, "") for name, holds in now.items()]
        return {"version": view.version, "holds": None, "conditions": conditions, "numbers": {}, "text": text}
    conditions, changed = [], []
    for name, holds in known["conditions"].items():
        if holds and not now.get(name, True):
            changed.append(name)
        conditions.append(_condition(name, bool(holds) and now.get(name, True), "no longer" if name in changed else ""))
    text = str(known["text"])
    if changed:
        text = (
            f"The memory has changed since the certificate was computed. No longer true: {'; '.join(changed)}.\n{text}"
        )
    holds = bool(known["applies"]) and not changed
    return {
        "version": view.version,
        "holds": holds,
        "conditions": conditions,
        "numbers": known["numbers"],
        "text": text,
    }


def _conditions_now(view: View) -> dict[str, bool]:
    return {
        ALL_MERGED: bool((view.memory.assignment >= 0).all()),
        NO_FILTER: bool(view.table.kept.all()),
        NO_REMOVAL: not bool((view.state == REMOVED).any()),
    }


def _condition(name: str, holds: bool, since: str) -> dict[str, Any]:
    no_longer = "held when the certificate was computed, and no longer does"
    text = {"": "holds" if holds else "does not hold", "no longer": no_longer}[since]
    return {"name": name, "holds": holds, "text": text}
