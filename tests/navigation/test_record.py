"""Recorded episodes say where the robot was, which waypoint it went for and where it gave up; they change nothing."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import sgm
from sgm.navigation import Recorder, View
from sgm.navigation.evaluation import STUCK
from sgm.navigation.record import IMAGES, SIDE, UNFINISHED, seen_by

LENGTH, WALL = 20, 12


class Corridor(gymnasium.Env):
    """Places on a line, with a wall that the distance does not see: nobody gets from 12 to 13."""

    def __init__(self):
        box = spaces.Box(0, LENGTH, (2,), np.float32)
        self.observation_space = spaces.Dict({"observation": box, "achieved_goal": box, "desired_goal": box})
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal, self.elapsed = 0, (options or {}).get("goal", 8), 0
        return self._seen(), {}

    def step(self, action):
        after = self.place + int(action) - 1
        if {self.place, after} != {WALL, WALL + 1}:
            self.place = int(np.clip(after, 0, LENGTH - 1))
        self.elapsed += 1
        there = self.place == self.goal
        return self._seen(), 0.0, there, self.elapsed >= 60, {"success": there}

    def _seen(self):
        here, goal = np.array([self.place, 0], np.float32), np.array([self.goal, 0], np.float32)
        return {"observation": here, "achieved_goal": here, "desired_goal": goal}


class Line:
    """Steps between places."""

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return np.abs(starts[:, None, 0] - goals[None, :, 0])


def towards(observations, targets):
    return 1 + np.sign(targets[:, 0] - observations[:, 0]).astype(np.int64)


def navigator(**how):
    memory = sgm.SparseGraphicalMemory(
        Line(), tau_a=0.5, max_dist=3.0, k=2, keep_observations=True, policy="first-failure"
    )
    memory.extend(np.stack([np.arange(LENGTH), np.zeros(LENGTH)], axis=1).astype(np.float32))
    return sgm.Navigator(memory, towards, arrival="distance", cutoff=0.5, max_steps=5, **how)


def evaluate(recorder=None, goal=8, episodes=3, **how):
    env = gymnasium.vector.SyncVectorEnv([Corridor] * 2)
    return sgm.evaluate(navigator(**how), env, episodes, options={"goal": goal}, recorder=recorder)


def test_an_episode_that_succeeds_is_recorded_step_by_step():
    recorder = Recorder("evaluation", 2, seen_by("achieved_goal"), "before cleanup")
    result = evaluate(recorder)
    first, second = recorder.episodes
    assert (first.title, second.title) == ("evaluation 1, before cleanup", "evaluation 2, before cleanup")
    assert first.success and first.reason == "" and first.gave_up is None and not first.cuts
    assert first.positions[:, 0].tolist() == list(range(9)) and len(first) == result.steps[0] + 1
    assert first.goal_position.tolist() == [8, 0] and first.goal_node == 8
    assert first.plans[0][0] == 0 and first.plans[0][1][-1] == 8
    assert set(first.waypoints.tolist()) <= {*first.plans[0][1], -1}
    reached = first.nodes[first.nodes >= 0]
    assert (np.diff(reached) >= 0).all() and len(reached)


def test_an_episode_that_gets_stuck_says_where_it_gave_up():
    recorder = Recorder("evaluation", 1, seen_by("achieved_goal"))
    result = evaluate(recorder, goal=18, episodes=1, replan=False, removals="none")
    (episode,) = recorder.episodes
    assert not episode.success and episode.reason == result.failures[0] == STUCK
    step, u, v = episode.gave_up
    assert step == len(episode) - 1 and u <= WALL < v
    assert v == result.stuck_at[0]
    assert episode.positions[-1].tolist() == [WALL, 0]


def test_edges_that_fail_in_an_evaluation_are_told():
    recorder = Recorder("evaluation", 1, seen_by("achieved_goal"))
    evaluate(recorder, goal=18, episodes=1)
    (episode,) = recorder.episodes
    assert episode.cuts and all(u <= WALL < v for _, u, v in episode.cuts)


def test_recording_changes_no_result():
    plain, recorded = evaluate(), evaluate(Recorder("evaluation", 3, seen_by("achieved_goal")))
    assert plain.successes.tolist() == recorded.successes.tolist()
    assert plain.steps.tolist() == recorded.steps.tolist()


def test_cleanup_episodes_tell_which_edges_failed():
    env = gymnasium.vector.SyncVectorEnv([Corridor] * 2)
    recorder, agent = Recorder("cleanup", 40, seen_by("achieved_goal")), navigator()
    report = sgm.cleanup(agent, env, 600, options={"goal": -1}, recorder=recorder, progress=False)
    assert report.removed
    found = recorder.episodes
    assert all(episode.kind == "cleanup" for episode in found)
    removed = agent.memory.removed()
    cut = {(u, v) for episode in found for _, u, v in episode.cuts}
    assert cut and {*zip(removed.source.tolist(), removed.target.tolist(), strict=True)} <= cut
    assert [episode.success for episode in found].count(True) <= report.arrived
    assert {episode.reason for episode in found} <= {
        "",
        "time",
        "start not connected to goal",
        "ended by the environment",
        UNFINISHED,
    }


def test_images_are_few_and_small_and_the_last_one_is_among_them():
    def images(_, rows):
        drawn.append(len(rows))
        return np.full((len(rows), 120, 160, 3), len(drawn) % 256, np.uint8)

    drawn: list[int] = []
    recorder = Recorder("evaluation", 1, View(images=images))
    evaluate(recorder, goal=18, episodes=1, replan=False, removals="none")
    (episode,) = recorder.episodes
    assert 2 <= len(episode.images) <= IMAGES < len(episode)
    assert max(episode.images) == len(episode) - 1
    assert episode.images[len(episode) - 1].shape == (SIDE * 3 // 4, SIDE, 3)
    assert episode.images[len(episode) - 1][0, 0, 0] == len(drawn)
    assert np.isnan(episode.positions).all()


def test_places_are_those_of_their_step_also_where_an_environment_shows_its_own_state():
    state = np.zeros((2, 2))

    def here(observations):
        state[:] = observations["achieved_goal"]
        return state

    recorder = Recorder("evaluation", 1, View(here, here))
    evaluate(recorder, episodes=1)
    assert recorder.episodes[0].positions[:, 0].tolist() == list(range(9))
    assert recorder.episodes[0].goal_position.tolist() == [0, 0]


@pytest.mark.parametrize("observations", [np.zeros((2, 20, 30), np.uint8), {"observation": np.zeros((2, 20, 30, 3))}])
def test_images_of_any_environment_are_seen(observations):
    assert seen_by(None).images(observations, np.array([1])).shape[0] == 1
    assert seen_by(None).places(observations) is None


def test_an_agent_without_a_memory_is_recorded_by_its_places():
    env, recorder = gymnasium.vector.SyncVectorEnv([Corridor]), Recorder("evaluation", 1, seen_by("observation"))
    sgm.evaluate(towards, env, 1, recorder=recorder)
    (episode,) = recorder.episodes
    assert episode.success and (episode.nodes == -1).all() and episode.positions[-1, 0] == 8
