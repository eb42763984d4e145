"""The cloned controller: what it learns from, how it is judged, and its file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from sgm.controllers.cloned import (  # noqa: E402
    ClonedConfig,
    ClonedController,
    Inverse,
    action_accuracy,
    draw_triples,
    train,
    train_cloned,
)
from sgm.controllers.held_out import quality  # noqa: E402
from sgm.data.experience import Experience  # noqa: E402
from sgm.errors import InputError, StoreError  # noqa: E402
from sgm.learning.encoders import digest, to_input  # noqa: E402

TINY = ClonedConfig(width=8, hidden=24, iterations=80, batch=64, reach=3, learning_rate=3e-3)


def corridor(episodes: int, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps of 4 pixels to the left (0) or right (1) along a ring of smooth colours: frames and actions."""
    around = np.arange(64) / 64 * 2 * np.pi
    colours = np.stack([np.sin(around), np.cos(around), np.sin(4 * around)], axis=1)
    wall = np.repeat((127 + 127 * colours).astype(np.uint8)[None], 12, axis=0)
    random = np.random.default_rng(seed)
    actions = random.integers(0, 2, (episodes, steps))
    moves = np.concatenate([random.integers(0, 64, (episodes, 1)), 8 * actions - 4], axis=1).cumsum(1)
    return wall[:, (moves[..., None] + np.arange(16)) % 64].transpose(1, 2, 0, 3, 4), actions


@pytest.fixture(scope="module")
def trained() -> ClonedController:
    return train_cloned(*corridor(20, 40, 1), 2, TINY, progress=False)


def test_it_learns_to_act_in_walks_it_has_not_seen(trained):
    accuracy = action_accuracy(trained, *corridor(10, 40, 2), lags=3, samples=300)
    assert accuracy.shape == (3,)
    assert accuracy[0] > 0.8  # one step: the goal tells the action; two: half of the goals are where it stands
    assert accuracy[0] > accuracy[1]


def test_outputs_are_those_of_the_trained_network(trained):
    frames = corridor(1, 30, 3)[0][0]
    with torch.inference_mode():
        stacked = np.concatenate([frames[:-2], frames[1:-1], frames[2:]], axis=3)
        expected = trained.network(to_input(stacked)).numpy()
    np.testing.assert_allclose(trained.outputs(frames[1:-1], frames[2:], frames[:-2]), expected, atol=1e-3)


def test_goals_are_ahead_and_there_is_a_picture_before():
    config = ClonedConfig(batch=2000, reach=8)
    rows, now, goal = draw_triples(np.random.default_rng(0), 5, 12, config)
    assert now.min() == 1 and goal.max() == 11
    assert set((goal - now).tolist()) == set(range(1, 9))
    assert set(rows.tolist()) == set(range(5))


def test_it_comes_back_from_its_file(trained, tmp_path: Path):
    trained.save(tmp_path / "c.safetensors", {"seed": 0})
    back = ClonedController.load(tmp_path / "c.safetensors")
    assert back.actions == 2 and back.config == TINY and back.size == (16, 12)
    frames = corridor(1, 30, 3)[0][0]
    args = frames[1:-1], frames[2:], frames[:-2]
    np.testing.assert_array_equal(back.outputs(*args), trained.outputs(*args))
    (tmp_path / "c.safetensors").write_bytes(b"anything")
    with pytest.raises(StoreError):
        ClonedController.load(tmp_path / "c.safetensors")


def test_a_seed_makes_one_controller_read_from_a_checkpoint_or_not(tmp_path: Path):
    short = dataclasses.replace(TINY, iterations=5)
    checkpoints = (None, tmp_path / "ck", tmp_path / "ck")
    made = [train_cloned(*corridor(20, 40, 1), 2, short, checkpoint=c, progress=False) for c in checkpoints]
    assert len({digest(controller.network) for controller in made}) == 1
    other = train_cloned(*corridor(20, 40, 1), 2, short, seed=1, progress=False)
    assert digest(other.network) != digest(made[0].network)


