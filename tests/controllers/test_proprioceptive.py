"""The controller over odometry: what it learns from, how it drives, and its file."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from sgm.controllers.proprioceptive import (  # noqa: E402
    Dynamics,
    Policy,
    ProprioceptiveConfig,
    ProprioceptiveController,
    draw_targets,
    imagined_distance,
    train_controller,
    transitions,
)
from sgm.errors import InputError, StoreError  # noqa: E402

TINY = ProprioceptiveConfig(hidden=32, model_iterations=400, iterations=100, batch=64, learning_rate=1e-2)
MASS, DRAG, INERTIA, HINGE_DRAG, GEAR, LIMIT = 0.00519, 0.01, 2.85e-5, 0.005, 0.3, 0.05  # kg, N·s/m, kg·m², N·m·s


def drive(odometry: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Safety Gym's Point robot for 0.1 s in free space: (n, 6) odometry and (n, 2) actions to (n, 6) odometry."""
    x, y, heading, forward, sideways, turning = odometry.astype(np.float64).T
    speed = (forward + 1j * sideways) * np.exp(1j * heading)  # in the frame of the world: it slides
    place, force, servo = x + 1j * y, GEAR * np.clip(actions[:, 0], -LIMIT, LIMIT), actions[:, 1]
    dt = 0.002
    for _ in range(50):
        speed = (speed + dt * force / MASS * np.exp(1j * heading)) / (1 + dt * DRAG / MASS)
        free = (turning + dt * GEAR * servo / INERTIA) / (1 + dt * (GEAR**2 + HINGE_DRAG) / INERTIA)
        pull = servo - GEAR * free
        most = (turning + dt * GEAR * LIMIT * np.sign(pull) / INERTIA) / (1 + dt * HINGE_DRAG / INERTIA)
        turning = np.where(np.abs(pull) > LIMIT, most, free)
        place, heading = place + dt * speed, heading + dt * turning
    own = speed * np.exp(-1j * heading)
    heading = (heading + np.pi) % (2 * np.pi) - np.pi
    return np.stack([place.real, place.imag, heading, own.real, own.imag, turning], axis=1)


