"""Two million tries and two hundred thousand observations into one live file: time a call and RAM have to stay flat.

The world is a square with so few places that no new node appears after the first pass over them.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from sgm.progress import progress_bar
from tests.torture.figures import MOST_VIOLATIONS, Child, Memory, Say, bytes_of, full_digest, scratch

ZEROS = ("differs", "errors", "left_behind")
_PLACES = 6000
_SIDE = 70.0  # about 2,000 nodes
_TENTHS = 10
CLOCKS = ("cpu", "wall")  # other processes slow down the second
_AT_ONCE = 200  # calls of one kind that are timed together at most


class Square:
    """Observations are points in a square, their own embeddings; steps are lengths."""

    fingerprint = "torture-square-1"

    def embed(self, observations: Any) -> np.ndarray:
        """(n, 2) points as they are."""
        return np.asarray(observations, np.float32)

    def __call__(self, starts: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """(n, 2) and (m, 2) points to (n, m) float32 steps."""
        ahead = goals - starts[:, None]
        return np.sqrt((ahead**2).sum(axis=-1))


def run(records: int = 2_000_000, adds: int = 200_000, seed: int = 0, progress: bool = False) -> dict[str, Any]:
    """Figures about a file that takes in so many tries and observations."""
    result: dict[str, Any] = {"records": records, "adds": adds, **dict.fromkeys(ZEROS, 0)}
    violations: list[str] = []
    bar = progress_bar(shown=progress, total=records + adds, desc="endurance", unit="call", unit_scale=True)
    with scratch(on_disk=True) as folder, bar:
        writer = Child(lambda say: _write(folder / "live.sgm", records, adds, seed, say))
        for line in iter(writer.hear, None):
            word, _, rest = line.partition(" ")
            if word == "calls":
                bar.update(int(rest))
            elif word == "result":
                result |= json.loads(rest)
            else:
                violations.append(f"errors: {line}")
        writer.end()
    result["errors"] = max(len(violations), int(writer.status != 0))
    return {**result, "violations": violations[:MOST_VIOLATIONS]}


def _write(path: Path, records: int, adds: int, seed: int, say: Say) -> None:
    """The life of the writer; it says the figures at the end."""
    random = np.random.default_rng(seed)
    places = random.uniform(0, _SIDE, (_PLACES, 2)).astype(np.float32)
    empty = bytes_of("VmRSS")
    memory = Memory.open(path, Square(), criterion="perceptual", tau_p=1.0, max_dist=2.5, policy="belief")
    memory.extend(places)
    load = Load(memory, places, random, say)
    tenths = [load.tenth(records // _TENTHS, adds // _TENTHS) for _ in range(_TENTHS)]
    found = full_digest(Memory.load(path, Square()))
    size = {"file_bytes_live": path.stat().st_size, "log_bytes_live": Path(f"{path}-wal").stat().st_size}
    figures = {**_summary(memory, tenths, empty), **size, "differs": int(found != full_digest(memory))}
    memory.close()
    figures["differs"] += int(full_digest(Memory.load(path, Square())) != full_digest(memory))
    left = sorted(os.listdir(path.parent)) != [path.name]
    say("result " + json.dumps({**figures, "file_bytes": path.stat().st_size, "left_behind": int(left)}))


class Load:
    """Calls of a memory, timed."""

    def __init__(self, memory: Memory, places: np.ndarray, random: np.random.Generator, say: Say) -> None:
        """Draw edges and places; some edges work always, some often, some hardly ever."""
        self.memory, self.places, self.random, self.say = memory, places, random, say
        edges = memory.edges(filtered=False)
        self.source, self.target = edges.source.tolist(), edges.target.tolist()
        self.works = random.choice([0.99, 0.6, 0.02], len(self.source), p=[0.8, 0.15, 0.05])

    def tenth(self, records: int, adds: int) -> dict[str, float]:
        """A tenth of all calls, tries and observations in turn: microseconds a call, and RAM afterwards, bytes."""
        spent = {"record": np.zeros(2), "add": np.zeros(2)}
        parts = max(1, -(-records // _AT_ONCE))
        for part in range(parts):
            tries = records * (part + 1) // parts - records * part // parts
            observations = adds * (part + 1) // parts - adds * part // parts
            spent["record"] += self._record(tries)
            spent["add"] += self._add(observations)
            self.say(f"calls {tries + observations}")
        figures: dict[str, float] = {"rss": bytes_of("VmRSS")}
        for name, number in (("record", records), ("add", adds)):
            for clock, seconds in zip(CLOCKS, spent[name], strict=True):
                figures[f"{name}_{clock}"] = 1e6 * seconds / max(1, number)
        return figures

    def _record(self, number: int) -> np.ndarray:
        """Seconds that so many calls of `record` take."""
        chosen = self.random.integers(len(self.source), size=number)
        reached = (self.random.random(number) < self.works[chosen]).tolist()
        record, source, target = self.memory.record, self.source, self.target
        start = _now()
        for edge, outcome in zip(chosen.tolist(), reached, strict=True):
            record(source[edge], target[edge], outcome)
        return _now() - start

    def _add(self, number: int) -> np.ndarray:
        """Seconds that so many calls of `add` take."""
        chosen = self.places[self.random.integers(len(self.places), size=number)]
        start = _now()
        for point in chosen:
            self.memory.add(point)
        return _now() - start


def _now() -> np.ndarray:
    """Seconds on both clocks."""
    return np.array([time.process_time(), time.perf_counter()])


def _summary(memory: Memory, tenths: list[dict[str, float]], empty: int) -> dict[str, Any]:
    """What the tenths show: ratios of the last to the second, and how RAM grew after the first three."""
    figures: dict[str, Any] = {}
    for name in ("record", "add"):
        for clock in CLOCKS:
            figures[f"{name}_microseconds_{clock}"] = [round(tenth[f"{name}_{clock}"], 1) for tenth in tenths]
            last, second = tenths[-1][f"{name}_{clock}"], tenths[1][f"{name}_{clock}"]
            figures[f"{name}_last_tenth_to_second_{clock}"] = round(last / second, 3)
    calls = memory.records + len(memory.assignment) - _PLACES
    grown = (tenths[-1]["rss"] - tenths[2]["rss"]) / (0.7 * calls)
    return figures | {
        "nodes": len(memory),
        "edges": len(memory._graph),
        "events_kept": len(memory._log) - memory._log.folded,
        "rss_bytes_by_tenth": [int(tenth["rss"]) for tenth in tenths],
        "rss_bytes_grown_a_call_after_three_tenths": round(grown, 2),
        "rss_bytes_of_an_empty_process": empty,
        "bytes_of_the_memory": memory.nbytes,
        "bytes_a_node": round(memory.nbytes / len(memory)),
        "peak_rss_bytes": bytes_of("VmHWM"),
    }