def test_training_can_go_on_from_another_controller(trained):
    more = dataclasses.replace(TINY, iterations=0)
    again = train_cloned(*corridor(2, 40, 1), 2, more, start=trained, progress=False)
    assert digest(again.network) == digest(trained.network)
    with pytest.raises(InputError, match="another architecture"):
        train_cloned(*corridor(2, 40, 1), 3, more, start=trained, progress=False)


def test_a_network_that_says_nothing_is_as_good_as_its_favourite_action():
    network = Inverse(TINY, (16, 12), 2)
    torch.nn.init.zeros_(network.head.weight)
    network.head.bias.data = torch.tensor([1.0, 0.0])
    frames, actions = corridor(10, 40, 2)
    controller = ClonedController(network.eval(), (16, 12), 2, TINY)
    accuracy = action_accuracy(controller, frames, np.zeros_like(actions), lags=2, samples=20)
    np.testing.assert_array_equal(accuracy, [1, 1])


def test_wrong_input_is_refused(trained):
    frames, actions = corridor(2, 12, 1)
    with pytest.raises(InputError, match=r"shape \(2, 11\): expected integers \(2, 12\)"):
        train_cloned(frames, actions[:, 1:], 2, TINY)
    with pytest.raises(InputError, match="float64"):
        train_cloned(frames, actions.astype(float), 2, TINY)
    with pytest.raises(InputError, match="from 0 to 1: expected 0 to 0"):
        train_cloned(frames, actions, 1, TINY)
    with pytest.raises(InputError, match="expected at least 10"):
        action_accuracy(trained, frames[:, :9], actions[:, :8])
    with pytest.raises(InputError, match="targets are uint8"):
        trained.outputs(frames[0], frames[0, :, 1:])
    with pytest.raises(InputError, match="13 previous, 13 observations, 12 targets: expected as many of each"):
        trained.outputs(frames[0], frames[0, 1:])
    assert trained.outputs(*[frames[0, :0]] * 3).shape == (0, 2)


def test_without_a_previous_image_the_current_one_is_taken(trained):
    frames = corridor(1, 30, 3)[0][0]
    assert trained.uses_previous
    np.testing.assert_array_equal(
        trained.outputs(frames[1:], frames[:-1]), trained.outputs(frames[1:], frames[:-1], frames[1:])
    )


# -- from experience ---------------------------------------------------------------------------------------------


def images_as_experience(episodes: int, seed: int) -> Experience:
    """Walks of different length along the corridor."""
    frames, actions = corridor(episodes, 40, seed)
    lengths = 20 + np.arange(episodes) % 21
    taken = np.concatenate([actions, actions[:, :1]], axis=1)
    rows = [(frames[e, :n], taken[e, :n], np.full(n, e)) for e, n in enumerate(lengths)]
    observations, chosen, numbers = (np.concatenate(part) for part in zip(*rows, strict=True))
    return Experience(observations, numbers, chosen)


def plane(episodes: int, steps: int, seed: int) -> Experience:
    """A point pushed by (dx, dy) in −2 … 2; observations are position and a useless number, goals the position."""
    random = np.random.default_rng(seed)
    actions = random.uniform(-2, 2, (episodes, steps, 2)).astype(np.float32)
    moves = np.concatenate([random.uniform(-5, 5, (episodes, 1, 2)), actions[:, :-1]], axis=1)
    places = moves.cumsum(axis=1).reshape(-1, 2)
    observations = np.concatenate([places, random.normal(size=(len(places), 1))], axis=1)
    return Experience(observations, np.repeat(np.arange(episodes), steps), actions.reshape(-1, 2), places)


