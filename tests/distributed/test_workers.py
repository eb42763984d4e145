"""Many workers, one memory: the same result wherever they run, and one clear error when something is wrong."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgm
from sgm import navigation
from sgm.distributed import Crew, CrewReport, messages
from sgm.distributed.backends import InProcess
from sgm.distributed.collecting import divided
from sgm.distributed.owner import Owner
from sgm.errors import MissingExtra, WorkerError
from sgm.memory.follow import Follower, changes_since, version_of
from tests.conftest import plane
from tests.distributed.test_exactly_once import ROOT, alive, counted, wait_until
from tests.distributed.world import (
    ENV,
    HOW,
    StraightOn,
    agent,
    build,
    dying_env,
    env_that_raises,
    hanging_env,
    journals,
    make_env,
    observations,
    raising_env,
    replayed,
    tries,
)

HERE = {"backend": "in-process", "progress": False, **HOW}


def state(memory):
    return tries(memory), memory.tried(), [ends.tolist() for ends in memory.removed()[:2]]


# -- one result --------------------------------------------------------------------------------------------------


def test_one_worker_is_cleanup_as_ever():
    one, two = build(), build()
    before = navigation.cleanup(agent(one), make_env(), 600, seed=3, progress=False, **HOW)
    after = sgm.cleanup(agent(two), ENV, 600, seed=3, progress=False, **HOW)
    assert state(one) == state(two) and tries(one)
    assert dataclasses.replace(before, seconds=0.0) == dataclasses.replace(after, seconds=0.0)


def test_workers_in_processes_find_what_they_find_in_turn_here():
    here, there = build(policy="guarded"), build(policy="guarded")
    one = sgm.cleanup(agent(here), ENV, 700, seed=3, workers=2, **HERE)
    two = sgm.cleanup(agent(there), ENV, 700, seed=3, workers=2, progress=False, **HOW)
    assert state(here) == state(there) and one.steps == two.steps == 700
    assert dataclasses.replace(one, seconds=0.0) == dataclasses.replace(two, seconds=0.0)
    assert here.tried() == replayed(here).tried() and one.records == len(tries(here)) > 50


def test_seeds_and_numbers_of_workers_differ_and_workers_do_not_repeat_each_other():
    found = []
    for seed, workers in ((3, 2), (4, 2), (3, 3)):
        memory = build()
        sgm.cleanup(agent(memory), ENV, 300, seed=seed, workers=workers, **HERE)
        found.append(tries(memory))
    assert found[0] != found[1] and found[0] != found[2]
    memory = build(policy="belief")
    with Crew(agent(memory), ENV, workers=2, backend="in-process", seed=0, **HOW) as crew:
        crew.run(400)
        first, second = (member.handle._worker for member in crew.pool.members)
        places = [worker.cleaner.driver.observation["observation"] for worker in (first, second)]
        assert not np.array_equal(*places)
        assert first.agent.controller.random.random() != second.agent.controller.random.random()


def test_a_crew_goes_on_where_it_was_and_begins_anew_when_told_to():
    memory, again = build(), build()
    with Crew(agent(memory), ENV, workers=2, backend="in-process", seed=0, **HOW) as crew:
        reports = [crew.run(256), crew.run(256)]
        crew.begin(9)
        crew.run(256)
        assert sum(report.records for report in reports) < len(tries(memory)) == memory.records
    with Crew(agent(again), ENV, workers=2, backend="in-process", seed=0, **HOW) as crew:
        crew.run(512)
    assert tries(again) == tries(memory)[: len(tries(again))]
    assert not memory._applied  # nobody will send anything again


def test_collecting_depends_on_seed_steps_and_workers_only():
    how = {"workers": 3, "seed": 2, "progress": False, "episode_steps": 20}
    here = sgm.collect(ENV, 400, backend="in-process", **how)
    there = sgm.collect(ENV, 400, **how)
    for name in ("observations", "actions", "episodes", "achieved_goals"):
        assert np.array_equal(getattr(here, name), getattr(there, name))
    alone = sgm.collect(make_env(), 400, seed=2, progress=False, episode_steps=20)
    assert len(here.actions) - here.number_of_episodes == 400 == len(alone.actions) - alone.number_of_episodes
    assert np.array_equal(
        alone.observations, navigation.collect(make_env(), 400, seed=2, progress=False, episode_steps=20).observations
    )
    parts = divided(10, 4, 0)
    assert [part.steps for part in parts] == [2, 3, 2, 3] and len({part.seed for part in parts}) == 4
    assert [part.steps for part in divided(2, 8, 0)] == [1, 1]


# -- copies that follow ------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["first-failure", "guarded", "belief", "spares"]), st.booleans())
def test_a_copy_that_follows_is_like_its_owner_after_every_message(seed, policy, folds):
    """Whatever was tried here and there; with events that are folded before they are asked for, too."""
    dice = np.random.default_rng(seed)
    chosen = sgm.FirstFailure(guard=True, spares=True) if policy == "spares" else policy
    points, steps = plane(40, seed=seed % 1000)
    owner = sgm.SparseGraphicalMemory(
        sgm.TableDistance(steps), tau_a=1.0, tau_p=None, max_dist=6.0, k=3, policy=chosen, keep_events=0
    )
    owner.extend(np.arange(len(points)))
    edges = owner.edges(filtered=False)
    follower = Follower(copy.deepcopy(owner))
    for _ in range(4):
        for memory in (owner, follower.memory):
            rows = dice.integers(len(edges.source), size=6)
            memory.record_many(edges.source[rows], edges.target[rows], dice.random(6) < 0.4)
        if folds:
            owner._log.evidence, _ = owner._log.replayed()
            owner._log.folded, owner._log.folded_records = len(owner._log), owner.records
            owner._log._rows.cut(0)
            owner._log._recent = []
        follower.take(changes_since(owner, follower.version))
        assert follower.version == version_of(owner) and follower.memory.records == owner.records
        assert {e: k for e, k in follower.memory._graph.evidence.items() if k != sgm.Evidence()} == {
            e: k for e, k in owner._graph.evidence.items() if k != sgm.Evidence()
        }
        assert (follower.memory.prices() != owner.prices()).nnz == 0
        assert len(follower.memory.events().sequence) <= len(edges.source) and follower.memory._log.keep is None


def test_a_copy_of_another_size_cannot_follow():
    memory = build()
    with Crew(agent(memory), ENV, workers=1, backend="in-process", **HOW) as crew:
        crew.run(64)
        memory.extend(observations(40, seed=9))
        with pytest.raises(WorkerError, match="extend it before or after"):
            crew.run(640)


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (raising_env, r"worker [01]: make_env\(\) raised RuntimeError: no display"),
        (env_that_raises, r"worker [01]: ValueError: the simulator broke \(world.py, line"),
    ],
)
def test_errors_of_environments_are_told_in_one_sentence(env, words):
    for backend in ("in-process", "multiprocessing"):
        with pytest.raises(WorkerError, match=words):
            sgm.cleanup(agent(build()), env, 100, workers=2, backend=backend, progress=False, **HOW)
    with pytest.raises(WorkerError, match="worker . ?: "):
        sgm.collect(env, 100, workers=2, backend="in-process", progress=False)


def test_what_others_have_sent_is_kept_when_a_worker_fails():
    class AllAtOnce(InProcess):
        def wait(self, handles, timeout):
            return list(handles)

    made = []

    def make():
        made.append(make_env(4) if not made else env_that_raises())
        return made[-1]

    memory = build()
    with pytest.raises(WorkerError, match="worker 1: ValueError: the simulator broke"):
        sgm.cleanup(agent(memory), make, 2000, workers=2, backend=AllAtOnce(), progress=False, **HOW)
    assert memory.records == len(tries(memory)) > 0


def test_what_cannot_be_sent_is_named_and_a_way_out_is_given():
    with pytest.raises(sgm.InputError, match=r"make_env cannot be sent .*no lambda"):
        sgm.cleanup(agent(build()), lambda: make_env(), 100, workers=2, progress=False, **HOW)
    with pytest.raises(sgm.InputError, match="agent cannot be sent"):
        lame = navigation.Navigator(build(), lambda seen, goals: StraightOn()(seen, goals), max_steps=8, cutoff=1.5)
        sgm.cleanup(lame, ENV, 100, workers=2, progress=False, **HOW)
    with pytest.raises(sgm.InputError, match="give a function that makes an environment"):
        sgm.cleanup(agent(build()), make_env(), 100, workers=2, progress=False)
    with pytest.raises(sgm.InputError, match="give a function that makes an environment"):
        sgm.collect(make_env(), 100, workers=2, progress=False)


def test_arguments_that_mean_nothing_are_refused():
    for wrong, words in (
        ({"workers": 0}, "workers"),
        ({"workers": 2, "backend": "threads"}, "'multiprocessing', 'ray', 'in-process'"),
        ({"workers": 2, "order": "random"}, "'rounds', 'arrival'"),
        ({"workers": 2, "recorder": object()}, "workers=1"),
    ):
        with pytest.raises(sgm.InputError, match=words):
            sgm.cleanup(agent(build()), ENV, 100, progress=False, **wrong)


def test_a_missing_extra_is_told_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"backend='ray' needs ray: pip install .*\[ray\]"):
        sgm.cleanup(agent(build()), ENV, 100, workers=2, backend="ray", progress=False)


def test_another_version_where_workers_run_is_told():
    text = messages.version_problem("9.9")
    assert text is not None and "9.9" in text and sgm.__version__ in text and "same version" in text
    assert messages.version_problem(sgm.__version__) is None


def test_a_worker_that_hangs_is_replaced_and_at_last_told_of():
    """Nobody is waited for for ever: neither one that answers no more, nor one that never starts."""

    class Silent(InProcess):
        """Workers that start, and then say nothing; or do not even start."""

        def __init__(self, starts):
            self.starts, self.stopped = starts, 0

        def start(self, make):
            handle = super().start(make)
            handle.fresh, handle.stop = True, self.stop
            return handle

        def stop(self):
            self.stopped += 1

        def wait(self, handles, timeout):
            fresh = [handle for handle in handles if handle.fresh and self.starts]
            for handle in fresh:
                handle.fresh = False
            return fresh

    backend = Silent(starts=True)
    with pytest.raises(WorkerError, match="has not answered for 0.01 seconds"):
        sgm.cleanup(agent(build()), ENV, 100, workers=2, backend=backend, timeout=0.01, progress=False)
    assert backend.stopped >= 9
    with pytest.raises(WorkerError, match="worker 0 has not started.*longer timeout"):
        sgm.cleanup(agent(build()), ENV, 100, workers=2, backend=Silent(False), timeout=0.01, progress=False)


@pytest.mark.skipif(os.name != "posix", reason="kills processes as POSIX has them")
def test_a_process_that_hangs_is_killed():
    memory = build()
    with Crew(agent(memory), hanging_env, workers=1, timeout=60, **HOW) as crew:
        while not crew.pool.members[0].num_envs:
            crew.pool.wait()
        process = crew.pool.members[0].handle.process
        crew.pool.timeout, crew.pool._most_deaths = 0.5, 1
        with pytest.raises(WorkerError, match="has not answered for 0.5 seconds"):
            crew.run(10)
    with pytest.raises(ValueError, match="closed"):
        process.is_alive()


def test_reports_are_plain_numbers():
    report = CrewReport(1, 2, 3, 4, 5.0, 2, 1, 9, 3)
    assert report.asdict()["stale"] == 3 and isinstance(report, navigation.CleanupReport)


# -- Ray ---------------------------------------------------------------------------------------------------------

RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")


@pytest.fixture(scope="module")
def cluster():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@RAY
@pytest.mark.filterwarnings("ignore")
def test_workers_on_ray_find_what_they_find_here(cluster):
    for workers in (1, 2, 3):  # three on two processors
        here, there = build(), build()
        sgm.cleanup(
            agent(there), lambda: make_env(4), 300, seed=3, workers=workers, backend="ray", progress=False, **HOW
        )
        with Crew(agent(here), ENV, workers=workers, backend="in-process", seed=3, **HOW) as crew:
            crew.run(300)
        assert state(here) == state(there) and tries(here)
    here = sgm.collect(ENV, 100, workers=2, backend="in-process", seed=1, progress=False)
    there = sgm.collect(ENV, 100, workers=2, backend="ray", seed=1, progress=False)
    assert np.array_equal(here.observations, there.observations)


@RAY
@pytest.mark.filterwarnings("ignore")
def test_errors_and_deaths_on_ray(cluster, tmp_path):
    with pytest.raises(WorkerError, match="worker 0: ValueError: the simulator broke"):
        sgm.cleanup(agent(build()), env_that_raises, 100, workers=1, backend="ray", progress=False, **HOW)
    (tmp_path / "token").touch()
    memory = build()
    env = functools.partial(dying_env, str(tmp_path), 0.2)
    report = sgm.cleanup(agent(memory), env, 400, workers=2, backend="ray", progress=False, **HOW)
    assert report.steps == 400 and report.died == 1 and report.records == memory.records == len(tries(memory))


@RAY
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_without_room_is_told_of_and_not_waited_for(cluster):
    """Ray waits for ever for an actor that no machine has room for."""

    @cluster.remote(num_cpus=2)
    class Greedy:
        def here(self):
            return True

    greedy = Greedy.remote()
    assert cluster.get(greedy.here.remote(), timeout=120)
    try:
        with pytest.raises(
            WorkerError, match=r"has not started.*needs 1 CPU; the Ray cluster has 2, of which 0 are free"
        ):
            sgm.cleanup(agent(build()), ENV, 100, workers=1, backend="ray", timeout=3, progress=False, **HOW)
    finally:
        cluster.kill(greedy)


@RAY
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes as Linux shows them")
def test_a_killed_driver_of_ray_leaves_no_worker_and_loses_nothing_that_was_sent(cluster, tmp_path):
    """What workers had answered is in the file or beside it; only what they had under way may be lost."""
    command = [sys.executable, "-m", "tests.distributed.run_owner", str(tmp_path), "1000000", "0", "ray"]
    env = {**os.environ, "RAY_ADDRESS": cluster.get_runtime_context().gcs_address}
    owner = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: len([rows for rows in journals(tmp_path).values() if len(rows) > 40]) == 2)
    finally:
        owner.kill()
        owner.wait()
    wait_until(lambda: not any(alive(int(path.stem)) for path in tmp_path.glob("*.pid")))
    with build(tmp_path / "memory.sgm") as memory:
        left = Owner(memory)
        left.close()
        found = collections.Counter(tries(memory))
        written = counted(journals(tmp_path))
        assert not found - written  # none counts twice
        lost = sum((written - found).values())
        assert lost <= 2 * 4 * 4  # less than what two workers try in one batch of 4 turns of 4 robots
        assert memory.tried() == replayed(memory).tried() and memory.records == sum(found.values()) > 40
    assert not list(tmp_path.glob("*evidence*"))


@RAY
@pytest.mark.filterwarnings("ignore")
def test_one_worker_on_one_processor_does_not_wait_for_ever():
    """An actor holds its processor for good, so one that asked Ray for another would wait; workers ask for none.

    The whole run is in a process of its own with a time limit, so that a hang is a failure here and not a hang.
    """
    code = (
        "import ray; ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level='ERROR')\n"
        "import sgm\n"
        "from tests.distributed.world import ENV, HOW, agent, build\n"
        "for workers in (1, 2):\n"
        "    memory = build()\n"
        "    how = dict(HOW, workers=workers, backend='ray', progress=False, timeout=200)\n"
        "    r = sgm.cleanup(agent(memory), ENV, 200, **how)\n"
        "    assert r.steps == 200 and r.died == 0\n"
        "print('done')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.stdout.endswith("done\n"), done.stderr[-2000:]
