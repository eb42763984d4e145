"""The `sgm` command."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sgm
from sgm.errors import printable
from sgm.fit import commands as fit_commands
from sgm.memory.lock import real_path
from sgm.memory.stats import bytes_on_disk


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = _parser(given).parse_args(fit_commands.readable(given))  # loads the benchmarks, which takes a second
        options.command = shlex.join(["sgm", *given])
        return options.run(options) or 0
    except BrokenPipeError:  # the reader of our output has closed it, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (sgm.SGMError, OSError) as error:
        return _complain(str(error), 2)
    except KeyboardInterrupt:
        if arguments is None:  # a second Ctrl-C while the interpreter shuts down would end it with another exit code
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _complain("interrupted", 130)
    except MemoryError:
        return _complain("this needs more memory than the machine has", 2)
    except Exception as error:
        if os.environ.get("SGM_DEBUG"):
            raise
        text = f"{type(error).__name__}: {error}"
        return _complain(f"an error in sgm itself, please report it (SGM_DEBUG=1 shows where): {text}", 70)


def _complain(text: str, code: int) -> int:
    """Print an error, with characters that cannot be printed escaped; return the exit code."""
    print(f"sgm: {printable(text)}", file=sys.stderr)
    return code


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """Make the parser of a command line; of `sgm run`, `sgm fit` and so on, only the given command gets its options."""
    parser = argparse.ArgumentParser(
        prog="sgm",
        description="Sparse Graphical Memory: a small, correct, self-repairing map for agents that plan from raw "
        "observations.",
    )
    parser.add_argument("--version", action="version", version=f"sgm {sgm.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="build a memory, plan, remove false edges, plan again, draw; a few seconds")
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder to write to (default: %(default)s)")
    demo.add_argument(
        "--seed", type=_seed, default=0, metavar="SEED", help="seed of the observations (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)

    run = commands.add_parser("run", help="run a benchmark, from training to the report")
    if "run" in given[:1]:
        _add_benchmarks(run)

    for name, command in fit_commands.add_commands(commands).items():
        if name in given[:1]:
            fit_commands.add_arguments(name, command)

    _add_inspect(commands)

    table = commands.add_parser("table", help="print a table of the paper together with our results")
    _add_table(table)

    combine = commands.add_parser("combine", help="combine the results of several run folders of one benchmark")
    _add_combine(combine)

    _add_files(commands)
    return parser


def _seed(text: str) -> int:
    """Parse a seed of the command line."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed: give a whole number, 0 or more")
    return int(text)


def _add_files(commands: Any) -> None:
    """Add the commands for memory files."""
    info = commands.add_parser("info", help="print the contents of a memory file, and warnings")
    info.add_argument("file", type=Path, help="a memory file; it may be open for writing in another process")
    info.add_argument("--json", action="store_true", help="as JSON instead of a table")
    info.set_defaults(run=_info)

    check = commands.add_parser("check", help="check whether a memory file is intact, and list errors")
    check.description = (
        "Read every row of a memory file and list all errors. Exit code 0: the file is intact; 1: it is not. The file "
        "is not changed, and another process may be writing it."
    )
    check.add_argument("file", type=Path, help="a memory file")
    check.set_defaults(run=_check)

    copy = commands.add_parser("copy", help="copy a memory file, even while it is being written")
    copy.description = (
        "Make a consistent copy of a memory file with SQLite's backup. A copy made with cp misses the write-ahead log "
        "of a memory that is being written. The copy appears complete or not at all."
    )
    copy.add_argument("file", type=Path, help="a memory file")
    copy.add_argument("to", type=Path, help="the copy")
    copy.add_argument("--force", action="store_true", help="replace an existing file")
    copy.set_defaults(run=_copy)

    repair = commands.add_parser("repair", help="recover a damaged memory file")
    repair.description = (
        "Write everything that can be read from a damaged memory file to a new one, and report what was lost. The "
        "damaged file is not changed."
    )
    repair.add_argument("file", type=Path, help="a damaged memory file")
    repair.add_argument("--out", type=Path, required=True, metavar="NEW", help="the file to write")
    repair.set_defaults(run=_repair)

    export = commands.add_parser("export", help="write a memory file's graph in another format")
    export.add_argument("file", type=Path, help="a memory file")
    export.add_argument(
        "--format",
        choices=["graphml", "csv"],
        default="graphml",
        help="graphml for Gephi, yEd, Cytoscape, NetworkX; csv with one line per edge, and one line per node in "
        "NAME.nodes.csv (default: %(default)s)",
    )
    export.add_argument("--out", type=Path, help="file to write (default: the memory file's name, other ending)")
    export.add_argument("--unfiltered", action="store_true", help="export the graph before the k-nearest filter")
    export.set_defaults(run=_export)


_INSPECT = """Open a page in the browser that shows a memory: its map, plans, why a plan is not shorter,
suspicious edges, and its history. The page is served on this machine only. It only reads the file,
which another process may be writing. Ctrl-C stops it.

The argument is a memory file (FILE.sgm), the folder of an agent (agent.save, sgm fit), or the
folder of a run (sgm run). For a run, the first sparse memory is shown and the others are listed.

The address may select a view: http://127.0.0.1:8460/#from=3&to=70 shows the plan from node 3 to
node 70."""


