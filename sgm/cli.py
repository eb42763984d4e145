"""The `sgm` command."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sgm
from sgm.errors import printable
from sgm.memory.lock import real_path
from sgm.memory.stats import bytes_on_disk


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    options.command = shlex.join(["sgm", *given])
    try:
        return options.run(options) or 0
    except BrokenPipeError:  # whoever read what we print has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (sgm.SGMError, OSError) as error:
        return _complain(str(error), 2)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except MemoryError:
        return _complain("this takes more memory than the machine has", 2)
    except Exception as error:
        if os.environ.get("SGM_DEBUG"):
            raise
        text = f"{type(error).__name__}: {error}"
        return _complain(f"a mistake in sgm itself, please report it (SGM_DEBUG=1 shows where): {text}", 70)


def _complain(text: str, code: int) -> int:
    """Print an error, with whatever a file put into it escaped; the exit code."""
    print(f"sgm: {printable(text)}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sgm",
        description="Sparse Graphical Memory: a small, correct, self-repairing map for agents that plan from raw "
        "observations.",
    )
    parser.add_argument("--version", action="version", version=f"sgm {sgm.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="a first look: build, plan, cut edges, replan, draw; a few seconds")
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder to write to (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="which observations are made (default: %(default)s)")
    demo.set_defaults(run=_demo)

    run = commands.add_parser("run", help="a benchmark of the paper, from training to the report")
    environments = run.add_subparsers(required=True, metavar="ENVIRONMENT")
    _add_point(environments.add_parser("point", help="PointEnv: SoRB, SoRB + SGM and agents without a memory"))

    _add_doom(environments.add_parser("doom", help="ViZDoom: SPTM, SPTM + SGM and agents without a memory"))

    _add_safety(environments.add_parser("safety", help="SafetyGym: ConSPTM, ConSPTM + SGM and the merging criteria"))

    table = commands.add_parser("table", help="a table of the paper, ours beside the paper's")
    _add_table(table)

    _add_files(commands)
    return parser


def _add_files(commands: Any) -> None:
    """The commands about memory files."""
    info = commands.add_parser("info", help="what a memory file holds, and what in it to look at")
    info.add_argument("file", type=Path, help="a memory file; somebody may be writing it")
    info.add_argument("--json", action="store_true", help="as JSON instead of a table")
    info.set_defaults(run=_info)

    check = commands.add_parser("check", help="whether a memory file is whole, and what is wrong with it")
    check.description = (
        "Read every row of a memory file and say what is wrong. Exit code 0: the file is whole; 1: it is not. The file "
        "is not changed, and somebody may be writing it."
    )
    check.add_argument("file", type=Path, help="a memory file")
    check.set_defaults(run=_check)

    copy = commands.add_parser("copy", help="copy a memory file, also while it is being written")
    copy.description = (
        "A consistent copy of a memory file by SQLite's backup: what cp makes of a memory that is being written misses "
        "its write-ahead log. The copy appears complete or not at all."
    )
    copy.add_argument("file", type=Path, help="a memory file")
    copy.add_argument("to", type=Path, help="the copy")
    copy.add_argument("--force", action="store_true", help="replace a file that is there")
    copy.set_defaults(run=_copy)

    repair = commands.add_parser("repair", help="save what can be saved of a damaged memory file")
    repair.description = (
        "Write what can still be read of a damaged memory file to a new one, and say what was lost. The damaged file "
        "is not changed."
    )
    repair.add_argument("file", type=Path, help="a damaged memory file")
    repair.add_argument("--out", type=Path, required=True, metavar="NEW", help="the file to write")
    repair.set_defaults(run=_repair)

    export = commands.add_parser("export", help="write a memory file's graph in another format")
    export.add_argument("file", type=Path, help="a memory file")
    export.add_argument(
        "--format", choices=["graphml", "csv"], default="graphml", help="graphml for Gephi, yEd, Cytoscape, NetworkX; "
        "csv for one line an edge, and one line a node in NAME.nodes.csv (default: %(default)s)",
    )  # fmt: skip
    export.add_argument("--out", type=Path, help="file to write (default: the memory file's name, other ending)")
    export.add_argument("--unfiltered", action="store_true", help="the graph as before the k-nearest filter")
    export.set_defaults(run=_export)


def _add_point(parser: argparse.ArgumentParser) -> None:
    from sgm.benchmarks.point.benchmark import METHODS, PointSettings

    default = PointSettings()
    parser.description = (
        "Train a distance and a controller, build the memories, evaluate them before and after filtering, clean up, "
        "evaluate again, and write results.json, memories, weights, figures and report.html. A run that was "
        "interrupted goes on when the same command is given again."
    )
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", default=list(default.seeds), help="seeds to run (default: 0)")
    add("--methods", nargs="+", choices=METHODS, default=list(default.methods), metavar="METHOD",
        help=f"some of {', '.join(METHODS)} (default: {' '.join(default.methods)})")  # fmt: skip
    add("--episodes", type=int, help=f"evaluation episodes a seed (default: {default.episodes})")
    add("--cleanup-steps", type=int, help=f"environment steps of cleanup (default: {default.cleanup_steps})")
    add("--checkpoints", type=int, nargs="+", help="cleanup steps after which to evaluate (default: "
        + " ".join(map(str, default.checkpoints)) + ")")  # fmt: skip
    add("--buffer-size", type=int, help=f"observations to build from (default: {default.buffer_size})")
    add("--maze", default=default.maze, help="FourRooms, U, Tree, Spiral11, Random15, Random15+4, … or a text file "
        "with # for walls and . for free cells (default: %(default)s)")  # fmt: skip
    add("--maze-seed", type=int, default=0, help="which random maze (default: 0)")
    add("--resize", type=int, default=default.resize, help="inflate cells by this factor (default: %(default)s)")
    thickness = parser.add_mutually_exclusive_group()
    thickness.add_argument("--thin", action="store_true", default=True, help="walls one cell thick (default)")
    thickness.add_argument("--thick", dest="thin", action="store_false", help="walls inflated like free space")
    add("--difficulty", type=float, default=default.difficulty, help="goal distance as a share of the largest "
        "(default: %(default)s)")  # fmt: skip
    add("--criterion", default=default.criterion, help="merging criterion of sorb+sgm (default: %(default)s)")
    add("--policy", default=default.policy, help="cleanup policy: first-failure, second-failure or belief "
        "(default: %(default)s)")  # fmt: skip
    add(
        "--by",
        choices=["distance", "hops"],
        default=default.by,
        help="what plans minimise; sorb always counts hops (default: %(default)s)",
    )
    add("--agents", type=int, help=f"agents that clean at once (default: {default.agents})")
    add("--iterations", type=int, help=f"training iterations (default: {default.iterations})")
    add("--quick", action="store_true", help="tiny budgets, to see that everything works; results mean nothing")
    add("--out", type=Path, default=Path("runs/point"), help="folder to write to (default: %(default)s)")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="go on with what the folder holds")
    add("--no-progress", action="store_true", help="no progress bars")
    parser.set_defaults(run=_run_point)


def _run_point(options: argparse.Namespace) -> None:
    from sgm.benchmarks.point.benchmark import QUICK, PointRun, PointSettings

    settings = _settings(PointSettings, QUICK, options)
    progress = not options.no_progress
    PointRun(settings, options.out, command=options.command, resume=options.resume, progress=progress).run()


def _add_doom(parser: argparse.ArgumentParser) -> None:
    from sgm.benchmarks.doom.settings import METHODS, DoomSettings

    default = DoomSettings()
    parser.description = (
        "Explore a Doom maze at random, train a distance between pictures and a visual controller, build the memories, "
        "evaluate them, clean up, evaluate again, and write results.json, memories, weights, figures and report.html. "
        "Training takes about an hour on two cores; --pretrained takes the weights that come with the package. A run "
        "that was interrupted goes on when the same command is given again."
    )
    add = parser.add_argument
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument("--pretrained", action="store_true", help="use the weights that come with the package")
    weights.add_argument("--train", dest="pretrained", action="store_false", help="train from scratch (default)")
    add("--warm-start", action="store_true", help="train, but go on from the weights that come with the package: for "
        "other maps, with fewer iterations")  # fmt: skip
    add("--seeds", type=int, nargs="+", default=list(default.seeds), help="seeds to run (default: 0)")
    add("--methods", nargs="+", choices=METHODS, default=list(default.methods), metavar="METHOD",
        help=f"some of {', '.join(METHODS)} (default: {' '.join(default.methods)})")  # fmt: skip
    add("--maze-seed", type=int, default=default.maze_seed, help="which of our own mazes (default: 0)")
    add("--wad", help="a map of this WAD instead of one of our own mazes")
    add("--map", help="the map's name, for example MAP01 (default: the first one of the WAD)")
    add("--retexture", action="store_true", help="put a random texture on every wall side of that map, as SPTM does")
    add("--tasks", type=int, help=f"evaluation tasks of each level and seed (default: {default.tasks})")
    add("--cleanup-steps", type=int, help=f"environment steps of cleanup (default: {default.cleanup_steps})")
    add("--checkpoints", type=int, nargs="+", help="cleanup steps after which to evaluate (default: "
        + " ".join(map(str, default.checkpoints)) + ")")  # fmt: skip
    add("--engines", type=int, help=f"Doom engines at once (default: {default.engines})")
    add(
        "--size",
        type=int,
        nargs=2,
        metavar=("WIDTH", "HEIGHT"),
        help="of pictures (default: {} {})".format(*default.size),
    )
    add("--distance", choices=["contrastive", "closeness"], default=default.distance, help="contrastive, or the "
        "paper's closeness classifier (default: %(default)s)")  # fmt: skip
    add("--encoder", choices=["small", "resnet18"], default=default.encoder, help="a small residual net, or the "
        "paper's ResNet-18, which takes hours on a CPU (default: %(default)s)")  # fmt: skip
    add("--rollouts", type=int, help=f"random episodes to train on (default: {default.rollouts})")
    add("--distance-iterations", type=int, help=f"updates of the distance (default: {default.distance_iterations})")
    add("--controller-iterations", type=int,
        help=f"updates of the controller (default: {default.controller_iterations})")  # fmt: skip
    add("--network-seed", type=int, default=default.network_seed, help="seed of training (default: 0)")
    add("--quick", action="store_true", help="tiny budgets, to see that everything works; results mean nothing")
    add("--out", type=Path, default=Path("runs/doom"), help="folder to write to (default: %(default)s)")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="go on with what the folder holds")
    add("--no-progress", action="store_true", help="no progress bars")
    parser.set_defaults(run=_run_doom)


def _run_doom(options: argparse.Namespace) -> None:
    from sgm.benchmarks.doom.benchmark import DoomRun
    from sgm.benchmarks.doom.settings import QUICK, DoomSettings

    settings = _settings(DoomSettings, QUICK, options)
    progress = not options.no_progress
    DoomRun(settings, options.out, command=options.command, resume=options.resume, progress=progress).run()


def _add_safety(parser: argparse.ArgumentParser) -> None:
    from sgm.benchmarks.safety.settings import AGENTS, METHODS, POLICIES, SafetySettings

    default = SafetySettings()
    parser.description = (
        "Explore rooms at random, train a distance between pictures, features and a controller, build memories by each "
        "criterion, evaluate them, clean up, evaluate again, and write results.json, memories, weights, figures and "
        "report.html. Training takes about 15 minutes on two cores; --pretrained takes the weights that come with the "
        "package. A run that was interrupted goes on when the same command is given again."
    )
    add = parser.add_argument
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument("--pretrained", action="store_true", help="use the weights that come with the package")
    weights.add_argument("--train", dest="pretrained", action="store_false", help="train from scratch (default)")
    add("--layouts", type=int, nargs="+", default=list(default.layouts), help="which rooms, by seed (default: 0)")
    add("--seeds", type=int, nargs="+", default=list(default.seeds), help="seeds to run (default: 0)")
    for name, known, what in (
        ("methods", METHODS, "consptm is dense; the others name how observations are merged, both is two-way and "
         "perceptual together"),
        ("policies", tuple(POLICIES), "when cleanup removes an edge"),
        ("agents", AGENTS, "who is evaluated: the persistent one avoids what failed for the rest of an episode"),
    ):  # fmt: skip
        chosen = getattr(default, name)
        add(f"--{name}", nargs="+", choices=known, default=list(chosen), metavar=name.upper(),
            help=f"some of {', '.join(known)}: {what} (default: {' '.join(chosen)})")  # fmt: skip
    add("--nodes", type=int, help=f"of every sparse memory, about (default: {default.nodes})")
    add("--candidates", type=int, help=f"observations to build from (default: {default.candidates})")
    add("--tasks", type=int, help=f"evaluation episodes of each seed (default: {default.tasks})")
    add("--cleanup-steps", type=int, help=f"environment steps of cleanup (default: {default.cleanup_steps})")
    add("--checkpoints", type=int, nargs="+", help="cleanup steps after which to evaluate (default: "
        + " ".join(map(str, default.checkpoints)) + ")")  # fmt: skip
    add("--robots", type=int, help=f"robots at once (default: {default.robots})")
    add("--workers", type=int, help="processes that simulate them (default: one for each core)")
    add("--rollouts", type=int, help=f"random episodes to learn from (default: {default.rollouts})")
    for name in ("distance", "features", "controller"):
        add(f"--{name}-iterations", type=int, help=f"updates of the {name} (default: as many as make it good)")
    add("--quick", action="store_true", help="tiny budgets, to see that everything works; results mean nothing")
    add("--out", type=Path, default=Path("runs/safety"), help="folder to write to (default: %(default)s)")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="go on with what the folder holds")
    add("--no-progress", action="store_true", help="no progress bars")
    parser.set_defaults(run=_run_safety)


def _run_safety(options: argparse.Namespace) -> None:
    from sgm.benchmarks.safety.benchmark import SafetyRun
    from sgm.benchmarks.safety.settings import QUICK, SafetySettings

    settings = _settings(SafetySettings, QUICK, options)
    progress = not options.no_progress
    SafetyRun(settings, options.out, command=options.command, resume=options.resume, progress=progress).run()


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Assemble a table of the paper from run folders: 1 main results, 2 ViZDoom by level, 3 merging criteria in "
        "SafetyGym, 4 time per action. What no folder holds is a dash, with the command that makes it."
    )
    add = parser.add_argument
    add("number", nargs="?", type=int, choices=[1, 2, 3, 4], help="which one (default: all)")
    add("--runs", type=Path, nargs="+", metavar="FOLDER", help="folders to search for results.json, at any depth; the "
        "first that has a result gives it (default: runs if it has any, otherwise results)")  # fmt: skip
    add("--markdown", action="store_true", help="as Markdown instead of columns")
    add("--write", type=Path, metavar="FILE", help="make the tables of a Markdown page anew, each between "
        "<!-- table N --> and <!-- end --> (from results, unless --runs is given)")  # fmt: skip
    parser.set_defaults(run=_table)


def _table(options: argparse.Namespace) -> None:
    from sgm.benchmarks import paper

    if options.write:
        paper.write(options.write, options.runs)
        print(f"wrote the tables of {options.write}")
        return
    print(paper.show([options.number] if options.number else paper.TABLES, options.runs, options.markdown))


def _settings(kind: type[Any], quick: dict[str, Any], options: argparse.Namespace) -> Any:
    """The settings of a run: what was given, then tiny budgets if asked for, then the defaults."""
    given = {field.name: getattr(options, field.name, None) for field in dataclasses.fields(kind)}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    given = {name: value for name, value in given.items() if value is not None}
    return kind(**{**(quick if options.quick else {}), **given})


def _demo(options: argparse.Namespace) -> None:
    from sgm.benchmarks import demo

    demo.run(options.out, options.seed, options.command)


def _info(options: argparse.Namespace) -> None:
    memory = sgm.SparseGraphicalMemory.load(options.file, None)
    facts = describe(options.file, memory)
    if options.json:
        print(json.dumps(facts, indent=2))
        return
    stats = memory.stats()
    lines = [("file", _shown(facts["file"])), ("file bytes", f"{facts['file_bytes']:,}"), *stats.rows()]
    lines += [(name.replace("_", " "), _shown(facts[name])) for name in ("settings", "policy", "fingerprint")]
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:<{width}}  {value}")
    for text in stats.warnings:
        print(f"warning: {printable(text)}")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{name}={item}" for name, item in value.items())
    return printable(str(value))


def describe(path: Path, memory: sgm.SparseGraphicalMemory) -> dict[str, Any]:
    """What `memory.stats()` says and where the memory came from, name by name."""
    return {
        **memory.stats().asdict(),
        "file": str(path),
        "file_bytes": bytes_on_disk(path),
        "settings": memory.settings.asdict(),
        "policy": memory.policy.asdict(),
        "fingerprint": memory.fingerprint,
    }


def _check(options: argparse.Namespace) -> int:
    from sgm.memory.check import check

    verdict = check(options.file)
    for text in verdict.notes:
        print(f"note: {printable(text)}")
    for text in verdict.problems:
        print(f"damaged: {printable(text)}")
    if verdict.whole:
        print(f"{printable(str(options.file))} is whole")
        return 0
    print(f"save what can be saved with: sgm repair {shlex.quote(str(options.file))} --out NEW")
    return 1


def _copy(options: argparse.Namespace) -> None:
    from sgm.memory.store import copy

    source, target = real_path(options.file), real_path(options.to)
    if target.exists() and not options.force:
        raise sgm.SGMError(f"{options.to} is there already: choose another name, or replace it with --force")
    copy(source, target)
    print(f"copied {options.file} to {options.to}, {bytes_on_disk(target):,} bytes")


def _repair(options: argparse.Namespace) -> None:
    from sgm.memory.repair import repair

    result = repair(options.file, options.out, progress=True)
    kept = ", ".join(f"{number:,} {name}" for name, number in result.kept.items() if number)
    print(f"wrote {options.out}: {kept or 'an empty memory'}")
    for text in result.lost:
        print(f"lost: {printable(text)}")
    if not result.lost:
        print("nothing was lost")


def _export(options: argparse.Namespace) -> None:
    from sgm.memory.export import left_out

    memory = sgm.SparseGraphicalMemory.load(options.file, None)
    out = options.out or options.file.with_suffix("." + options.format)
    more = ""
    if options.format == "csv":
        more = f", and the nodes to {memory.to_csv(out, not options.unfiltered)}"
    else:
        memory.to_graphml(out, not options.unfiltered)
    edges = len(memory.edges(not options.unfiltered).source)
    print(f"wrote {len(memory)} nodes and {edges} edges to {out}{more}")
    if images := left_out(memory):
        print(f"left out, for they have too many numbers for this format: {', '.join(images)}")


if __name__ == "__main__":
    sys.exit(main())