def explore(episodes: int, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Smooth random actions in a square of 2 m, whose walls stop the robot: odometry and actions."""
    random = np.random.default_rng(seed)
    now, action = np.zeros((episodes, 6)), np.zeros((episodes, 2))
    odometry, actions = [now], []
    for _ in range(steps):
        action = np.clip(0.8 * action + 0.5 * random.normal(size=action.shape), -1, 1)
        now = drive(now, action)
        hit = (np.abs(now[:, :2]) > 1).any(1)
        now[hit, 3:5] = 0
        now[:, :2] = np.clip(now[:, :2], -1, 1)
        odometry.append(now)
        actions.append(action)
    return np.stack(odometry, axis=1), np.stack(actions, axis=1)


def turn_and_go(odometry: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """A rule by hand: turn to the target, go when it is ahead, brake in time."""
    east, north = (targets[:, :2] - odometry[:, :2]).T
    bearing = (np.arctan2(north, east) - odometry[:, 2] + np.pi) % (2 * np.pi) - np.pi
    brake = np.hypot(east, north) - 0.5 * odometry[:, 3]
    return np.clip(
        np.stack([np.where(np.abs(bearing) < 0.6, 2 * brake, -2 * odometry[:, 3]), 2 * bearing], axis=1), -1, 1
    )


def arrivals(controller, number: int = 400, seed: int = 0) -> tuple[float, float, float]:
    """Of random targets 0.3 to 1 m away: share reached within 0.3 m and 25 steps, mean steps, metres at the end."""
    random = np.random.default_rng(seed)
    now = np.zeros((number, 6))
    now[:, 2] = random.uniform(-np.pi, np.pi, number)
    far, angle = np.sqrt(random.uniform(0.09, 1, number)), random.uniform(-np.pi, np.pi, number)
    targets = np.stack([far * np.cos(angle), far * np.sin(angle), 0 * far], axis=1)
    within = []
    for _ in range(25):
        now = drive(now, controller(now, targets))
        within.append(np.hypot(*(now - np.pad(targets, ((0, 0), (0, 3))))[:, :2].T))
    reached = np.array(within) < 0.3
    steps = np.where(reached.any(0), 1 + reached.argmax(0), 25)
    return float(reached.any(0).mean()), float(steps.mean()), float(within[-1].mean())


@pytest.fixture(scope="module")
def trained() -> ProprioceptiveController:
    return train_controller(*explore(30, 200, 1), TINY, progress=False)


def test_it_arrives_sooner_than_a_rule_by_hand_and_stays(trained):
    share, steps, end = arrivals(trained)
    assert share == 1
    assert steps < arrivals(turn_and_go)[1]
    assert end < 0.2


def test_the_model_finds_how_little_of_an_action_is_all_the_motor_gives(trained):
    assert 10 < trained.gain < 30  # Safety Gym's: 1 / 0.05
    assert set(trained.model_error) == {"position", "heading", "speed", "turning"}
    assert trained.model_error["position"] < 0.01 and trained.model_error["speed"] < 0.1


def test_actions_are_those_of_the_trained_network(trained):
    now, targets = explore(40, 5, 2)[0][:, 4], explore(40, 5, 3)[0][:, 5]
    turn = np.exp(-1j * now[:, 2]) * ((targets[:, 0] - now[:, 0]) + 1j * (targets[:, 1] - now[:, 1]))
    inputs = np.stack([turn.real, turn.imag], axis=1), now[:, 3:]
    with torch.inference_mode():
        efforts = trained.network(*(torch.from_numpy(part.astype(np.float32)) for part in inputs)).numpy()
    np.testing.assert_allclose(trained(now, targets), efforts / [trained.gain, 1], atol=1e-4)


def test_only_the_place_of_a_target_matters_and_far_ones_are_only_far(trained):
    now, targets = explore(40, 5, 2)[0][:, 4], explore(40, 5, 3)[0][:, 5]
    actions = trained(now, targets)
    assert actions.dtype == np.float32 and actions.shape == (40, 2) and np.abs(actions).max() <= 1
    np.testing.assert_array_equal(trained(now, targets[:, :3]), actions)
    np.testing.assert_array_equal(trained(now, targets * [1, 1, 5, 5, 5, 5]), actions)
    ahead = np.repeat([[3.0, 1, 0]], 40, axis=0)
    now[:, :2] = 0
    np.testing.assert_allclose(trained(now, ahead), trained(now, 100 * ahead), atol=1e-6)
    assert trained(now[:0], targets[:0]).shape == (0, 2)


def test_where_the_robot_is_does_not_matter_only_where_the_target_is_from_there(trained):
    now, targets = explore(40, 5, 2)[0][:, 4], explore(40, 5, 3)[0][:, 5]
    turn = np.exp(0.7j)
    moved = []
    for odometry in (now, targets):
        place = (odometry[:, 0] + 1j * odometry[:, 1]) * turn + 3 - 2j
        moved.append(np.column_stack([place.real, place.imag, odometry[:, 2] + 0.7, odometry[:, 3:]]))
    np.testing.assert_allclose(trained(*moved), trained(now, targets), atol=1e-4)


def test_changes_of_pose_are_in_the_frame_of_the_robot():
    odometry = np.zeros((1, 2, 6))
    odometry[0, 0, :3], odometry[0, 1, :3] = [1, 1, np.pi - 0.1], [1, 2, 0.1 - np.pi]
    odometry[0, 1, 3:] = [4, 5, 6]
    before, acted, after = transitions(odometry, [[[0.5, -0.5]]])
    assert before.tolist() == [[0, 0, 0]] and acted.tolist() == [[0.5, -0.5]]
    np.testing.assert_allclose(after, [[np.sin(np.pi - 0.1), np.cos(np.pi - 0.1), 0.2, 4, 5, 6]], rtol=1e-5)


def test_an_imagined_walk_is_what_the_model_says():
    """A robot that goes 0.1 m ahead with every effort and turns by a right angle with every step."""

    class Steps(Dynamics):
        def forward(self, speeds, efforts):
            return torch.tensor([[0.1, 0.0, np.pi / 2, 0.0, 0.0, 0.0]]) * torch.ones(len(speeds), 1)

    model, policy = Steps(4, torch.ones(2, 3), torch.ones(2, 6)), Policy(TINY)
    far = imagined_distance(model, policy, torch.zeros(1, 3), torch.tensor([[0.1, 0.1]]), torch.zeros(2, 1, 2))
    assert far.item() == pytest.approx((0.1 + 0.0) / 2, abs=0.01)


def test_targets_are_in_any_direction_within_reach():
    targets = draw_targets(np.random.default_rng(0), dataclasses.replace(TINY, batch=4000, reach=0.8)).numpy()
    far = np.linalg.norm(targets, axis=1)
    assert far.max() <= 0.8 and abs(far.mean() - 0.4) < 0.02
    assert np.abs(targets.mean(0)).max() < 0.03


def test_a_seed_makes_one_controller_read_from_a_checkpoint_or_not(tmp_path: Path):
    short = dataclasses.replace(TINY, model_iterations=5, iterations=5)
    data, checkpoints = explore(4, 20, 1), (None, tmp_path / "ck", tmp_path / "ck")
    made = [train_controller(*data, short, checkpoint=c, progress=False) for c in checkpoints]
    assert len({controller.fingerprint for controller in made}) == 1
    assert train_controller(*data, short, seed=1, progress=False).fingerprint != made[0].fingerprint
    with pytest.raises(InputError, match="another training"):
        train_controller(*data, dataclasses.replace(short, reach=1.0), checkpoint=tmp_path / "ck", progress=False)


def test_it_comes_back_from_its_file(trained, tmp_path: Path):
    trained.save(tmp_path / "c.safetensors", {"seed": 0})
    back = ProprioceptiveController.load(tmp_path / "c.safetensors")
    assert back.fingerprint == trained.fingerprint and back.config == TINY and back.model_error == trained.model_error
    now, targets = explore(40, 5, 2)[0][:, 4], explore(40, 5, 3)[0][:, 5]
    np.testing.assert_array_equal(back(now, targets), trained(now, targets))
    (tmp_path / "c.safetensors").write_bytes(b"anything")
    with pytest.raises(StoreError):
        ProprioceptiveController.load(tmp_path / "c.safetensors")


def test_it_is_fast(trained):
    now, targets = (explore(4, 5, seed)[0][:, 4].repeat(50, axis=0) for seed in (2, 3))
    seconds = []
    for _ in range(50):
        begin = time.perf_counter()
        trained(now, targets)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 1e-3


def test_wrong_input_is_refused(trained):
    odometry, actions = explore(2, 8, 1)
    with pytest.raises(InputError, match=r"odometry has shape \(2, 9, 6\) and actions \(2, 7, 2\)"):
        train_controller(odometry, actions[:, 1:], TINY)
    with pytest.raises(InputError, match="between -1 and 1"):
        train_controller(odometry, 2 + actions, TINY)
    with pytest.raises(InputError, match="finite"):
        train_controller(odometry * np.nan, actions, TINY)
    with pytest.raises(InputError, match=r"expected \(n, 6\) and \(n, 3\) or \(n, 6\)"):
        trained(odometry[:, 0], odometry[:, 1, :2])
    with pytest.raises(InputError, match=r"odometry has shape \(2, 3\)"):
        trained(odometry[:, 0, :3], odometry[:, 1])
