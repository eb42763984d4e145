"""The command line, as a user calls it."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys

import networkx
import numpy as np
import pytest

import sgm
from sgm import cli
from sgm.benchmarks import BENCHMARKS, load
from sgm.benchmarks import options as options_of_runs
from sgm.cli import main
from tests.conftest import plane


@pytest.fixture
def saved(tmp_path):
    points, table = plane(80)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), lambda rows: points[rows], tau_p=1.0, max_dist=6.0)
    memory.extend(np.arange(80))
    memory.record(*(int(end[0]) for end in memory.edges()[:2]), False)
    memory.save(tmp_path / "m.sgm")
    return tmp_path / "m.sgm", memory


def test_info_shows_what_stats_says_and_where_it_came_from(saved, capsys):
    path, memory = saved
    assert main(["info", str(path)]) == 0
    shown = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert shown["nodes"].strip() == str(len(memory))
    assert shown["removed edges"].strip() == "1"
    assert "tau_a=5.0" in shown["settings"]
    loaded = sgm.SparseGraphicalMemory.load(path, None)  # one that grew holds room for more edges, so more bytes
    assert {name for name, value in loaded.stats().rows() if (name, value) not in memory.stats().rows()} <= {"bytes"}
    for name, value in loaded.stats().rows():
        assert shown[name].strip() == value
    assert main(["info", "--json", str(path)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["observations"] == 80
    assert facts["edges"] == len(memory.edges().source)
    before = len(memory.edges(filtered=False).source)
    assert facts["filtered_edges"] == before - facts["edges"]
    assert facts["fingerprint"] == memory.distance.fingerprint
    assert facts["file_bytes"] == path.stat().st_size


def test_info_warns_about_what_a_user_should_look_at(tmp_path, capsys):
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(np.full((3, 3), 50.0)))
    memory.extend(np.arange(3))
    memory.save(tmp_path / "m.sgm")
    assert main(["info", str(tmp_path / "m.sgm")]) == 0
    shown = capsys.readouterr().out
    assert "warning: nothing was merged" in shown and "warning: no edge can be used" in shown


@pytest.mark.parametrize("unfiltered", [False, True])
def test_export_writes_graphml_and_csv(saved, unfiltered, capsys):
    path, memory = saved
    more = ["--unfiltered"] if unfiltered else []
    edges = len(memory.edges(not unfiltered).source)
    assert main(["export", str(path), *more]) == 0
    assert networkx.read_graphml(path.with_suffix(".graphml")).number_of_edges() == edges
    assert main(["export", str(path), "--format", "csv", "--out", str(path.parent / "x.csv"), *more]) == 0
    lines = (path.parent / "x.csv").read_text().splitlines()
    assert lines[0] == "source,target,weight,attempts,successes,failures"
    assert len(lines) == edges + 1
    assert f"{edges} edges" in capsys.readouterr().out


def test_info_and_export_read_files_with_a_policy_of_ones_own(tmp_path, capsys):
    class Never(sgm.CleanupPolicy):
        def gives_up(self, evidence):
            return False

    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(np.zeros((3, 3))), criterion="none", policy=Never())
    memory.extend(np.arange(3))
    memory.save(tmp_path / "m.sgm")
    assert main(["info", str(tmp_path / "m.sgm")]) == 0
    assert "name=Never" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "m.sgm")]) == 0


def test_a_file_that_is_no_memory_is_a_clear_error_and_not_a_traceback(tmp_path):
    (tmp_path / "x.sgm").write_text("hello")
    done = subprocess.run(
        [sys.executable, "-m", "sgm", "info", str(tmp_path / "x.sgm")], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("sgm: ")
    assert "not a database" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_explains_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    for command in ("demo", "run", "table", "info", "check", "copy", "repair", "export"):
        assert command in shown


def test_the_demonstration_ends_with_a_plan_that_no_wall_blocks(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the demonstration draws")
    from sgm.benchmarks import demo
    from sgm.envs.point.mazes import load_maze

    assert main(["demo", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "edge removed" in shown
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads((tmp_path / "run.json").read_text())
    memory = sgm.SparseGraphicalMemory.load(tmp_path / "memory.sgm", None)
    maze = load_maze("FourRooms", resize=5, thin=True)
    places = demo.sample_positions(maze, 1500, 0)[memory.nodes]
    assert demo.first_blocked_leg(maze, places, np.array(facts["plan"]["nodes"])) is None
    assert len(memory.removed().source) >= 1


def test_the_demonstration_leaves_a_memory_to_look_at_and_says_how(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the demonstration draws")
    from sgm.navigation.beside import read_floor, read_guarantee

    assert main(["demo", "--out", str(tmp_path)]) == 0
    path = tmp_path / "memory.sgm"
    assert capsys.readouterr().out.rstrip().endswith(f"\nsgm inspect {path}")
    memory, floor = sgm.SparseGraphicalMemory.load(path, None), read_floor(path)
    assert memory.attributes["position"].shape == (len(memory), 2)
    assert floor.axes == "rc" and floor.lines.max() == 55 and len(floor.lines) > 10
    assert read_guarantee(path)["conditions"]["no edge has been removed by cleanup"] is False


def test_the_demonstration_without_matplotlib_says_so_before_it_works(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 2
    said = capsys.readouterr()
    assert "matplotlib" in said.err and "pip install" in said.err
    assert not said.out and not (tmp_path / "demo").exists()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_setting_of_a_benchmark_is_an_option_with_help_and_default(name, capsys):
    settings = load(name).settings
    with pytest.raises(SystemExit):
        main(["run", name, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for field in dataclasses.fields(settings):
        assert f"--{field.name.replace('_', '-')}" in shown
        assert field.metadata["help"] in shown
    for heading in ("what is run:", "evaluation:", "memory:", "training:", "folder:"):
        assert heading in shown
    assert "(default: 0)" in shown and "--no-resume" in shown and "--quick" in shown


def settings_of(*words):
    """The settings that a command line gives."""
    options = cli._parser(words).parse_args(words)
    return options_of_runs.read_settings(options.benchmark.settings, options.benchmark.quick, options)


def test_options_become_settings_of_their_types():
    found = settings_of("run", "doom", "--pretrained", "--seeds", "1", "2", "--size", "160", "120", "--tasks", "7")
    assert (found.pretrained, found.seeds, found.size, found.tasks, found.wad) == (True, (1, 2), (160, 120), 7, None)
    assert not settings_of("run", "doom", "--train").pretrained
    assert not settings_of("run", "point", "--thick").thin and settings_of("run", "point").thin
    assert settings_of("run", "doom", "--wad", "a.wad", "--retexture").retexture
    assert settings_of("run", "safety", "--workers", "2").workers == 2


def test_quick_budgets_give_way_to_what_is_given():
    found = settings_of("run", "point", "--quick", "--episodes", "3")
    assert found.episodes == 3 and found.cleanup_steps < load("point").settings().cleanup_steps


def test_help_loads_no_benchmark():
    probe = "import sys, sgm.cli; sgm.cli._parser(['info']); print('sgm.benchmarks.base' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_benchmark_whose_extra_is_missing_hides_no_other_one(tmp_path):
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['mujoco', 'OpenGL', 'threadpoolctl', 'vizdoom', 'cv2']))\n"
        "from sgm.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )

    def run(*arguments):
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    for name in ("point", "doom", "safety"):
        helped = run("run", name, "--help")
        assert helped.returncode == 0 and "--seeds" in helped.stdout, helped.stderr
    for name, module in (("safety", "mujoco"), ("doom", "vizdoom")):
        refused = run("run", name, "--quick", "--out", "out")
        missing = module if importlib.util.find_spec("torch") else "torch"  # networks come first
        assert refused.returncode == 2 and f"needs {missing}" in refused.stderr
        assert refused.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("point --seeds 0 -1", "seeds has -1: expected 0 or more"),
        ("point --maze-seed -1", "maze_seed is -1: expected 0 or more"),
        ("point --checkpoints 100 -5", "checkpoints has -5: expected 0 or more"),
        ("point --cleanup-steps -5", "cleanup_steps is -5: expected 0 or more"),
        ("point --resize 0", "resize is 0: expected 1 or more"),
        ("doom --maze-seed -1", "maze_seed is -1: expected 0 or more"),
        ("doom --maze-open 1.5", "open_share is 1.5: expected 0 to 1"),
        ("doom --network-seed -1", "network_seed is -1: expected 0 or more"),
        ("doom --size 0 0", "size is 0 × 0: expected 8 × 8 to 160 × 120 pixels"),
        ("safety --layouts -1", "layouts has -1: expected 0 or more"),
        ("safety --tasks 0", "tasks is 0: expected 1 or more"),
    ],
)
def test_numbers_out_of_range_are_refused_before_anything_is_written(words, said, tmp_path, capsys):
    name, *options = words.split()
    if name == "doom":
        pytest.importorskip("vizdoom")
    if name == "safety":
        pytest.importorskip("mujoco")
    assert main(["run", name, *options, "--quick", "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_negative_seed_of_the_demonstration_is_a_wrong_option(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--seed", "-1", "--out", str(tmp_path / "demo")])
    assert stopped.value.code == 2 and "argument --seed: '-1' is not a seed: give a whole" in capsys.readouterr().err


def test_settings_without_methods_or_seeds_are_refused():
    for name in ("seeds", "methods"):
        with pytest.raises(sgm.InputError, match=rf"{name} is \(\): expected 1 or more"):
            load("point").settings(**{name: ()})


def test_ctrl_c_while_benchmarks_are_loaded_is_told_in_a_line(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("sgm.benchmarks.load", interrupted)
    assert main(["run", "point"]) == 130
    assert capsys.readouterr().err == "sgm: interrupted\n"


def test_a_second_ctrl_c_does_not_change_the_exit_code():
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a test run in the background ignores it
        "from sgm import cli\n"
        "cli._demo = lambda options: os.kill(os.getpid(), signal.SIGINT)\n"
        "code = cli.main()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "demo"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "sgm: interrupted\n")


def test_the_help_of_safety_names_the_updates_that_its_networks_have_by_default():
    pytest.importorskip("torch")
    from sgm.controllers.proprioceptive import ProprioceptiveConfig
    from sgm.distances.bilinear import BilinearConfig
    from sgm.distances.vae import VAEConfig

    kinds = {"distance": BilinearConfig, "features": VAEConfig, "controller": ProprioceptiveConfig}
    said = {field.name: field.metadata["help"] for field in dataclasses.fields(load("safety").settings)}
    for name, kind in kinds.items():
        assert said[f"{name}_iterations"].endswith(f"(default: {kind().iterations})")
    assert ProprioceptiveConfig().model_iterations == 2 * ProprioceptiveConfig().iterations