def test_it_learns_discrete_actions_from_images_in_episodes_of_any_length():
    controller = train(images_as_experience(20, 1), TINY, standardise=True, progress=False)
    assert controller.actions == 2 and controller.uses_previous and not controller.config.continuous
    assert action_accuracy(controller, *corridor(10, 40, 2), lags=1, samples=300)[0] > 0.8


def test_it_learns_continuous_actions_towards_goals_of_another_shape(tmp_path: Path):
    controller = train(plane(30, 40, 0), reach=1, iterations=400, width=64, hidden=64, progress=False)
    assert controller.config.continuous and not controller.uses_previous and controller.size == (3, 2)
    held = plane(5, 40, 1)
    now = np.flatnonzero(np.diff(held.episodes, append=9) == 0)
    actions = controller(held.observations[now], held.goals[now + 1], previous=held.observations[now])
    assert np.abs(actions - held.actions[now]).mean() < 0.3 and np.abs(actions).max() <= 2
    far = controller(held.observations[:1], held.goals[:1] + np.array([50.0, 0.0]))
    assert far[0, 0] == pytest.approx(2, abs=0.01)  # never more than what was seen
    controller.save(tmp_path / "c.safetensors")
    back = ClonedController.load(tmp_path / "c.safetensors")
    np.testing.assert_array_equal(back(held.observations, held.goals), controller(held.observations, held.goals))


def test_images_are_flattened_for_a_perceptron():
    controller = train(images_as_experience(20, 1), encoder="mlp", iterations=3, reach=2, progress=False)
    frames = corridor(1, 5, 0)[0][0]
    assert controller(frames[:-1], frames[1:]).shape == (5,)


def test_experience_that_cannot_be_learned_from_is_refused():
    data = plane(2, 5, 0)
    with pytest.raises(InputError, match="no actions"):
        train(Experience(data.observations, data.episodes))
    with pytest.raises(InputError, match="not finite"):
        train(Experience(data.observations, data.episodes, np.full((10, 2), np.nan)))
    with pytest.raises(InputError, match="5,000 different values in all: expected 4,096 or fewer"):
        many = np.arange(5_001)
        train(Experience(many[:, None], np.zeros(5_001, int), -many))
    with pytest.raises(InputError, match="full_speed is for continuous actions"):
        train(Experience(data.observations, data.episodes, np.zeros(10, int)), full_speed=True)
    with pytest.raises(InputError, match="device is 'cudda'"):
        train(data, device="cudda")
    with pytest.raises(InputError, match="data is ndarray: expected sgm.Experience"):
        train(data.observations)
    with pytest.raises(InputError, match="raech is no setting: expected encoder, width"):
        train(data, raech=3)
    with pytest.raises(InputError, match="encoder is 'small', but observations are vectors"):
        train(data, encoder="small")


# -- every kind of action ----------------------------------------------------------------------------------------


def line(actions: np.ndarray, moves: np.ndarray, episodes: int = 25, **more) -> Experience:
    """Walks of a point on a line or in a plane: (n, ...) actions and the (n, d) moves that they make."""
    steps = len(moves) // episodes
    shifted = np.concatenate([np.zeros((episodes, 1, moves.shape[1])), moves.reshape(episodes, steps, -1)[:, :-1]], 1)
    return Experience(shifted.cumsum(axis=1).reshape(len(moves), -1), np.repeat(np.arange(episodes), steps), actions)


def small(data: Experience, **more):
    """A controller trained for a second."""
    return train(data, reach=1, iterations=300, learning_rate=1e-2, width=32, hidden=32, progress=False, **more)


