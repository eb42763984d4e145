"""`sgm fit`: collect or read experience, learn distance and controller, build the memory, report; stages resume."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.benchmarks.plots import pyplot
from sgm.errors import MissingExtra

from . import shown
from . import source as sources
from .build import build
from .distance import distance_curve, distance_report
from .folder import CONTROLLER, DISTANCE, DISTANCES, MEMORY, Record, claim, load_distance, plain, require_claimable
from .report import keep_places, write_report
from .settings import FitSettings
from .source import Source


class Fit:
    """A fit in a folder; it resumes an earlier fit in the same folder."""

    def __init__(
        self,
        source: str,
        settings: FitSettings,
        out: Path,
        *,
        command: str = "",
        resume: bool = True,
        progress: bool = True,
    ) -> None:
        """Prepare the folder, after checking the source and the installation.

        Args:
            source: such as "gym:PointMaze_Large-v3", see `sgm.fit.source`.
            settings: settings of the fit.
            out: the folder of the agent.
            command: the command line, stored in the results.
            resume: resume the fit in the folder; otherwise remove its files.
            progress: show progress bars.
        """
        self.source: Source = sources.parse_source(source)
        self.settings, self.out, self.progress, self.begin = settings, Path(out), progress, time.monotonic()
        require_extras()
        require_device(settings.device)
        require_claimable(self.out, str(self.source), settings, resume)
        self.data = sources.open_source(self.source, settings, self.out, resume)
        claim(self.out, str(self.source), settings, resume)
        self.record = Record(self.out, command)

    def run(self) -> Path:
        """Run the stages that are not finished; return the path of the report."""
        data = self._experience()
        distance = self._distance(data)
        controller = self._controller(data)
        self._memory(data, distance, controller)
        keep_places(self.out, data)
        path = write_report(self.out)
        self.say(f"report: {path}")
        print(self._next_steps())
        return path

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        print(f"{time.monotonic() - self.begin:5.0f} s  {text}", flush=True)

    def _experience(self) -> sgm.Experience:
        with self._stage("experience", self.begin) as facts:
            data = self.data
            if data is None:
                data = sources.collect(self.source, self.settings, self.out, self.progress)
            found, known = _about(data), dict(facts)
            if differing := [name for name in found if name in known and known[name] != found[name]]:
                raise sgm.SGMError(
                    f"{self.source} has changed since the fit in {self.out} began ({', '.join(differing)} differ): "
                    "start over with --no-resume, or choose another folder with --out"
                )
            facts |= found
        self.say(str(data))
        return data

    def _distance(self, data: sgm.Experience) -> Any:
        kind = "regression" if self.settings.distance == "auto" else self.settings.distance
        if self._has("distance", DISTANCE):
            return load_distance(self.out, self.record.stages["distance"]["kind"])
        with self._stage("distance") as facts:
            distance = self._train(DISTANCES[kind][0], data, "distance")
            distance.save(self.out / DISTANCE)
            facts |= {"kind": kind, "noise": float(distance.noise), "far": float(distance.far)}
            facts["curve"] = distance_curve(data, distance, self.settings.seed)
            facts |= distance_report(data, distance, self.settings.seed)
        self.say(f"distance ({kind}): noise {distance.noise:.2f} steps, clipped at {facts['far']:.0f} steps")
        self._forget_checkpoint("distance")
        return distance

    def _controller(self, data: sgm.Experience) -> Any:
        from sgm.controllers.cloned import ClonedController

        if data.actions is None or not self.settings.controller:
            why = "it was switched off" if data.actions is not None else "the source has no actions"
            self.say(f"no controller, because {why}: the memory can be inspected and used for planning")
            return None
        if self._has("controller", CONTROLLER):
            return ClonedController.load(self.out / CONTROLLER)
        with self._stage("controller") as facts:
            controller = self._train("sgm.controllers.cloned", data, "controller")
            controller.save(self.out / CONTROLLER)
            facts |= {"kind": "cloned", "reach": controller.config.reach}
        self.say(f"controller (cloned): goals up to {controller.config.reach} steps ahead")
        self._forget_checkpoint("controller")
        return controller

    def _memory(self, data: sgm.Experience, distance: Any, controller: Any) -> None:
        if self._has("memory", MEMORY):
            return
        with self._stage("memory") as facts:
            choice = build(data, distance, controller, self.settings, self.progress)
            shown.decorate(choice.memory, data, choice.rows)
            if (entry := shown.where(data, self.source, self.settings)) is not None:
                facts["position"] = entry
            shown.keep_floor_of(self.out, choice.memory, self.source, self.settings)
            shown.keep_guarantee(self.out, choice.memory, lambda: data.observations[choice.rows])
            if choice.agent is None:
                choice.memory.save(self.out / MEMORY)
            else:
                choice.agent.save(self.out)
            stats = choice.memory.stats().asdict()
            facts |= plain({"settings": choice.memory.settings.asdict(), "why": choice.why, "stats": stats})
        self.say(str(choice.memory))
        for line in choice.why:
            print(f"         {line}")

    def _train(self, module: str, data: sgm.Experience, name: str) -> Any:
        more = {} if self.settings.iterations is None else {"iterations": self.settings.iterations}
        checkpoint = self.out / "checkpoints" / f"{name}.safetensors"
        checkpoint.parent.mkdir(exist_ok=True)
        return importlib.import_module(module).train(
            data,
            seed=self.settings.seed,
            device=self.settings.device,
            checkpoint=checkpoint,
            progress=self.progress,
            **more,
        )

    def _stage(self, name: str, begin: float | None = None) -> Any:
        """Context of a stage: yields its facts, which are stored at the end unless the stage is already finished.

        `begin` is the time at which its work began, if that was before this call.
        """
        if name in self.record.stages:
            return contextlib.nullcontext(dict(self.record.stages[name]))
        return self.record.stage(name, begin)

    def _has(self, stage: str, file: str) -> bool:
        """Whether a stage is finished; if its file is missing, the stage counts as not finished."""
        if stage in self.record.stages and not (self.out / file).is_file():
            del self.record.stages[stage]
        return stage in self.record.stages

    def _forget_checkpoint(self, name: str) -> None:
        (self.out / "checkpoints" / f"{name}.safetensors").unlink(missing_ok=True)

    def _next_steps(self) -> str:
        seen = self.record.stages["experience"]
        plan = f"sgm inspect {self.out}\n       sgm plan {self.out} START GOAL   ({self._ends(seen)})"
        if not (self.out / CONTROLLER).exists():
            return f"\nnext:  {plan}"
        env = self.source.env or "ID"
        cleanup = f"sgm cleanup {self.out} --env {env}"
        if self.source.kind == "gym" and seen["goals"] is None:
            return (
                f"\nObservations of {env} have no goals: sgm evaluate needs an environment whose observations or "
                f"info['goal'] have them, or --goal-from NAME.\nnext:  {plan}\n       {cleanup}"
            )
        return f"\nnext:  sgm evaluate {self.out} --env {env}\n       {cleanup}\n       sgm inspect {self.out}"

    def _ends(self, seen: dict[str, Any]) -> str:
        """Describe the START and GOAL that `sgm plan` accepts for this memory."""
        if len(seen["shape"]) > 1:
            return "node numbers, or image files"
        return "node numbers, or coordinates such as 3.5,-1" if seen["shape"] not in ([], [1]) else "node numbers"


def require_extras() -> None:
    """Raise MissingExtra if a required package is not installed, before any work is done."""
    for module in ("torch", "safetensors"):
        if importlib.util.find_spec(module) is None:
            raise MissingExtra("sgm fit", "learn", ModuleNotFoundError(name=module))
    pyplot()


def require_device(name: str) -> None:
    """Raise InputError if this machine does not have the device."""
    from sgm.learning.device import resolve_device

    resolve_device(name)


def _about(data: sgm.Experience) -> dict[str, Any]:
    some = np.unique(np.linspace(0, len(data) - 1, 100).astype(int))
    return {
        "digest": hashlib.sha256(np.ascontiguousarray(data.observations[some]).tobytes()).hexdigest()[:16],
        "source": data.source,
        "observations": len(data),
        "episodes": data.number_of_episodes,
        "shape": list(data.observations.shape[1:]),
        "dtype": str(data.observations.dtype),
        "actions": None if data.actions is None else list(data.actions.shape[1:]),
        "goals": None if data.achieved_goals is None else list(data.achieved_goals.shape[1:]),
    }
