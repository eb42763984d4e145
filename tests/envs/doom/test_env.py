"""DoomMaze: what is seen where, that it is always the same, and that an engine may die at any time."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import struct
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit

import sgm.envs
from sgm.envs.doom.mazes import generate
from sgm.envs.doom.wad import DoomMap, MapError, write_lumps
from sgm.errors import InputError

pytest.importorskip("vizdoom")
cv2 = pytest.importorskip("cv2")
doom = pytest.importorskip("sgm.envs.doom.env")
DoomMazeEnv, DoomMazeVectorEnv, Engine = doom.DoomMazeEnv, doom.DoomMazeVectorEnv, doom.Engine
ACTIONS, Tasks, explore = doom.ACTIONS, doom.Tasks, doom.explore

ID = "sgm/DoomMaze-v0"
SMALL = generate(0, size=384, rooms=2)
SETTINGS = {"doom_map": SMALL, "size": (40, 30), "render_mode": "rgb_array"}
FORWARD, LEFT, IDLE = ACTIONS.index("forward"), ACTIONS.index("turn left"), ACTIONS.index("idle")
HERE, THERE = (80.0, 80.0, 0.0), (300.0, 300.0, 90.0)


@pytest.fixture(scope="module")
def envs():
    """Two engines."""
    env = gymnasium.make_vec(ID, num_envs=2, **SETTINGS)
    yield env
    env.close()


@pytest.fixture(scope="module")
def env():
    """One engine."""
    env = gymnasium.make(ID, **SETTINGS)
    yield env
    env.close()


def engine_of(driver: int) -> int:
    """The process of the engine that another process drives."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text().rpartition(")")[2].split()[1]) == driver:
                return int(status.parent.name)
        except OSError:  # gone by now
            continue
    raise LookupError(f"process {driver} has no child")


def kill(engine: Engine, how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(engine_of(engine._process.pid), how)


def left_behind(engine: Engine) -> list[Path]:
    """The files of an engine, here and in shared memory."""
    shared = (engine._folder / "shared").read_text().split()
    return [engine._folder, *(Path("/dev/shm", name) for name in shared)]


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key], equal_nan=True) for key in one)


# What is seen


def test_an_episode_begins_exactly_where_it_is_asked_to(envs):
    starts = np.array([HERE, THERE])
    observation, infos = envs.reset(options={"starts": starts, "goals": starts[::-1]})
    np.testing.assert_allclose(infos["pose"], starts, atol=1e-3)
    np.testing.assert_array_equal(observation["desired_goal"], observation["observation"][::-1])
    np.testing.assert_array_equal(observation["achieved_goal"], observation["observation"])
    np.testing.assert_allclose(infos["distance"], np.hypot(220, 220), atol=1e-3)
    assert observation["observation"].std() > 10
    assert envs.observation_space.contains(observation)


def test_forward_goes_ahead_and_left_turns_left(envs):
    envs.reset(options={"starts": [HERE, HERE], "goals": None})
    for _ in range(5):
        infos = envs.step([FORWARD, LEFT])[4]
    (x, y, _), (*place, heading) = infos["pose"]
    assert x > HERE[0] + 20 and abs(y - HERE[1]) < 1
    np.testing.assert_allclose(place, HERE[:2], atol=1e-3)
    assert 20 < heading < 180


def test_one_map_is_the_same_for_one_engine_and_for_many(envs, env):
    random = np.random.default_rng(0)
    actions = random.integers(len(ACTIONS), size=(8, 2))
    together = [envs.reset(seed=5), *(envs.step(both) for both in actions)]
    assert not np.array_equal(together[-1][-1]["pose"][0], together[0][-1]["pose"][0])
    for row in range(2):
        alone = [env.reset(seed=5 + row), *(env.step(both[row]) for both in actions)]
        for one, many in zip(alone, together, strict=True):
            assert same(one[0], {key: value[row] for key, value in many[0].items()})
            assert same(one[-1], {key: value[row] for key, value in many[-1].items() if not key.startswith("_")})
            if len(one) == 5:
                assert one[1:4] == tuple(part[row] for part in many[1:4])


def test_one_seed_gives_one_episode_whatever_was_before(envs):
    runs = []
    for _ in range(2):
        runs.append([envs.reset(seed=[3, 3]), *(envs.step([action, action]) for action in range(len(ACTIONS)))])
        envs.reset()
    for one, other in zip(*runs, strict=True):
        assert same(one[0], other[0]) and same(one[-1], other[-1])
        np.testing.assert_array_equal(one[0]["observation"][0], one[0]["observation"][1])