def told(controller, data: Experience) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest actions towards the next observation, and those that were taken."""
    now = np.flatnonzero(np.diff(data.episodes, append=10**6) == 0)
    return controller.likeliest(data.observations[now], data.goals[now + 1]), data.actions[now]


RANDOM = np.random.default_rng(7)
DIRECTIONS = RANDOM.integers(-1, 2, 1_000)
PAIRS = RANDOM.integers(0, 3, (1_000, 2))
PUSHES = RANDOM.uniform(-1, 1, (1_000, 2))


@pytest.mark.parametrize(
    ("actions", "moves", "shape"),
    [
        (DIRECTIONS, DIRECTIONS[:, None], ()),  # Discrete(3, start=-1)
        (DIRECTIONS * 10_000, DIRECTIONS[:, None], ()),  # numbers that are no places of a table
        ((DIRECTIONS + 1).astype(np.uint8), DIRECTIONS[:, None], ()),
        (PAIRS, PAIRS - 1, (2,)),  # MultiDiscrete([3, 3])
        (PAIRS - 5, PAIRS - 1, (2,)),  # MultiDiscrete with a start
        (PAIRS[:, :1], PAIRS[:, :1] - 1, (1,)),
        (PAIRS > 0, (PAIRS > 0) - 0.5, (2,)),  # MultiBinary(2)
    ],
)
def test_discrete_actions_of_every_space_are_learned_and_kept(actions, moves, shape, tmp_path: Path):
    data = line(actions, moves)
    controller = small(data)
    found, taken = told(controller, data)
    assert found.dtype == np.int64 and found.shape == taken.shape
    assert np.mean(found == taken) > 0.9
    controller.temperature = 0.01
    drawn = controller(data.observations[:50], data.goals[1:51])
    assert drawn.shape == (50, *shape) and set(np.unique(drawn)) <= set(np.unique(actions.astype(int)))
    controller.save(tmp_path / "c.safetensors")
    back = ClonedController.load(tmp_path / "c.safetensors")
    assert back.temperature == 0.01 and back.space == controller.space
    np.testing.assert_array_equal(told(back, data)[0], found)


def test_a_discrete_action_that_is_excluded_is_never_taken():
    controller = small(line(DIRECTIONS, DIRECTIONS[:, None]))
    controller.excluded = (-1,)
    assert -1 not in controller(np.zeros((100, 1)), -np.ones((100, 1)))
    controller.excluded = (4,)
    with pytest.raises(InputError, match="action 4 cannot be excluded: the controller has -1 to 1 actions"):
        controller(np.zeros((1, 1)), np.zeros((1, 1)))


def test_boxes_of_any_shape_are_learned_and_full_speed_is_kept(tmp_path: Path):
    data = line(PUSHES.reshape(-1, 1, 2), PUSHES)
    controller = small(data, full_speed=True)
    found, taken = told(controller, data)
    assert found.shape == taken.shape and found.shape[1:] == (1, 2)
    np.testing.assert_allclose(np.abs(found).max(axis=(1, 2)), 1, atol=0.02)  # as fast as any push was
    strong = np.hypot(*taken.reshape(-1, 2).T) > 0.3
    cosine = (found * taken).sum(axis=(1, 2)) / np.linalg.norm(found, axis=(1, 2)) / np.linalg.norm(taken, axis=(1, 2))
    assert np.median(cosine[strong]) > 0.98  # in the same direction
    controller.save(tmp_path / "c.safetensors")
    np.testing.assert_array_equal(told(ClonedController.load(tmp_path / "c.safetensors"), data)[0], found)
    slow = small(data)
    assert np.abs(told(slow, data)[0] - taken).mean() < 0.1


def test_files_of_the_first_version_open(trained, tmp_path: Path):
    from sgm.learning.loop import save_network

    path = tmp_path / "old.safetensors"
    save_network(path, "sgm-cloned-controller-1", trained.network, trained.size, TINY, integers={"actions": 2})
    back = ClonedController.load(path)
    frames = corridor(1, 10, 0)[0][0]
    np.testing.assert_array_equal(back.likeliest(frames, frames), trained.likeliest(frames, frames))


@pytest.mark.parametrize("shape", [(12, 16), (12, 16, 1), (7, 7, 3), (4, 5), (90, 33, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_images_of_every_size_and_kind_are_taken(shape, dtype):
    images = RANDOM.integers(0, 256, (30, *shape)).astype(np.uint8)
    images = images if dtype == np.uint8 else images / 255
    data = Experience(images, np.repeat([0, 1, 2], [2, 20, 8]), RANDOM.integers(0, 3, 30))
    controller = train(data, width=4, hidden=8, iterations=2, batch=8, progress=False)
    assert controller(images[:3], images[1:4], previous=images[:3]).shape == (3,)


def test_images_too_small_for_convolutions_are_told_what_to_do():
    data = Experience(np.zeros((9, 3, 3), np.uint8), np.zeros(9, int), RANDOM.integers(0, 3, 9))
    with pytest.raises(InputError, match="images are 3 × 3: expected 4 × 4 or more; give encoder='mlp'"):
        train(data, iterations=1, progress=False)
    assert train(data, encoder="mlp", iterations=1, progress=False)(*[data.observations] * 2).shape == (9,)


def test_goals_are_drawn_by_true_steps_in_thinned_experience():
    data = line(PUSHES, PUSHES)[::5]
    with pytest.raises(InputError, match="within 4 steps"):
        train(data, reach=4, iterations=1, progress=False)
    train(data, reach=5, iterations=1, progress=False)


def test_training_resumes_and_stops_early_on_held_out_episodes(tmp_path: Path):
    data = line(RANDOM.integers(0, 3, 1_000), PUSHES)  # actions that nothing tells
    made = [small(data, patience=2, checkpoint=c) for c in (None, tmp_path / "ck", tmp_path / "ck")]
    assert len({digest(controller.network) for controller in made}) == 1
    from sgm.learning.tensors import read_tensors

    assert int(read_tensors(tmp_path / "ck", "sgm-fit-checkpoint-1")[1]["iteration"]) < 300


# -- quality -----------------------------------------------------------------------------------------------------


def test_quality_tells_what_was_learned_from_what_was_not():
    data = line(PAIRS, PAIRS - 1)
    controller = small(data)
    found = quality(controller, data, lags=(1, 8, 500))
    assert found.lags.tolist() == [1, 8] and found.measure == "accuracy" and found.samples.tolist() == [975, 800]
    assert found.controller[0] > 0.9 and found.useful[0] and found.constant[0] < 0.25
    assert "steps     accuracy  constant action   samples" in str(found)
    nothing = quality(lambda seen, goals: np.ones((len(seen), 2)), data, lags=(1,))
    assert 0.05 < nothing.controller[0] < 0.2


def test_quality_of_continuous_actions_is_an_error_beside_that_of_the_mean_action():
    data = line(PUSHES, PUSHES)
    ideal = quality(lambda seen, goals: goals - seen, data, lags=(1, 5))
    assert ideal.measure == "error" and ideal.controller[0] == pytest.approx(0, abs=1e-6)
    assert ideal.constant[0] == pytest.approx(0.5, abs=0.05) and ideal.useful.tolist() == [True, False]
    thinned = quality(lambda seen, goals: goals - seen, data[::5], lags=(1, 2, 5))
    assert thinned.lags.tolist() == [5]
    with pytest.raises(InputError, match="no two observations of an episode are 2, 3 steps apart"):
        quality(lambda seen, goals: goals, data[::5], lags=(2, 3))
    with pytest.raises(InputError, match="no actions"):
        quality(lambda seen, goals: goals, Experience(data.observations, data.episodes))


def test_quality_gives_images_with_the_one_before():
    data = images_as_experience(20, 1)
    seen = []

    class Controller:
        uses_previous = True

        def __call__(self, observations, targets, previous):
            seen.append((observations, previous))
            return np.zeros(len(observations), int)

    quality(Controller(), data, lags=(1,), samples=10**6)
    observations, previous = seen[0]
    same = (observations == previous).reshape(len(observations), -1).all(axis=1)
    assert 20 <= same.sum() < len(same) / 2  # at least where episodes begin
