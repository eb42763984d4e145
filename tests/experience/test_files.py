"""Experience in files: what is written is read again, stays on disk, and wrong files are errors."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

import sgm
from sgm.data import Experience, load, save
from tests.experience.test_experience import full

FORMS = ["walks.npz", "walks"]


def equal(one: Experience, other: Experience) -> bool:
    names = ("observations", "episodes", "steps", "actions", "achieved_goals", "positions", "rewards")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    same = [a is b is None or (a.dtype == b.dtype and np.array_equal(a, b)) for a, b in pairs]
    return all(same) and one.source == other.source


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "data",
    [
        full(),
        full()[::3],
        Experience(np.zeros((4, 5, 6), np.uint8), [0, 0, 7, 9]),
        Experience(np.asfortranarray(np.arange(12.0).reshape(4, 3)), np.zeros(4, int), np.arange(4)),
        full()[:0],
    ],
    ids=["all arrays", "thinned", "grey images", "column order", "empty"],
)
def test_what_is_written_is_read_again(tmp_path, form, data):
    save(data, tmp_path / form)
    assert equal(load(tmp_path / form), data)
    assert sorted(path.name for path in tmp_path.iterdir()) == [form]


@pytest.mark.parametrize("form", FORMS)
def test_arrays_stay_on_disk_and_are_aligned(tmp_path, form):
    save(full(), tmp_path / form)
    data = load(tmp_path / form)
    for name in ("observations", "actions", "positions", "rewards", "episodes", "steps"):
        values = getattr(data, name)
        assert isinstance(values.base, np.memmap) and values.ctypes.data % 64 == 0
        assert not values.flags.writeable
    assert np.shares_memory(data[2:9].observations, data.observations)


def test_compressed_files_are_smaller_and_read(tmp_path):
    data = Experience(np.zeros((1_000, 50)), np.zeros(1_000, int))
    for compress in (False, True):
        save(data, tmp_path / f"{compress}.npz", compress=compress)
        assert equal(load(tmp_path / f"{compress}.npz"), data)
    assert (tmp_path / "True.npz").stat().st_size < 0.1 * (tmp_path / "False.npz").stat().st_size
    with pytest.raises(sgm.InputError, match="compress is for .npz"):
        save(data, tmp_path / "folder", compress=True)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_can_be_replaced_while_it_is_read(tmp_path, form):
    save(full(), tmp_path / form)
    data = load(tmp_path / form)
    before = data.observations.copy()
    save(data[::2], tmp_path / form)
    assert (data.observations == before).all() and len(load(tmp_path / form)) == len(data[::2])
    assert [path.name for path in tmp_path.iterdir()] == [form]


def test_what_was_there_stays_when_writing_fails(tmp_path, monkeypatch):
    for form in FORMS:
        save(full(), tmp_path / form)
    kept = [load(tmp_path / form).rewards.copy() for form in FORMS]

    def broken(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", broken)
    for form, before in zip(FORMS, kept, strict=True):
        with pytest.raises(OSError, match="disk full"):
            save(full()[:3], tmp_path / form)
        assert (load(tmp_path / form).rewards == before).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FORMS)


def test_a_folder_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(sgm.InputError, match="holds no experience"):
        save(full(), tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def test_numpy_reads_our_files_and_we_read_its_own(tmp_path):
    data = full()
    save(data, tmp_path / "ours.npz")
    with np.load(tmp_path / "ours.npz", allow_pickle=False) as file:
        assert (file["observations"] == data.observations).all()
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "theirs.npz", observations=data.observations, terminals=[0, 0, 1, *[0] * 12, 1])
        found = load(tmp_path / "theirs.npz")
        assert found.number_of_episodes == 2 and found.steps[:5].tolist() == [0, 1, 2, 0, 1]
        assert found.actions is None and found.source == "theirs.npz"
        assert (found.observations == data.observations).all()


def npy(descr: str, shape: str, contents: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + contents


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (npy("'|O'", "(1,)", b"cos\nsystem\n(S'true'\ntR."), "holds '|O'.*nothing is unpickled"),
        (npy("[('a', '<f8')]", "(1,)", bytes(8)), "expected numbers"),
        (npy("'<f8'", "(10**9, 10**9)"), "cannot be read"),
        (npy("'<f8'", "(1000000000, 1000000000)"), "does not fill"),
        (npy("'<f8'", "(-1,)", bytes(8)), r"shape \(-1,\)"),
        (npy("'<f8'", "__import__('os')"), "cannot be read"),
        (npy("'<f8'", "(" * 300 + ")" * 300), "cannot be read"),
        (b"no array", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_hostile_arrays_are_input_errors(tmp_path, member, reason, method):
    with zipfile.ZipFile(tmp_path / "evil.npz", "w", method) as file:
        file.writestr("observations.npy", member)
        file.writestr("episodes.npy", npy("'<i8'", "(1,)", bytes(8)))
    with pytest.raises(sgm.InputError, match=reason):
        load(tmp_path / "evil.npz")


def test_a_bomb_does_not_go_off(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, observations=np.zeros((2, 2)), episodes=[0, 0])
    raw = bytearray(path.read_bytes())
    place = raw.index(b"PK\x01\x02") + 24  # the size that the directory claims for the first array
    raw[place : place + 4] = b"\xfe\xff\xff\xff"
    path.write_bytes(raw)
    with pytest.raises(sgm.InputError, match="claims 4,294,967,294 bytes in"):
        load(path)


@pytest.mark.parametrize("compress", [False, True])
def test_damaged_files_are_input_errors_or_experience(tmp_path, compress):
    path, random = tmp_path / "walks.npz", np.random.default_rng(0)
    save(full(), path, compress=compress)
    whole = path.read_bytes()
    refused = 0
    for trial in range(300):
        raw = bytearray(whole)
        if trial % 3 == 0:
            raw = raw[: random.integers(len(raw))]
        else:
            for place in random.integers(len(raw), size=1 + trial % 7):
                raw[place] = random.integers(256)
        path.write_bytes(raw)
        try:
            load(path)
        except sgm.InputError:
            refused += 1
    assert refused >= 100  # all that are cut off, at least


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[1", "no JSON"), ("[" * 100_000, "no JSON"), ("[]", "not of sgm experience"), ('{"version": 9}', "version 1")],
)
def test_descriptions_of_another_kind_are_refused(tmp_path, text, reason):
    save(full(), tmp_path / "walks")
    (tmp_path / "walks" / "experience.json").write_text(text)
    with pytest.raises(sgm.InputError, match=reason):
        load(tmp_path / "walks")


def test_files_say_what_they_have_and_what_is_expected(tmp_path):
    np.savez(tmp_path / "own.npz", obs=np.zeros((3, 2)))
    with pytest.raises(sgm.InputError, match="own.npz has obs: expected observations, and episodes"):
        load(tmp_path / "own.npz")
    np.savez(tmp_path / "own.npz", observations=np.zeros((3, 2)), episodes=[0, 0])
    with pytest.raises(sgm.InputError, match=r"expected \(3,\) whole numbers"):
        load(tmp_path / "own.npz")
    with pytest.raises(sgm.InputError, match="nowhere.npz does not exist"):
        load(tmp_path / "nowhere.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(sgm.InputError, match="text.npz cannot be read: File is not a zip file"):
        load(tmp_path / "text.npz")
    with pytest.raises(sgm.InputError, match="data is ndarray"):
        save(np.zeros(3), tmp_path / "x.npz")


def test_the_source_is_kept_as_text(tmp_path):
    save(full(), tmp_path / "walks.npz")
    with zipfile.ZipFile(tmp_path / "walks.npz") as file:
        facts = json.loads(io.TextIOWrapper(file.open("experience.json"), "utf-8").read())
    assert facts["source"] == "a test" and facts["shapes"]["observations"] == [16, 3]