def _add_inspect(commands: Any) -> None:
    """Add the command that opens the inspector."""
    inspect = commands.add_parser("inspect", help="look at a memory in the browser: map, plans, suspicious edges")
    inspect.formatter_class = argparse.RawDescriptionHelpFormatter
    inspect.description = _INSPECT
    add = inspect.add_argument
    add("file", type=Path, metavar="FILE_OR_AGENT_OR_RUN", help="a memory file, agent folder or run folder")
    add(
        "second",
        type=Path,
        nargs="?",
        metavar="SECOND",
        help="a second memory of the same observations, to compare with",
    )
    add(
        "--port",
        type=int,
        metavar="N",
        help="port to listen on; 0: any free port (default: 8460, or any free port if it is taken)",
    )
    add(
        "--host",
        default="127.0.0.1",
        metavar="H",
        help="address to listen on; any other than %(default)s, the default, gives other machines access",
    )
    add("--no-browser", action="store_true", help="only print the address")
    add(
        "--write",
        action="store_true",
        help="allow the page to remove and restore edges; each change is an event in the file",
    )
    inspect.set_defaults(run=_inspect)


def _inspect(options: argparse.Namespace) -> None:
    from sgm.inspector.server import run

    run(
        options.file,
        options.second,
        port=options.port,
        host=options.host,
        browser=not options.no_browser,
        write=options.write,
    )


def _add_benchmarks(parser: argparse.ArgumentParser) -> None:
    """Add a command for each benchmark, with the options of its settings."""
    from sgm.benchmarks import BENCHMARKS, load
    from sgm.benchmarks.options import add_options

    benchmarks = parser.add_subparsers(required=True, metavar="BENCHMARK")
    for name in BENCHMARKS:
        benchmark = load(name)
        command = benchmarks.add_parser(
            name, help=f"{benchmark.label}: {benchmark.title}", usage=f"sgm run {name} [options]"
        )
        command.description = benchmark.description
        labels = {key: method.label for key, method in benchmark.methods.items()}
        command.epilog = (
            f"Methods: {'; '.join(key if key == text else f'{key}: {text}' for key, text in labels.items())}"
        )
        add_options(command, benchmark.settings, Path("runs") / name)
        command.set_defaults(run=_run, benchmark=benchmark)


def _run(options: argparse.Namespace) -> None:
    from sgm.benchmarks.engine import Run
    from sgm.benchmarks.options import read_settings

    benchmark = options.benchmark
    settings = read_settings(benchmark.settings, benchmark.quick, options)
    how = {"command": options.command, "resume": options.resume, "progress": not options.no_progress}
    Run(benchmark, settings, options.out, **how).run()


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Assemble a table of the paper from run folders: 1 main results, 2 ViZDoom by level, 3 merging criteria in "
        "SafetyGym, 4 time per action. Missing results are shown as a dash, with the command that produces them."
    )
    add = parser.add_argument
    add("number", nargs="?", type=int, choices=[1, 2, 3, 4], help="number of the table (default: all)")
    add(
        "--runs",
        type=Path,
        nargs="+",
        metavar="FOLDER",
        help="folders to search for results.json, at any depth; the "
        "first one with a result is used (default: runs if it has any, otherwise results)",
    )
    add("--markdown", action="store_true", help="as Markdown instead of columns")
    add(
        "--write",
        type=Path,
        metavar="FILE",
        help="update the tables of a Markdown page, each between "
        "<!-- table N --> and <!-- end --> (from results, unless --runs is given)",
    )
    parser.set_defaults(run=_table)


def _table(options: argparse.Namespace) -> None:
    from sgm.benchmarks import paper_tables

    if options.write:
        paper_tables.write(options.write, options.runs)
        print(f"wrote the tables of {options.write}")
        return
    numbers = [options.number] if options.number else paper_tables.TABLES
    print(paper_tables.show(numbers, options.runs, options.markdown))


def _add_combine(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Combine the rows of several run folders of one benchmark, for example seeds that were run on different "
        "machines, and write results.json, the figures and the report. Only settings that select a part of the "
        "benchmark may differ. A row that occurs more than once must have the same outcome everywhere. The results "
        "list the command of each part."
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a folder with results.json")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; may be one of the input folders")
    parser.set_defaults(run=_combine)


def _combine(options: argparse.Namespace) -> None:
    from sgm.benchmarks.combine import combine

    print(f"report: {combine(options.folders, options.out, options.command)}")


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
    """Describe a memory file: `memory.stats()`, size, settings, policy and fingerprint, by name."""
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
        print(f"{printable(str(options.file))} is intact")
        return 0
    print(f"recover what can be read with: sgm repair {shlex.quote(str(options.file))} --out NEW")
    return 1


def _copy(options: argparse.Namespace) -> None:
    from sgm.memory.store import copy

    source, target = real_path(options.file), real_path(options.to)
    if target.exists() and not options.force:
        raise sgm.SGMError(f"{options.to} already exists: choose another name, or replace it with --force")
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
        print(f"left out, because they have too many numbers for this format: {', '.join(images)}")


if __name__ == "__main__":
    sys.exit(main())
