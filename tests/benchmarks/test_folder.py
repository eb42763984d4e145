"""A run folder may be half-written, damaged or made to do harm: it is refused before anything in it is used."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest

import sgm
from sgm.benchmarks import load
from sgm.benchmarks import results as folders
from sgm.benchmarks.engine import Run
from sgm.benchmarks.results import read_arrays, read_json, write_json

needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
DAMAGED = {
    "empty": b"",
    "half": b'{"rows": [{"method": "so',
    "binary": b"\x00\xff\xfe\x80",
    "latin": '{"a": "é"}'.encode("latin-1"),
    "nan": b'{"rows": [NaN]}',
    "infinity": b'{"rows": 1e999}',
    "digits": b'{"rows": ' + b"9" * 5_000 + b"}",
    "nested": b'{"rows": ' + b"[" * 100 + b"]" * 100 + b"}",
    "deep": b"[" * 200_000,
}


def tree(root):
    """Every file below a folder with what it holds, and every link with where it leads."""
    return {
        str(path.relative_to(root)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def row(method="sorb", seed=0, **other):
    return {
        "environment": "point:FourRooms-thin",
        "method": method,
        "seed": seed,
        "phase": "initial",
        "cleanup_steps": 0,
        "episodes": 4,
        "successes": 2,
        "mean_steps": 50.0,
        "nodes": 20,
        "edges": 90,
        "seconds_per_action": 1e-4,
        **other,
    }


def memory():
    built = sgm.SparseGraphicalMemory(sgm.TableDistance(np.ones((3, 3))), criterion="none")
    built.extend(np.arange(3))
    return built


class Kept:
    """A run of one benchmark in `out` that has finished the first stage of one method."""

    def __init__(self, kind, out):
        self.out = out
        self.kind = kind
        self.home, self.rows = {
            "point": (out / "seed0" / "sorb", [row()]),
            "doom": (out / "seed0" / "ours", [row("ours")]),
            "safety": (
                out / "layout0" / "seed0" / "both" / "belief",
                [row("both", policy="belief", agent="plain", layout=0)],
            ),
        }[kind]
        self.home.mkdir(parents=True)
        self.open()
        memory().save(self.home / "memory-0.sgm")
        self.put()

    def put(self, **changes):
        state = {"rows": self.rows, "done": 0, "memory": "memory-0.sgm", **changes}
        self.state.write_text(json.dumps(state))

    @property
    def state(self):
        return self.home / "state.json"

    def open(self, resume=True, **hooks):
        """The run as the command makes it, with other functions in its declaration."""
        benchmark = dataclasses.replace(load(self.kind), **hooks)
        settings = benchmark.settings(methods=(self.rows[0]["method"],))
        return Run(benchmark, settings, self.out, resume=resume, progress=False)


@pytest.fixture(params=["point", "doom", "safety"])
def kept(request, tmp_path):
    if request.param == "doom":
        pytest.importorskip("vizdoom")
    return Kept(request.param, tmp_path / "run")


@pytest.fixture
def elsewhere(tmp_path):
    """A folder of somebody's that is none of the run's business."""
    outside = tmp_path / "elsewhere"
    for place in (outside, outside / "sorb", outside / "networks", outside / "both" / "belief"):
        place.mkdir(parents=True, exist_ok=True)
        memory().save(place / "memory-0.sgm")
        (place / "weights.safetensors").write_bytes(b"trained for weeks")
        (place / "state.json").write_text("{}")
        (place / "poses.npy").write_bytes(b"poses")
    return outside


def refuse(kept, root, said, resume=True):
    """The run is refused with these words, and no file anywhere has changed."""
    before = tree(root)
    with pytest.raises(sgm.SGMError, match=said):
        kept.open(resume)
    assert tree(root) == before


# -- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_named_with_what_to_do(tmp_path, damage):
    path = tmp_path / "some.json"
    path.write_bytes(damage)
    with pytest.raises(sgm.SGMError, match=r"some\.json is (empty|not JSON).*call a plumber"):
        read_json(path, "call a plumber")


def test_a_file_that_is_not_there_holds_nothing(tmp_path):
    assert read_json(tmp_path / "some.json") is None


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path):
    (tmp_path / "some.json").mkdir()
    with pytest.raises(sgm.SGMError, match="some.json cannot be read .it is a folder"):
        read_json(tmp_path / "some.json")


@needs_fifo
def test_a_fifo_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "some.json")
    with pytest.raises(sgm.SGMError, match="not a regular file"):
        read_json(tmp_path / "some.json")


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "some.json").symlink_to("some.json")
    with pytest.raises(sgm.SGMError, match="some.json cannot be read"):
        read_json(tmp_path / "some.json")


def test_a_file_too_large_for_a_run_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_MOST_BYTES", 10, raising=False)
    (tmp_path / "some.json").write_text('"0123456789"')
    with pytest.raises(sgm.SGMError, match="larger than 10 bytes"):
        read_json(tmp_path / "some.json")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"none"])
def test_damaged_arrays_are_named_with_what_to_do(tmp_path, content):
    (tmp_path / "some.npz").write_bytes(content)
    with pytest.raises(sgm.SGMError, match="some.npz cannot be read.*remove the file"):
        read_arrays(tmp_path, "some.npz")


def test_arrays_whose_compressed_bytes_are_damaged_are_named(tmp_path):
    np.savez_compressed(tmp_path / "some.npz", a=np.arange(10_000))
    content = bytearray((tmp_path / "some.npz").read_bytes())
    content[60:-200] = bytes(len(content) - 260)
    (tmp_path / "some.npz").write_bytes(content)
    with pytest.raises(sgm.SGMError, match="some.npz cannot be read"):
        read_arrays(tmp_path, "some.npz")


def test_arrays_that_lie_outside_of_the_run_are_not_read(tmp_path):
    np.savez(tmp_path / "secret.npz", a=np.arange(3))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "some.npz").symlink_to("../secret.npz")
    for name in ("some.npz", "../secret.npz"):
        with pytest.raises(sgm.SGMError, match="leads out of"):
            read_arrays(tmp_path / "run", name)


# -- writing -----------------------------------------------------------------------------------------------------


def test_a_file_is_on_disk_before_it_takes_its_place_and_its_name_afterwards(tmp_path, monkeypatch):
    order = []
    sync, replace = os.fsync, os.replace

    def spy_sync(descriptor):
        order.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        if order[-1] == "file":
            assert os.fstat(descriptor).st_size == len('{\n  "a": 1\n}\n')
        sync(descriptor)

    def spy_replace(*paths):
        order.append("replace")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", spy_sync)
    monkeypatch.setattr(os, "replace", spy_replace)
    write_json(tmp_path / "some.json", {"a": 1})
    assert order == ["file", "replace", "folder"][: 3 if hasattr(os, "O_DIRECTORY") else 2]


@pytest.mark.parametrize("name", ["some.json", "some.json.new", "some.json.{pid}.new"])
def test_a_link_planted_where_a_file_is_written_is_not_followed(tmp_path, name):
    (tmp_path / "secret").write_text("precious")
    (tmp_path / name.format(pid=os.getpid())).symlink_to("secret")
    write_json(tmp_path / "some.json", {"a": 1})
    assert (tmp_path / "secret").read_text() == "precious"
    assert not (tmp_path / "some.json").is_symlink() and read_json(tmp_path / "some.json") == {"a": 1}


def test_what_cannot_be_written_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path):
    write_json(tmp_path / "some.json", {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "some.json", {"a": float("nan")})
    with pytest.raises(ZeroDivisionError), folders.writing(tmp_path / "some.json") as file:
        file.write(b"half")
        _ = 1 / 0
    assert tree(tmp_path) == {"some.json": b'{\n  "a": 1\n}\n'}


# -- settings.json -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [*DAMAGED.values(), b"[]", b"null", b"3"], ids=[*DAMAGED, "list", "null", "number"])
def test_damaged_settings_are_named_with_what_to_do(tmp_path, damage):
    kept = Kept("point", tmp_path / "run")
    (kept.out / "settings.json").write_bytes(damage)
    refuse(kept, tmp_path, r"settings\.json .*remove the file.*--no-resume")
    (kept.out / "settings.json").unlink()
    kept.open()
    (kept.out / "settings.json").write_bytes(damage)
    kept.open(resume=False)
    assert not kept.state.exists() and read_json(kept.out / "settings.json")["maze"] == "FourRooms"


def test_settings_that_this_version_does_not_know_are_refused(tmp_path):
    kept = Kept("point", tmp_path / "run")
    settings = read_json(kept.out / "settings.json")
    write_json(kept.out / "settings.json", {**settings, "gravity": 9.81})
    refuse(kept, tmp_path, "unknown to this version")


@needs_fifo
def test_a_maze_that_only_the_settings_of_a_folder_name_is_compared_and_not_opened(tmp_path):
    kept = Kept("point", tmp_path / "run")
    os.mkfifo(tmp_path / "maze.txt")  # whoever opens it waits for ever
    settings = read_json(kept.out / "settings.json")
    write_json(kept.out / "settings.json", {**settings, "maze": str(tmp_path / "maze.txt")})
    refuse(kept, tmp_path, "other settings .maze differ")


@needs_fifo
@pytest.mark.parametrize("name", ["settings.json", "seed0/sorb/state.json", "seed0/weights.safetensors"])
def test_a_run_does_not_wait_for_a_fifo(tmp_path, name):
    kept = Kept("point", tmp_path / "run")
    path = kept.out / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for resume in (True, False):
        refuse(kept, tmp_path, f"{path.name} is neither a file nor a folder", resume)


@pytest.mark.parametrize("name", ["settings.json", "seed0/sorb/state.json"])
def test_a_folder_in_the_place_of_a_file_of_a_run_is_named(tmp_path, name):
    kept = Kept("point", tmp_path / "run")
    (kept.out / name).unlink()
    (kept.out / name).mkdir()
    for resume in (True, False):
        refuse(kept, tmp_path, "json is a folder, expected a file", resume)


# -- state.json --------------------------------------------------------------------------------------------------


def test_a_run_goes_on_from_its_own_state(kept):
    kept.open()
    assert kept.open().write_results() == kept.rows


@pytest.mark.parametrize("damage", [*DAMAGED.values(), b"[]", b"null", b"3"], ids=[*DAMAGED, "list", "null", "number"])
def test_a_damaged_state_is_named_with_what_to_do_and_resuming_goes_on_without_it(kept, damage, tmp_path):
    kept.state.write_bytes(damage)
    refuse(kept, tmp_path, r"state\.json .*remove the file, and this part of the run is made again.*--no-resume")
    kept.state.unlink()
    assert kept.open().write_results() == []
    kept.state.write_bytes(damage)
    kept.open(resume=False)
    assert not kept.state.exists()


@pytest.mark.parametrize(
    "name",
    [
        "../../elsewhere.sgm",
        "../../../elsewhere/memory-0.sgm",
        "/etc/passwd",
        "..",
        ".",
        "",
        "state.json",
        "memory-0.sgm/../../x",
        "sub/memory-0.sgm",
        "sub\\memory-0.sgm",
        "memory-.sgm",
        "memory--1.sgm",
        "memory-٣.sgm",
        "memory-0.sgm\n",
        "memory-0.sgm\0",
        "MEMORY.SGM",
        "memory.sgm-wal",
        7,
        None,
        ["memory-0.sgm"],
        {"memory": "memory-0.sgm"},
        "memory-" + "9" * 300 + ".sgm",
    ],
)
def test_a_memory_under_a_name_that_no_run_gives_is_refused(kept, elsewhere, tmp_path, name):
    memory().save(tmp_path / "elsewhere.sgm")
    kept.put(memory=name)
    refuse(kept, tmp_path, r"state\.json.*memory-NUMBER\.sgm.*--no-resume")


def test_a_memory_that_is_a_link_is_refused(kept, elsewhere, tmp_path):
    (kept.home / "memory-0.sgm").unlink()
    (kept.home / "memory-0.sgm").symlink_to(elsewhere / "memory-0.sgm")
    refuse(kept, tmp_path, "leads out of the run folder")
    (kept.home / "memory-0.sgm").unlink()
    memory().save(kept.out / "mine.sgm")
    (kept.home / "memory-0.sgm").symlink_to(kept.out / "mine.sgm")
    refuse(kept, tmp_path, "is a link")


@pytest.mark.parametrize("name", ["../../../elsewhere/memory-0.sgm", "/elsewhere/memory-0.sgm"])
def test_a_memory_elsewhere_is_neither_loaded_nor_moved_nor_removed(elsewhere, tmp_path, name):
    """The attack itself: a state that names a memory outside of the folder, in a run that has only cleanup left."""
    kept = Kept("point", tmp_path / "run")
    kept.put(memory=name.replace("/elsewhere", str(elsewhere)) if name[0] == "/" else name, done=10**6)
    before = tree(elsewhere)
    with pytest.raises(sgm.SGMError, match="state.json has memory"):
        kept.open(learn=lambda piece: (sgm.TableDistance(np.ones((3, 3))), None)).run()
    assert tree(elsewhere) == before


def test_a_memory_that_a_crash_has_lost_is_named_with_what_to_do(tmp_path):
    kept = Kept("point", tmp_path / "run")
    (kept.home / "memory-0.sgm").unlink()
    with pytest.raises(sgm.SGMError, match="memory-0.sgm is missing.*remove state.json.*--no-resume"):
        kept.open(learn=lambda piece: (None, None)).run()


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": None},
        {"rows": []},
        {"rows": {}},
        {"rows": "rows"},
        {"rows": [None]},
        {"rows": [[]]},
        {"rows": [{}]},
        {"done": None},
        {"done": "0"},
        {"done": -1},
        {"done": 0.5},
        {"done": True},
        {"done": []},
        {"done": 10**400},
    ],
    ids=str,
)
def test_a_state_that_lacks_something_is_refused(kept, tmp_path, changes):
    kept.put(**changes)
    refuse(kept, tmp_path, r"state\.json.*--no-resume")


HOSTILE = ["text", [], {}, True, -1, 0.5, 10**400, None, "\x1b[2J"]
ALLOWED = {  # values that are no harm in the place of these
    "environment": ["text", "\x1b[2J"],
    "agent": ["text", "\x1b[2J"],
    "phase": [],
    "mean_steps": [-1, 0.5, None],
    "nodes": [-1, 0.5, None],
    "edges": [-1, 0.5, None],
    "seconds_per_action": [-1, 0.5, None],
}


def test_every_field_of_a_row_is_checked(kept, tmp_path):
    for name in kept.rows[0]:
        for value in HOSTILE:
            if not any(value == fine and type(value) is type(fine) for fine in ALLOWED.get(name, [])):
                kept.put(rows=[{**kept.rows[0], name: value}])
                refuse(kept, tmp_path, rf"row 0 of .*state\.json has .*{name}.*--no-resume")


def test_rows_of_another_method_or_seed_are_refused(kept, tmp_path):
    for change in [{"method": "../../elsewhere"}, {"seed": 1}]:
        kept.put(rows=[{**kept.rows[0], **change}])
        refuse(kept, tmp_path, "as in the name of the folder")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(
            ("networks/quality.json", content)
            for content in [
                [],
                {"distance": []},
                {"distance": {"auc": "high"}},
                {"distance": {"precision": {"all": {}}}},
                {"controller": {"accuracy": [1]}},
                {"distance": {"calibration": {"medians": {"½": 1.0}}}},
            ]
        ),
        *(
            ("both/choice.json", content)
            for content in [
                [],
                {"settings": {}},
                {"settings": {}, "tried": 3},
                {"settings": [], "tried": []},
                {"tried": []},
                {"settings": {}, "tried": [], "nodes": "many"},
            ]
        ),
    ],
)
def test_what_else_results_are_gathered_from_is_named_if_it_is_damaged(tmp_path, name, content):
    kept = Kept("safety", tmp_path / "run")
    path = kept.out / "layout0" / "seed0" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    with pytest.raises(sgm.SGMError, match=rf"{path.name} .*remove (the file|it and built.sgm)"):
        kept.open().write_results()


# -- links, and what --no-resume removes -------------------------------------------------------------------------


EVERY_RUN = ("settings.json", "results.json", "report.html", "figures")


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "seed0",
        "seed7",
        "seedling",
        "layout0",
        "layout0/seed0",
        "networks",
        "figures",
        "report.html",
        "results.json",
        "settings.json",
        "map.wad",
        "seed0/poses.npy",
        "seed0/weights.safetensors",
    ],
)
def test_links_that_lead_out_of_the_folder_are_refused(kept, elsewhere, tmp_path, name, resume):
    path = kept.out / name
    path.parent.mkdir(exist_ok=True, parents=True)
    if path.is_file():
        path.unlink()
    elif path.is_dir():
        path.rename(tmp_path / "aside")
    path.symlink_to(elsewhere / "weights.safetensors" if path.suffix else elsewhere)
    top = Path(name).parts[0]
    if any(fnmatch(top, pattern) for pattern in (*EVERY_RUN, *load(kept.kind).held)):
        refuse(kept, tmp_path, f"{path.name} leads out of the run folder", resume)
    else:  # another benchmark's: no run of this one reads or writes it
        before = tree(elsewhere)
        kept.open(resume)
        assert path.is_symlink() and tree(elsewhere) == before


def test_starting_over_removes_the_run_and_nothing_else(kept, elsewhere):
    mine = [kept.out / "notes.txt", kept.out / "networks" / "model.py", kept.out / "data" / "link"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (kept.out / "data" / "theirs").symlink_to(elsewhere)
    kept.open(resume=False)
    assert not kept.state.exists() and not (kept.home / "memory-0.sgm").exists()
    assert all(path.read_text() == "mine" for path in mine)
    assert len(tree(elsewhere)) == 16


def test_a_run_folder_may_itself_be_a_link(kept, tmp_path):
    kept.out.rename(tmp_path / "disk")
    kept.out.symlink_to(tmp_path / "disk")
    assert kept.open().write_results() == kept.rows
    kept.open(resume=False)
    assert not kept.state.exists()