def test_images_have_the_size_that_was_asked_for_and_rendering_gives_the_engines_own(envs, env):
    observation, _ = envs.reset(seed=1)
    assert observation["observation"].shape == (2, 30, 40, 3)
    images = envs.render()
    assert [image.shape for image in images] == [(120, 160, 3)] * 2
    small = cv2.resize(images[0], (40, 30), interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(small, observation["observation"][0])
    env.reset(seed=1)
    np.testing.assert_array_equal(env.render(), images[0])
    engine = Engine(SMALL, size=(160, 120))
    np.testing.assert_array_equal(engine.reset(tuple(envs.pose[0])), images[0])
    engine.close()


def test_nothing_returned_changes_later(envs):
    observation, infos = envs.reset(seed=0)
    before = observation["observation"].copy(), infos["pose"].copy()
    for _ in range(4):
        envs.step([FORWARD, LEFT])
    np.testing.assert_array_equal(observation["observation"], before[0])
    np.testing.assert_array_equal(infos["pose"], before[1])


# Goals


def test_near_the_goal_the_episode_ends_with_reward_zero(envs):
    goal = (HERE[0] + 100, HERE[1], 0.0)
    _, infos = envs.reset(options={"starts": HERE, "goals": [goal, THERE]})
    assert not infos["success"].any()
    for _ in range(20):
        _, rewards, terminated, truncated, infos = envs.step([FORWARD, IDLE])
        np.testing.assert_array_equal(terminated, infos["distance"] <= 63)
        np.testing.assert_array_equal(rewards, np.where(terminated, 0.0, -1.0))
        np.testing.assert_array_equal(envs.compute_reward(None, None, infos), rewards)
        assert same({"success": infos["success"]}, {"success": infos["is_success"]}) and not truncated.any()
        if terminated[0]:
            break
    assert terminated.tolist() == [True, False]
    assert envs.compute_terminated(None, None, [{"distance": 10.0}, {"distance": np.nan}]).tolist() == [True, False]


def test_without_a_goal_there_is_nothing_to_reach(envs):
    envs.reset(seed=0)
    observation, infos = envs.reset(options={"goals": None})
    assert not observation["desired_goal"].any()
    assert np.isnan(infos["distance"]).all() and not infos["success"].any()
    assert envs.step([IDLE, IDLE])[2].tolist() == [False, False]


def test_an_episode_is_cut_off_after_its_steps(envs, monkeypatch):
    assert envs.max_episode_steps == 200
    monkeypatch.setattr(envs, "max_episode_steps", 3)
    envs.reset(seed=0, options={"goals": None})
    assert [envs.step([IDLE, step - 2])[3].tolist() for step in range(3)] == [[False, False]] * 2 + [[True, False]]


def test_a_negative_action_leaves_an_engine_alone(envs):
    observation, infos = envs.reset(seed=2)
    for _ in range(4):
        after, _, _, _, later = envs.step(np.array([FORWARD, -1]))
    np.testing.assert_array_equal(after["observation"][1], observation["observation"][1])
    assert later["pose"][0].tolist() != infos["pose"][0].tolist()
    assert later["pose"][1].tolist() == infos["pose"][1].tolist()


def test_only_the_rows_of_the_mask_are_reset_and_read(envs):
    envs.reset(seed=0, options={"goals": None})
    for _ in range(4):
        _, _, _, _, before = envs.step([FORWARD, FORWARD])
    starts = [THERE, (np.nan, np.nan, np.nan)]
    _, infos = envs.reset(options={"starts": starts, "goals": starts, "reset_mask": np.array([True, False])})
    np.testing.assert_allclose(infos["pose"][0], THERE, atol=1e-3)
    np.testing.assert_array_equal(infos["pose"][1], before["pose"][1])
    assert infos["success"].tolist() == [True, False] and envs.elapsed.tolist() == [0, 4]


def test_a_level_says_how_far_the_goal_is(envs):
    for level, (least, most) in list(doom.LEVELS.items())[:2]:
        _, infos = envs.reset(seed=1, options={"level": level})
        assert ((infos["distance"] > least) & (infos["distance"] <= most + 1e-3)).all()


def test_tasks_are_the_same_for_everybody_and_of_their_level():
    tasks, again = (Tasks.draw(generate(), 5, seed=3) for _ in range(2))
    np.testing.assert_array_equal(tasks.starts, again.starts)
    np.testing.assert_array_equal(tasks.goals, again.goals)
    assert len(tasks) == 15 and tasks.levels.tolist() == ["easy"] * 5 + ["medium"] * 5 + ["hard"] * 5
    length = np.hypot(*(tasks.starts - tasks.goals).T[:2])
    assert all(
        low < far <= high for far, (low, high) in zip(length, np.repeat(list(doom.LEVELS.values()), 5, 0), strict=True)
    )
    assert generate().is_free(tasks.starts[:, :2]).all()
    with pytest.raises(MapError, match="map MAP01 is too small for 5 hard tasks"):
        Tasks.draw(SMALL, 5, seed=0, levels={"hard": (600.0, 700.0)})


# Gymnasium


def test_gymnasium_finds_nothing_wrong(env):
    check_env(env.unwrapped, skip_render_check=True)


def test_it_is_registered_without_being_loaded_and_limits_itself_to_200_steps(env, envs):
    importlib.reload(sgm.envs)  # warnings are errors here
    assert gymnasium.spec(ID).max_episode_steps == 200
    assert isinstance(env, TimeLimit) and isinstance(env.unwrapped, DoomMazeEnv)
    assert isinstance(envs, DoomMazeVectorEnv)
    envs.reset(seed=5)
    assert envs.np_random_seed == (5, 6)
    assert env.unwrapped.map.start == SMALL.start and env.unwrapped.lost == 0


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"starts": (0, 0, 0)}, r"starts\[0\] is x, y, heading = 0, 0, 0; give a place on map MAP01 that is not"),
        ({"goals": [HERE, (9e9, 0, 0)]}, r"goals\[1\] is x, y, heading = 9e\+09, 0, 0"),
        ({"starts": (np.nan, 0, 0)}, r"starts\[0\] is x, y, heading = nan, 0, 0"),
        ({"starts": (80, 80)}, r"starts is \(80, 80\); give x, y and heading in degrees, of shape \(3,\) or \(2, 3\)"),
        ({"goals": "there"}, "goals is 'there'; give x, y and heading"),
        ({"level": "insane"}, "level is 'insane'; give one of easy, medium, hard"),
        ({"level": "easy", "starts": HERE}, "a level draws both: drop one"),
        ({"start": HERE}, r"unknown options \['start'\]; accepted: starts, goals, level, reset_mask"),
        ({"reset_mask": [True]}, "reset_mask is"),
    ],
)
def test_a_reset_that_makes_no_sense_is_refused(envs, options, message):
    with pytest.raises(InputError, match=message):
        envs.reset(options=options)


