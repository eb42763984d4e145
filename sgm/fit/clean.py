"""`sgm cleanup`: test edges in an environment, in parts; an interrupted cleanup resumes after its last part."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.benchmarks.checks import COUNT
from sgm.benchmarks.provenance import provenance
from sgm.benchmarks.results import read_object, write_json
from sgm.benchmarks.seeds import Purpose, seed_for
from sgm.benchmarks.threads import one_thread
from sgm.distributed import Crew
from sgm.navigation import Cleaner, Recorder
from sgm.navigation.beside import FLOOR

from .environment import make_env
from .folder import BUILT, MEMORY, Agent
from .report import write_report
from .settings import CleanupSettings, arguments
from .shown import keep_episodes, keep_floor, keep_guarantee_of_built, recorder, update_guarantee

PART = 5_000  # environment steps between two writes
_REMEDY = "start over from the memory before cleanup with --no-resume"


def clean(
    folder: Path, settings: CleanupSettings, *, command: str = "", resume: bool = True, progress: bool = True
) -> Path:
    """Clean up the memory of an agent for `settings.steps` steps in total, write the report and return its path.

    The memory before cleanup is kept in `memory-built.sgm`.

    Args:
        folder: folder of an agent.
        settings: settings of the cleanup. More steps than before continue it; other changes are refused.
        command: the command line, stored in the results.
        resume: continue with the current memory; otherwise start over from the memory before cleanup. An earlier
            cleanup is replaced once the first part is finished.
        progress: show progress bars.
    """
    folder = Path(folder)
    anew = not resume and (folder / BUILT).is_file()
    # An earlier cleanup is kept until the first part of a new one is finished.
    state = _first_state(settings) if anew else _read_state(folder, settings)
    agent = Agent(folder, BUILT if anew else MEMORY)
    navigator = agent.require_controller("sgm cleanup")
    if state["done"] >= settings.steps:
        print(
            f"{state['done']:,} steps of cleanup are done: give more --steps to continue, or --no-resume to start over"
        )
        return write_report(folder)
    if not (folder / BUILT).is_file():
        keep_guarantee_of_built(folder)
        agent.memory.save(folder / BUILT)
    env, options = make_env(settings.env, _each(settings), arguments(settings.env_arg))
    navigator.clean = True
    if not (folder / FLOOR).exists():
        keep_floor(folder, agent.memory, env)
    recorded: Recorder | None = recorder(agent, "cleanup", f"after {state['done']:,} steps" if state["done"] else "")
    crew = None
    try:
        if settings.workers > 1:  # episodes of workers are not recorded
            recorded, crew = None, _crew(navigator, options, settings)
        while state["done"] < settings.steps:
            state = _part(navigator, crew or env, options, settings, state, progress, recorded)
            agent.memory.save(folder / _name(state["done"]))
            write_json(folder / "cleanup.json", {**provenance(command), **state})
            _take_over(folder, state["done"])
            update_guarantee(folder, agent.memory)
            if recorded is not None:
                keep_episodes(folder, recorded)
            recorded = None  # only the first part is recorded
            print(_line(state), flush=True)
    finally:
        env.close()
        if crew is not None:
            crew.close()
    report = write_report(folder)
    print(f"report: {report}")
    return report


def _part(
    navigator: sgm.Navigator,
    env: Any,
    options: Any,
    settings: CleanupSettings,
    state: dict[str, Any],
    progress: bool,
    recorded: Recorder | None = None,
) -> dict[str, Any]:
    """Clean up for one part, with new episodes; return the state after it."""
    done = state["done"]
    steps = min(PART, settings.steps - done)
    controller: Any = navigator.controller
    seed = seed_for([settings.seed, done], Purpose.CLEANUP)
    if isinstance(getattr(controller, "random", None), np.random.Generator):
        controller.random = np.random.default_rng(seed)
    cleaner: Cleaner | Crew
    with one_thread():
        if isinstance(env, Crew):
            cleaner = env
            cleaner.begin(seed)
        else:
            cleaner = Cleaner(navigator, env, seed=seed, recorder=recorded, **_how(options, settings))
        report = cleaner.run(steps, progress)
    memory = navigator.memory
    part = {
        "steps": done + report.steps,
        "episodes": report.episodes,
        "arrived": report.arrived,
        "removed": len(memory.removed().source),
        "edges": len(memory.edges().source),
        "largest_component": memory.largest_part(),
        "seconds": report.seconds,
    }
    return {**state, "done": done + report.steps, "parts": [*state["parts"], part]}


def _how(options: Any, settings: CleanupSettings) -> dict[str, Any]:
    return {"options": options, "goals": settings.goals, "episode_steps": settings.episode_steps}


def _each(settings: CleanupSettings) -> int:
    """Number of environments of each worker."""
    return -(-settings.envs // settings.workers)


def _crew(navigator: sgm.Navigator, options: Any, settings: CleanupSettings) -> Crew:
    make = functools.partial(_make_env, settings.env, _each(settings), arguments(settings.env_arg))
    how = _how(options, settings)
    return Crew(navigator, make, workers=settings.workers, backend=settings.backend, seed=settings.seed, **how)


def _make_env(name: str, number: int, given: dict[str, Any]) -> Any:
    return make_env(name, number, given)[0]


def _line(state: dict[str, Any]) -> str:
    part = state["parts"][-1]
    return (
        f"{part['steps']:,} steps: {part['arrived']} of {part['episodes']} goals reached, {part['removed']:,} edges "
        f"removed so far, {part['edges']:,} left"
    )


# -- the state ---------------------------------------------------------------------------------------------------


def _first_state(settings: CleanupSettings) -> dict[str, Any]:
    """Return the state before the first step."""
    mine = {name: value for name, value in dataclasses.asdict(settings).items() if name not in ("steps", "backend")}
    return {"done": 0, "settings": {**mine, "env_arg": list(settings.env_arg)}, "parts": []}


def _read_state(folder: Path, settings: CleanupSettings) -> dict[str, Any]:
    """Read the steps and parts done so far; SGMError if they were made with other settings."""
    first = _first_state(settings)
    mine = first["settings"]
    found = read_object(folder / "cleanup.json", {"done": COUNT, "settings": {}}, _REMEDY)
    if found is None:
        return first
    theirs = {"workers": 1, **(found.get("settings") or {})}
    if differing := [name for name in mine if theirs.get(name) != mine[name]]:
        raise sgm.SGMError(
            f"the memory in {folder} was cleaned with other settings ({', '.join(differing)} differ): give the same "
            "ones, or start over from the memory before cleanup with --no-resume"
        )
    _take_over(folder, found["done"])
    return {"done": found["done"], "settings": mine, "parts": found.get("parts") or []}


def _name(done: int) -> str:
    return f"memory-{done}.sgm"


def _take_over(folder: Path, done: int) -> None:
    """Rename the memory of a finished part to its final name; this also completes a part interrupted by a crash."""
    if (folder / _name(done)).is_file():
        (folder / _name(done)).replace(folder / MEMORY)
    for path in folder.glob("memory-[0-9]*.sgm"):
        path.unlink()
