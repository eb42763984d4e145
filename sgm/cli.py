"""The `sgm` command."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.memory.export import to_csv


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (sgm.SGMError, OSError) as error:
        print(f"sgm: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sgm: interrupted", file=sys.stderr)
        return 130
    return 0


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

    info = commands.add_parser("info", help="what a memory file holds")
    info.add_argument("file", type=Path, help="a memory file")
    info.add_argument("--json", action="store_true", help="as JSON instead of a table")
    info.set_defaults(run=_info)

    export = commands.add_parser("export", help="write a memory file's graph in another format")
    export.add_argument("file", type=Path, help="a memory file")
    export.add_argument(
        "--format", choices=["graphml", "csv"], default="graphml", help="graphml for Gephi, yEd, Cytoscape, NetworkX; "
        "csv for one line an edge (default: %(default)s)",
    )  # fmt: skip
    export.add_argument("--out", type=Path, help="file to write (default: the memory file's name, other ending)")
    export.add_argument("--unfiltered", action="store_true", help="the graph as before the k-nearest filter")
    export.set_defaults(run=_export)
    return parser


def _demo(options: argparse.Namespace) -> None:
    from sgm.experiments import demo

    demo.run(options.out, options.seed)


def _info(options: argparse.Namespace) -> None:
    facts = describe(options.file)
    if options.json:
        print(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def describe(path: Path) -> dict[str, Any]:
    """What a memory file holds, name by name."""
    memory = sgm.SparseGraphicalMemory.load(path, None)
    evidence = list(memory.tried().values())
    kept = memory.observations if memory.settings.keep_observations else None
    standing, before = len(memory.edges().source), len(memory.edges(filtered=False).source)
    removed = len(memory.removed().source)
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "observations given": len(memory.assignment),
        "nodes": len(memory),
        "edges": standing,
        "edges left out by the filter": before + removed - standing - removed,
        "edges removed by cleanup": removed,
        "largest connected part": memory.largest_part(),
        "embedding size": int(memory.embeddings.shape[1]),
        "feature size": int(memory.features.shape[1]),
        "observations kept": "no" if kept is None else f"{kept.dtype} {kept.shape[1:]}",
        "median edge weight": round(float(np.median(memory.edges().weight)), 3) if standing else None,
        "tries recorded": memory.records,
        "edges tried": len(evidence),
        "tries that succeeded": sum(item.successes for item in evidence),
        "tries that failed": sum(item.failures for item in evidence),
        "settings": memory.settings.asdict(),
        "cleanup policy": memory.policy.asdict(),
        "distance fingerprint": memory.fingerprint,
    }


def _export(options: argparse.Namespace) -> None:
    memory = sgm.SparseGraphicalMemory.load(options.file, None)
    out = options.out or options.file.with_suffix("." + options.format)
    if options.format == "csv":
        to_csv(memory, out, not options.unfiltered)
    else:
        memory.to_graphml(out, not options.unfiltered)
    edges = len(memory.edges(not options.unfiltered).source)
    print(f"wrote {len(memory)} nodes and {edges} edges to {out}")


if __name__ == "__main__":
    sys.exit(main())