@pytest.mark.parametrize("actions", [[0.0, 1.0], [0], [0, 7], [[0, 1]], [True, False], ["a", "b"]])
def test_actions_that_are_none_are_refused(envs, actions):
    envs.reset()
    with pytest.raises(InputError, match=r"give \(2,\) integers from 0 to 6"):
        envs.step(actions)


@pytest.mark.parametrize("action", [-1, 7, 1.0, "forward", None])
def test_one_action_that_is_none_is_refused(env, action):
    env.reset()
    with pytest.raises(InputError, match=r"give one of 0 \(forward\), 1 \(back\)"):
        env.unwrapped.step(action)
    with pytest.raises(InputError, match="accepted: start, goal, level"):
        env.unwrapped.reset(options={"starts": HERE})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": (4, 4)}, "size is 4 × 4: expected 8 × 8 to 160 × 120 pixels"),
        ({"size": (320, 240)}, "size is 320 × 240: expected"),
        ({"size": 80}, r"size is 80: expected \(width, height\)"),
        ({"size": (80.5, 60)}, r"size is \(80.5, 60\): expected \(width, height\)"),
        ({"num_envs": 0}, "num_envs is 0; give"),
        ({"radius": 0}, "radius is 0; give a distance > 0, in map units"),
        ({"max_episode_steps": 0}, "max_episode_steps is 0; give"),
        ({"render_mode": "human"}, "render_mode is 'human'; give None or 'rgb_array'"),
        ({"doom_map": "a.wad"}, r"doom_map is 'a.wad'; give a DoomMap: DoomMap.read\(wad, name\)"),
        ({"doom_map": SMALL.retextured(["WOOD1", "NOSUCH", "NIL"])}, "unknown textures NIL, NOSUCH: .* freedoom2.wad"),
        ({"doom_map": DoomMap("MAP01", "Doom", *([],) * 5)}, "map MAP01 has no start of player 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_anything_starts(settings, message):
    with pytest.raises(InputError, match=message):
        DoomMazeVectorEnv(**settings)


def test_acting_before_a_reset_and_after_the_end_is_refused():
    env = DoomMazeEnv(doom_map=SMALL)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.close()
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.reset()


@pytest.mark.parametrize("missing", ["vizdoom", "cv2"])
def test_what_is_missing_is_said_with_how_to_get_it(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    for name in ("env", "engine", "driver"):
        monkeypatch.delitem(sys.modules, f"sgm.envs.doom.{name}")
    with pytest.raises(ImportError, match=rf"cannot import {missing}: .* 'sparse-graphical-memory\[doom\]'"):
        importlib.import_module("sgm.envs.doom.env")


# Engines that die


@pytest.mark.parametrize("whom", ["engine", "driver"])
def test_a_dead_engine_is_replaced_and_its_episode_is_lost_loudly(envs, env, caplog, whom):
    lost = envs.lost
    env.reset(seed=12)
    envs.reset(seed=11)
    envs.step([FORWARD, LEFT]), env.step(LEFT)
    files = left_behind(envs.engines[0])
    if whom == "engine":
        kill(envs.engines[0])
    else:
        os.kill(envs.engines[0]._process.pid, signal.SIGKILL)
    with caplog.at_level(logging.ERROR):
        _, _, terminated, truncated, infos = envs.step([FORWARD, LEFT])
    assert "Doom engine 0 died" in caplog.text and "The episode of Doom engine 0 is lost, after 1 steps" in caplog.text
    assert (terminated.any(), truncated.tolist(), infos["lost"].tolist()) == (False, [True, False], [True, False])
    assert envs.lost == lost + 1
    assert not any(path.exists() for path in files)
    env.step(LEFT)
    for _ in range(3):  # the other one never noticed
        observation, _, _, truncated, infos = envs.step([FORWARD, LEFT])
        expected, *_, info = env.step(LEFT)
        np.testing.assert_array_equal(observation["observation"][1], expected["observation"])
        np.testing.assert_array_equal(infos["pose"][1], info["pose"])
    assert truncated.tolist() == [True, False] and envs.lost == lost + 1  # until it is reset
    _, infos = envs.reset(options={"starts": HERE, "reset_mask": np.array([True, False])})
    np.testing.assert_allclose(infos["pose"][0], HERE, atol=1e-3)
    assert not infos["lost"].any() and not envs.step([FORWARD, LEFT])[3].any()


def test_an_engine_that_hangs_counts_as_dead(envs, caplog):
    envs.reset(seed=0)
    envs.engines[1]._connection.settimeout(0.5)
    kill(envs.engines[1], signal.SIGSTOP)
    _, _, _, truncated, infos = envs.step([IDLE, IDLE])
    assert truncated.tolist() == infos["lost"].tolist() == [False, True]
    assert "Doom engine 1 died (it has not answered for 0.5 seconds) and is restarted" in caplog.text


def test_an_episode_that_has_not_begun_cannot_be_lost(envs, caplog):
    lost = envs.lost
    kill(envs.engines[1])
    _, infos = envs.reset(options={"starts": [HERE, THERE]})
    np.testing.assert_allclose(infos["pose"], [HERE, THERE], atol=1e-3)
    assert "Doom engine 1 died" in caplog.text and envs.lost == lost and not infos["lost"].any()


def test_an_engine_that_was_interrupted_does_not_answer_yesterdays_question(envs):
    envs.reset(options={"starts": HERE, "goals": None})
    envs.engines[0].ask(FORWARD)  # and Ctrl-C
    _, infos = envs.reset(options={"starts": THERE, "goals": None})
    np.testing.assert_allclose(infos["pose"], [THERE, THERE], atol=1e-3)


def test_an_engine_that_does_not_start_says_why(caplog):
    broken = [{**line, "sidefront": 0xFFFF} if number == 3 else line for number, line in enumerate(SMALL.lines)]
    engine = Engine(DoomMap("MAP07", "Doom", SMALL.vertices, broken, SMALL.sides, SMALL.sectors, SMALL.things))
    with pytest.raises(doom.EngineDied, match="no Doom engine starts on map MAP07: .*Line 3 has no front sector"):
        engine.wait()
    assert "does not start on map MAP07" in caplog.text
    assert not engine._folder.exists()


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = DoomMazeVectorEnv(1, doom_map=SMALL)
    files = left_behind(env.engines[0])
    assert all(path.exists() for path in files) and len(files) == 4
    env.close()
    assert not any(path.exists() for path in files)
    engine = Engine(SMALL)
    engine.wait()
    files, driver = left_behind(engine), engine._process
    del engine
    gc.collect()
    assert not any(path.exists() for path in files) and driver.returncode == 0
    assert list(tmp_path.iterdir()) == []


# Exploration and other maps


def test_exploration_is_the_same_whatever_the_number_of_engines_and_whoever_dies(envs, env, monkeypatch):
    alone = explore(env.unwrapped.vector, 3, 6, seed=4)
    assert alone.frames.shape == (3, 7, 30, 40, 3) and alone.actions.shape == (3, 6) and alone.poses.shape == (3, 7, 3)
    taken, act = [], envs.step

    def step(actions):
        if sum(taken) == 0 and envs.elapsed[0] == 3 and not envs.lost > before:
            kill(envs.engines[0])
        return act(actions)

    before = envs.lost
    monkeypatch.setattr(envs, "step", step)
    together = explore(envs, 3, 6, seed=4, progress=taken.append)
    assert envs.lost == before + 1 and taken == [12, 6]
    for name in ("frames", "actions", "poses"):
        np.testing.assert_array_equal(getattr(together, name), getattr(alone, name))
    turning = explore(env.unwrapped.vector, 1, 20, seed=4, actions=[LEFT])
    assert (turning.actions == LEFT).all()


@pytest.mark.parametrize("settings", [{"episodes": 0}, {"steps": 0}, {"actions": []}, {"actions": [9]}])
def test_exploration_needs_something_to_do(envs, settings):
    with pytest.raises(InputError, match="give"):
        explore(envs, **{"episodes": 1, "steps": 1, "seed": 0, **settings})


def test_a_map_in_the_oldest_format_looks_the_same(envs, tmp_path):
    walls = [(line["v1"], line["v2"], 1, 0, 0, line["sidefront"], 0xFFFF) for line in SMALL.lines]
    sector = SMALL.sectors[0]
    names = [sector[key].encode() for key in ("texturefloor", "textureceiling")]
    lumps = {
        "MAP01": b"",
        "THINGS": struct.pack("<hhhHH", *map(int, SMALL.start), 1, 7),
        "LINEDEFS": b"".join(struct.pack("<7H", *wall) for wall in [*walls, (0, 9, 1, 0, 0, 0xFFFF, 0xFFFF)]),
        "SIDEDEFS": b"".join(
            struct.pack("<hh8s8s8sH", 0, 0, b"-", b"-", side["texturemiddle"].encode(), 0) for side in SMALL.sides
        ),
        "VERTEXES": b"".join(struct.pack("<hh", int(vertex["x"]), int(vertex["y"])) for vertex in SMALL.vertices),
        "SECTORS": struct.pack("<hh8s8shHH", 0, 128, *names, sector["lightlevel"], 0, 0),
    }
    write_lumps(tmp_path / "doom.wad", lumps.items())
    engine = Engine(DoomMap.read(tmp_path / "doom.wad"), size=envs.size)
    observation, _ = envs.reset(options={"starts": [HERE, THERE], "goals": None})
    for pose, expected in zip((HERE, THERE), observation["observation"], strict=True):
        np.testing.assert_array_equal(engine.reset(pose), expected)
    engine.close()


def test_a_map_may_bring_its_own_textures(tmp_path):
    own = SMALL.retextured(["MYWALL"])
    image = cv2.imencode(".png", np.full((64, 64, 3), (255, 0, 255), np.uint8))[1].tobytes()
    textures = [("TX_START", b""), ("MYWALL", image), ("TX_END", b"")]
    write_lumps(tmp_path / "own.wad", [("MAP05", b""), ("TEXTMAP", own.text().encode()), ("ENDMAP", b""), *textures])
    engine = Engine(DoomMap.read(tmp_path / "own.wad"))
    seen = engine.reset(HERE)
    engine.close()
    red, green, blue = seen.reshape(-1, 3).T.astype(int)
    assert ((red > 2 * green) & (blue > 2 * green)).mean() > 0.3
    with pytest.raises(MapError, match="unknown textures MYWALL"):
        Engine(own)
