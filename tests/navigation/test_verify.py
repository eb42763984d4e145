"""Verification along own motion, in a made-up world where the truth is known and many places look alike."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import sgm
from sgm.navigation import (
    LinearMotion,
    dead_reckon,
    prune_doubtful,
    record_doubts,
    remove_doubtful,
    verify,
    verify_edges,
)

SIZE, ROOMS, LENGTH = 12.0, 4, 120


class World:
    """Walks through 4 × 4 rooms; rooms come in pairs that look much the same, one turned against the other."""

    def __init__(self, seed: int = 0, episodes: int = 40, alias: float = 0.8) -> None:
        random = np.random.default_rng(seed)
        poses = np.empty((episodes, LENGTH, 3))
        state = np.column_stack([random.uniform(0, SIZE, (episodes, 2)), random.uniform(-np.pi, np.pi, episodes)])
        for step in range(LENGTH):
            poses[:, step] = state
            state[:, 2] += random.normal(0, 0.25, episodes)
            ahead = state[:, :2] + 0.25 * np.stack([np.cos(state[:, 2]), np.sin(state[:, 2])], axis=1)
            out = ((ahead < 0) | (ahead > SIZE)).any(axis=1)
            state[:, 2] += np.where(out, np.pi / 2, 0.0)
            state[:, :2] = np.where(out[:, None], state[:, :2], ahead)
        self.poses = poses.reshape(-1, 3)
        self.episodes = np.repeat(np.arange(episodes), LENGTH)
        self.embeddings = self.look(self.poses, random, alias)
        self.odometry = self.moved(seed + 1)

    @staticmethod
    def look(poses, random, alias):
        """Random waves over place and heading, of which a share depends on the pair of rooms and not on the room."""
        room = np.minimum(poses[:, :2] * ROOMS / SIZE, ROOMS - 1e-9).astype(int) @ [ROOMS, 1]
        middle = (np.stack([room // ROOMS, room % ROOMS], axis=1) + 0.5) * SIZE / ROOMS
        order = random.permutation(ROOMS**2)
        turn = random.uniform(-np.pi, np.pi, ROOMS**2)[room]
        local = rigid(np.column_stack([poses[:, :2] - middle, poses[:, 2]]), 0, 0, turn)
        waves = []
        for kind, share in ((order[room] // 2, alias), (room, 1 - alias)):
            seen = np.column_stack([local[:, :2], np.cos(local[:, 2]), np.sin(local[:, 2])])
            bases, phases = random.normal(0, 1.0, (ROOMS**2, 4, 48)), random.uniform(0, 6.28, (ROOMS**2, 48))
            waves.append(np.cos(np.einsum("nd,ndw->nw", seen, bases[kind]) + phases[kind]) * np.sqrt(share))
        return np.concatenate(waves, axis=1).astype(np.float32)

    def moved(self, seed):
        """Own motion: the truth with a little drift, every episode in a frame of its own."""
        random = np.random.default_rng(seed)
        found = np.empty_like(self.poses)
        for episode in np.unique(self.episodes):
            rows = self.episodes == episode
            track = self.poses[rows].copy()
            track[:, :2] += np.cumsum(random.normal(0, 0.02, (rows.sum(), 2)), axis=0)
            found[rows] = rigid(track, *random.uniform(-20, 20, 2), random.uniform(-np.pi, np.pi))
        return found

    @functools.cached_property
    def pairs(self):
        """Pairs of two episodes that look alike, whatever is true."""
        unit = self.embeddings / np.linalg.norm(self.embeddings, axis=1, keepdims=True)
        rows = np.arange(0, len(unit), 3)
        one, other = np.nonzero(np.triu(unit[rows] @ unit[rows].T > 0.72, 1))
        pairs = rows[np.stack([one, other], axis=1)]
        pairs = pairs[self.episodes[pairs[:, 0]] != self.episodes[pairs[:, 1]]]
        return pairs[np.sort(np.random.default_rng(5).permutation(len(pairs))[:1500])]

    @functools.cached_property
    def true(self):
        return np.hypot(*(self.poses[self.pairs[:, 0], :2] - self.poses[self.pairs[:, 1], :2]).T) < 2.5

    def verified(self, **how):
        settings = {"poses": self.odometry, "embeddings": self.embeddings, "episodes": self.episodes, "drift": 0.1}
        return verify(self.pairs, **{**settings, **how})


def rigid(track, x, y, angle):
    """A track moved and turned as one."""
    cos, sin = np.cos(angle), np.sin(angle)
    turned = np.stack([cos * track[:, 0] - sin * track[:, 1], sin * track[:, 0] + cos * track[:, 1]], axis=1)
    return np.column_stack([turned + np.array([x, y]), track[:, 2] + angle])


def auc(score, true):
    order = np.argsort(np.argsort(score)) + 1
    return (order[true].sum() - true.sum() * (true.sum() + 1) / 2) / (true.sum() * (~true).sum())


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture(scope="module")
def found(world):
    return world.verified()


def test_true_edges_are_told_from_false_ones(world, found):
    assert 0.15 < (~world.true).mean() < 0.85  # the pictures alone do not tell
    assert auc(found.score, world.true) > 0.97
    kept = found.posterior >= 0.5
    assert (~world.true[kept]).mean() < 0.1 * (~world.true).mean()
    assert kept[world.true].mean() > 0.9


@pytest.mark.parametrize(("seed", "alias"), [(3, 0.8), (4, 0.65), (5, 0.9)])
def test_how_many_edges_are_doubted_follows_from_the_data(seed, alias):
    world = World(seed, alias=alias)
    found = world.verified()
    assert abs(found.true_share - world.true.mean()) < 0.12
    assert abs((found.posterior >= 0.5).mean() - world.true.mean()) < 0.12


def test_it_does_not_matter_where_an_episode_begins_and_which_way_it_faces(world, found):
    assert np.allclose(world.verified(poses=world.moved(1)).posterior, found.posterior)
    random = np.random.default_rng(7)
    moved = world.odometry.copy()
    for episode in np.unique(world.episodes):
        rows = world.episodes == episode
        moved[rows] = rigid(moved[rows], *random.uniform(-9, 9, 2), random.uniform(-np.pi, np.pi))
    again = world.verified(poses=moved)
    assert np.allclose(again.surroundings, found.surroundings, equal_nan=True)
    assert np.abs(again.posterior - found.posterior).max() < 0.02


def test_units_of_length_and_the_order_of_a_pair_do_not_matter(world, found):
    scaled = world.odometry * [100.0, 100.0, 1.0]
    assert np.allclose(world.verified(poses=scaled).posterior, found.posterior, atol=1e-6)
    turned = verify(world.pairs[:, ::-1], world.odometry, world.embeddings, world.episodes, drift=0.1)
    assert np.abs(turned.posterior - found.posterior).max() < 0.02


def test_pairs_a_few_steps_apart_in_one_episode_are_proven(world):
    found = world.verified()
    rows = np.concatenate([world.pairs, [[10, 15], [LENGTH - 1, LENGTH]]])
    more = verify(rows, world.odometry, world.embeddings, world.episodes, drift=0.1)
    assert more.proven[-2:].tolist() == [True, False]
    assert more.posterior[-2] == 1.0 and more.posterior[-1] < 0.5
    assert found.proven.sum() == 0


def test_with_a_shared_compass_positions_are_enough(world):
    shared = world.poses[:, :2] + np.random.default_rng(0).uniform(-9, 9, (40, 2))[world.episodes]
    assert auc(world.verified(poses=shared).score, world.true) > 0.9


def test_a_distance_may_say_how_alike_observations_are(world, found):
    def likeness(one, other):
        return -np.linalg.norm(one[:, None] - other, axis=-1)

    few = verify(world.pairs[::3], world.odometry, world.embeddings, world.episodes, drift=0.1, similarity=likeness)
    assert auc(few.score, world.true[::3]) > 0.9


def test_without_any_pair_there_is_nothing_to_judge(world):
    none = verify(np.empty((0, 2), int), world.odometry, world.embeddings, world.episodes)
    assert len(none) == 0 and none.calibration["judged"] == 0


def memory_of(world, policy="belief"):
    class Likeness:
        def embed(self, rows):
            return world.embeddings[np.asarray(rows)]

        def __call__(self, starts, goals):
            unit = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (starts, goals)]
            return np.maximum(0.0, 20 * (1 - unit[0] @ unit[1].T)).astype(np.float32)

    memory = sgm.SparseGraphicalMemory(
        Likeness(), tau_p=None, tau_a=3.0, max_dist=5.0, k=6, policy=policy, reversible=True
    )
    memory.extend(np.arange(len(world.poses)), episode=world.episodes)
    return memory


def false_share(world, memory):
    edges, poses = memory.edges(), world.poses[memory.nodes]
    return (np.hypot(*(poses[edges.source, :2] - poses[edges.target, :2]).T) > 3.0).mean()


@pytest.fixture(scope="module")
def built():
    world = World(2, episodes=30)
    memory = memory_of(world)
    return world, memory, verify_edges(memory, world.odometry, world.embeddings, world.episodes, drift=0.1)


def test_doubtful_edges_of_a_memory_are_removed_as_events(built, tmp_path):
    world, memory, found = built
    before, edges = false_share(world, memory), len(memory.edges().source)
    memory.save(tmp_path / "m.sgm")
    with sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", memory.distance) as live:
        removed = remove_doubtful(live, found)
        assert removed and len(live.edges().source) == edges - removed
        assert before > 0.02 and false_share(world, live) < 0.35 * before
        assert set(live.events().kind) == {"removed"} and len(live.events().kind) == removed
    again = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", memory.distance)
    assert len(again.removed().source) == removed and again.restore() == removed


def test_doubtful_edges_that_are_pruned_make_room_for_others(built):
    world, memory, found = built
    with pytest.raises(sgm.InputError, match="does not include every edge"):
        prune_doubtful(memory, found)  # it is of those that pass the filter
    how = {"drift": 0.1, "filtered": False}
    pruned = prune_doubtful(memory, verify_edges(memory, world.odometry, world.embeddings, world.episodes, **how))
    assert false_share(world, pruned) < 0.35 * false_share(world, memory)
    edges, before = ({*zip(*each.edges()[:2], strict=True)} for each in (pruned, memory))
    assert edges - before and before - edges


def test_doubts_can_count_as_evidence_instead(built):
    world, _, found = built
    memory = memory_of(world)
    assert record_doubts(memory, found, tries=4) > 0
    assert len(memory.removed().source) == 0
    tried = memory.tried()
    poses = world.poses[memory.nodes]
    apart = np.array([np.hypot(*(poses[u, :2] - poses[v, :2])) for u, v in tried])
    failed = np.array([evidence.failures for evidence in tried.values()])
    assert failed[apart > 3].mean() > 1.0 > failed[apart <= 3].mean()


def test_a_verification_of_another_memory_is_refused(built):
    world, memory, _ = built
    other = verify(world.pairs[:10], world.odometry, world.embeddings, world.episodes)
    with pytest.raises(sgm.InputError, match="does not include every edge"):
        remove_doubtful(memory, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"poses": np.zeros((5, 3))}, "poses, embeddings and episodes"),
        ({"episodes": np.arange(40 * LENGTH)[::-1]}, "episodes decrease"),
        ({"angle": 0}, "angle 0"),
        ({"radius": -1.0}, "the radius is -1"),
        ({"reach": LENGTH}, "no episode has more than"),
    ],
)
def test_what_does_not_fit_is_refused(world, change, message):
    with pytest.raises(sgm.InputError, match=message):
        world.verified(**change)
    with pytest.raises(sgm.InputError, match="rows from 0"):
        verify([[0, 10**6]], world.odometry, world.embeddings, world.episodes)


def walk(seed=0, episodes=8, length=60):
    """Experience of a robot with momentum: actions 0 forwards, 1 and 2 turn, 3 idles."""
    random = np.random.default_rng(seed)
    actions = random.integers(4, size=(episodes, length))
    poses = np.zeros((episodes, length, 3))
    for track, acts in zip(poses, actions, strict=True):
        speed, turn, (x, y, heading) = 0.0, 0.0, random.normal(size=3)
        for step, action in enumerate(acts):
            track[step] = x, y, heading
            speed = 0.5 * speed + (action == 0)
            turn = 0.2 * (action == 1) - 0.2 * (action == 2)
            x, y, heading = x + speed * np.cos(heading), y + speed * np.sin(heading), heading + turn
    labels = np.repeat(np.arange(episodes), length)
    return sgm.Experience(np.zeros((len(labels), 1)), labels, actions.reshape(-1)), poses.reshape(-1, 3)


def test_a_motion_model_fitted_on_odometry_reckons_other_episodes():
    data, poses = walk(0)
    motion = LinearMotion.fit(data.actions, poses, data.episodes, memory=12)
    other, truth = walk(1)
    found = dead_reckon(other, motion)
    for rows in other.rows_by_episode():
        there = rigid(found[rows], 0, 0, truth[rows][0, 2])
        assert np.abs(there[:, :2] - there[0, :2] - truth[rows][:, :2] + truth[rows][0, :2]).max() < 0.05
    assert motion.error.max() < 1e-2


def test_motion_of_vectors_of_actions():
    data, poses = walk(0)
    vectors = np.eye(4)[data.actions]
    motion = LinearMotion.fit(vectors, poses, data.episodes, memory=12)
    by_number = LinearMotion.fit(data.actions, poses, data.episodes, memory=12)
    assert np.allclose(motion(vectors[:30]), by_number(data.actions[:30]))
    assert motion(vectors[:0]).tolist() == [[0.0, 0.0, 0.0]]


def test_dead_reckoning_needs_all_actions():
    data, poses = walk(0)
    motion = LinearMotion.fit(data.actions, poses, data.episodes)
    with pytest.raises(sgm.InputError, match="leaves out steps"):
        dead_reckon(data[::2], motion)
    with pytest.raises(sgm.InputError, match="no actions"):
        dead_reckon(sgm.Experience(np.zeros((4, 1)), np.zeros(4, int)), motion)
    with pytest.raises(sgm.InputError, match="returned an array of shape"):
        dead_reckon(data, lambda actions: np.zeros((len(actions), 3)))
    with pytest.raises(sgm.InputError, match="fitted on actions under 4"):
        motion(np.array([7]))
