"""`sgm evaluate`: episodes of the agent and of its controller alone; results are stored after every part."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.benchmarks.provenance import provenance
from sgm.benchmarks.results import read_object, write_json
from sgm.benchmarks.threads import one_thread
from sgm.navigation import Recorder, wilson
from sgm.navigation.beside import FLOOR

from .environment import make_env
from .folder import Agent, cleanup_steps, evaluations
from .report import write_report
from .settings import EvaluateSettings, arguments
from .shown import keep_episodes, keep_floor, recorder

PART = 100  # episodes between two writes
AGENT, CONTROLLER = "agent", "controller alone"
_REMEDY = "remove the file to run the evaluation again"


def evaluate(
    folder: Path, settings: EvaluateSettings, *, command: str = "", resume: bool = True, progress: bool = True
) -> Path:
    """Run the missing episodes, print the results, write the report and return its path.

    Args:
        folder: folder of an agent.
        settings: settings of the evaluation. More episodes than before are added to the earlier ones; with any other
            change it is another evaluation, in another file.
        command: the command line, stored in the results.
        resume: keep the episodes that were already run.
        progress: show progress bars.
    """
    agent = Agent(folder)
    navigator = agent.require_controller("sgm evaluate")
    evaluations(agent.folder)  # a damaged file is reported before any work is done
    path = evaluation_file(agent, settings)
    kept = read_object(path, {"methods": {}}, _REMEDY) if resume else None
    methods: dict[str, Any] = {} if kept is None else kept["methods"]
    chosen = {AGENT: navigator, **({CONTROLLER: navigator.controller} if settings.controller else {})}
    env, options = make_env(settings.env, settings.envs, arguments(settings.env_arg))
    if not (agent.folder / FLOOR).exists():
        keep_floor(agent.folder, agent.memory, env)
    cleaned = cleanup_steps(agent.folder)
    recorded = recorder(agent, "evaluation", f"after {cleaned:,} cleanup steps" if cleaned else "")
    try:
        for name, who in chosen.items():
            watch = recorded if name == AGENT else None
            for result in _parts(name, who, env, options, methods, settings, progress, watch):
                keep_episodes(agent.folder, recorded)
                methods[name] = result
                write_json(path, {**about(agent, settings), **provenance(command), "methods": methods})
            print(line(name, methods[name]), flush=True)
    except sgm.InputError as error:
        raise sgm.InputError(str(error).replace("goal_from= names", "--goal-from NAME names")) from error
    finally:
        env.close()
    report = write_report(Path(folder))
    print(f"results: {path}\nreport: {report}")
    return report


def about(agent: Agent, settings: EvaluateSettings) -> dict[str, Any]:
    """Describe what is evaluated: environment, memory and settings, ready for JSON."""
    memory = agent.memory
    other = {} if settings.goal_from is None else {"goal_from": settings.goal_from}
    return {
        **other,
        "env": settings.env,
        "env_args": arguments(settings.env_arg),
        "seed": settings.seed,
        "max_steps": settings.max_steps,
        "cleanup_steps": cleanup_steps(agent.folder),
        "nodes": len(memory),
        "edges": len(memory.edges().source),
        "records": memory.records,
    }


def evaluation_file(agent: Agent, settings: EvaluateSettings) -> Path:
    """Path of the results of these settings for the current memory."""
    facts = about(agent, settings)
    code = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    name = re.sub(r"[^\w.-]+", "-", settings.env.removeprefix("gym:"))
    return agent.folder / "evaluations" / f"{name}-{code}.json"


def _parts(
    name: str,
    who: Any,
    env: Any,
    options: Any,
    methods: dict[str, Any],
    settings: EvaluateSettings,
    progress: bool,
    recorded: Recorder | None = None,
) -> Any:
    """Run episodes in parts, and yield the summary of all episodes after each; the first part is recorded."""
    known: dict[str, Any] = methods.get(name) or {}
    outcomes, steps, failures = (known.get(field) or [] for field in ("outcomes", "steps", "failures"))
    outcomes, seconds = list(outcomes), known.get("seconds_per_action") or 0.0
    tasks = options or [{}]
    while len(steps) < settings.episodes:
        done = len(steps)
        number = min(PART - done % PART, settings.episodes - done)
        turn = done % len(tasks)  # the task of episode i must not depend on where a part begins
        _seed_actions(who, settings.seed + done)
        with one_thread():
            found = sgm.evaluate(
                who,
                env,
                number,
                seed=settings.seed + done,
                options=[*tasks[turn:], *tasks[:turn]] if len(tasks) > 1 else None,
                max_steps=settings.max_steps,
                goal_from=settings.goal_from,
                recorder=recorded if not done else None,
                progress=progress,
            )
        seconds = (seconds * done + found.seconds_per_action * number) / (done + number)
        outcomes += ["01"[int(won)] for won in found.successes]
        steps, failures = [*steps, *found.steps.tolist()], [*failures, *found.failures.tolist()]
        yield _summary("".join(outcomes), steps, failures, seconds, [each.get("task_id") for each in tasks])
    if len(steps) > settings.episodes:
        print(f"{name}: {len(steps)} episodes were already run, and are kept")


def _seed_actions(who: Any, seed: int) -> None:
    """Reseed a controller that samples its actions, for each part."""
    controller = getattr(who, "controller", who)
    if isinstance(getattr(controller, "random", None), np.random.Generator):
        controller.random = np.random.default_rng(seed)


def _summary(outcomes: str, steps: list[int], failures: list[str], seconds: float, tasks: list[Any]) -> dict[str, Any]:
    won = outcomes.count("1")
    arrived = [taken for taken, outcome in zip(steps, outcomes, strict=True) if outcome == "1"]
    found: dict[str, Any] = {
        "episodes": len(outcomes),
        "successes": won,
        "success_rate": won / len(outcomes),
        "ci95": list(wilson(won, len(outcomes))),
        "mean_steps": float(np.mean(arrived)) if arrived else None,
        "reasons": {reason: failures.count(reason) for reason in dict.fromkeys(failures) if reason},
        "seconds_per_action": seconds,
        "outcomes": outcomes,
        "steps": steps,
        "failures": failures,
    }
    if len(tasks) > 1:
        parts = {str(task): outcomes[place :: len(tasks)] for place, task in enumerate(tasks)}
        found["by_task"] = {
            task: {"episodes": len(part), "successes": part.count("1")} for task, part in parts.items() if part
        }
    return found


def line(name: str, result: dict[str, Any]) -> str:
    """Format a result as one line."""
    low, high = result["ci95"]
    text = f"{name}: {result['success_rate']:.1%} of {result['episodes']} episodes [{low:.1%}, {high:.1%}]"
    if result["mean_steps"] is not None:
        text += f", {result['mean_steps']:.0f} steps to the goal"
    if result.get("by_task"):
        text += "; by task " + ", ".join(
            f"{task}: {each['successes']}/{each['episodes']}" for task, each in result["by_task"].items()
        )
    if result["reasons"]:
        text += "; failed: " + ", ".join(f"{number} {reason}" for reason, number in result["reasons"].items())
    return text
