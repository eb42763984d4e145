"""ViZDoom, the paper's second benchmark: a first-person maze, a distance between images, a cloned controller."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.base import Benchmark, Method, Piece, Row
from sgm.benchmarks.checks import COUNT
from sgm.benchmarks.ground_truth import edge_lengths, share_over
from sgm.benchmarks.results import read_quality
from sgm.benchmarks.seeds import Purpose
from sgm.benchmarks.shown import Shown
from sgm.navigation import PolicyAgent, View, agents, record_doubts, remove_doubtful, verify_edges
from sgm.navigation.beside import Floor

from . import figure_data
from .figures import FALSE
from .learn import TEMPERATURE, explore, learn
from .report import console, report
from .settings import QUICK, DoomSettings

# All methods share the agent and the settings of building, which were chosen on tasks of other seeds.
BUILD: dict[str, Any] = {"tau_a": 4.0, "tau_p": 0.5, "max_dist": 8.0, "k": 5}
WINDOW: dict[str, Any] = {"window": 2, "aggregate": "mean"}
AGENT: dict[str, Any] = {
    "max_steps": 8,
    "cutoff": 2.5,
    "ahead": 6,
    "penalty": 50.0,
    "turn": 5,  # the action that turns the robot while it looks around
    "confident": 2.0,
    "patience": 8,
    "sharpness": 2.0,
    "leak": 0.1,
    "hops": 1,
}
VERIFY: dict[str, Any] = {"drift": 1.0}  # dead reckoning ignores walls
BELIEF = sgm.Belief(max_steps=float(AGENT["max_steps"]))
CLEANUP_EPISODE = 200


class Buffer(NamedTuple):
    """Frames from which a seed's memories are built, and the distances between them."""

    frames: NDArray[np.uint8]  # (n, height, width, 3)
    episodes: NDArray[np.int64]  # (n,) episode of each frame
    poses: NDArray[np.float32]  # (n, 3) true x and y, map units, and heading, degrees
    embeddings: NDArray[np.float32]  # (n, e) of the learned distance
    table: Any  # WindowDistance or WindowBlocks between all frames
    track: NDArray[np.float64]  # (n, 3) x and y, map units, and heading, radians, by dead reckoning from actions

    def features(self, frames: Any) -> NDArray[np.float32]:
        """Features for perceptual consistency: the embeddings of these frame numbers."""
        return self.embeddings[np.asarray(frames)]


def make_env(piece: Piece) -> Any:
    """Make the vector environment of Doom engines; the map is stored in the run folder."""
    from sgm.envs.doom.env import DoomMazeVectorEnv

    settings = piece.settings
    piece.out.mkdir(parents=True, exist_ok=True)
    piece.world.write(piece.out / "map.wad")
    return DoomMazeVectorEnv(
        settings.engines, doom_map=piece.world, size=settings.size, max_episode_steps=settings.episode_steps
    )


def draw_tasks(piece: Piece) -> Any:
    """Draw tasks of three levels, different for each seed."""
    from sgm.envs.doom.env import Tasks

    return Tasks.draw(piece.world, piece.settings.tasks, piece.seed_for(Purpose.TASKS))


def check(settings: DoomSettings) -> None:
    """Raise an error if the map or the image size is invalid."""
    from sgm.envs.doom.engine import check_size
    from sgm.envs.doom.env import Tasks

    check_size(settings.size)
    Tasks.draw(settings.load_map(), 1, 0)


def explore_buffer(piece: Piece) -> Buffer:
    """Explore at random, and embed and compare the frames from which a seed's memories are built."""
    from sgm.envs.doom import env

    episodes, steps = piece.settings.buffer_episodes, piece.settings.buffer_steps
    piece.say(f"exploring, {episodes} episodes of {steps} steps")
    return compare(piece, env.explore(piece.env, episodes, steps, piece.seed_for(Purpose.BUFFER)))


def compare(piece: Piece, rollouts: Any) -> Buffer:
    """Embed and compare the frames of random episodes."""
    from sgm.distances.window_blocks import window_distance
    from sgm.envs.doom.motion import reckon

    distance = piece.networks[0]
    count, length = rollouts.frames.shape[:2]
    frames = rollouts.frames.reshape(-1, *rollouts.frames.shape[2:])
    episodes = np.repeat(np.arange(count), length)
    embeddings = distance.embed(frames)
    table = window_distance(distance, embeddings, episodes, **WINDOW)
    track = reckon(rollouts.actions).reshape(-1, 3)
    return Buffer(frames, episodes, rollouts.poses.reshape(-1, 3), embeddings, table, track)


def _build(piece: Piece, criterion: str, size: int | None = None, **settings: Any) -> sgm.SparseGraphicalMemory:
    """Build a memory from the frames of the buffer, with the k-nearest filter."""
    buffer, episodes = piece.buffer, settings.pop("episodes", None)
    how = {"policy": "first-failure", **BUILD, **settings}
    memory = sgm.SparseGraphicalMemory(buffer.table, buffer.features, criterion, size=size, **how)
    nodes = {"pose": buffer.poses, "image": buffer.frames, "embedding": buffer.embeddings}
    memory.extend(np.arange(len(buffer.frames)), episode=episodes, attributes=nodes, progress=piece.progress)
    return memory


def build_sgm(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build the memory of SPTM + SGM: two-way consistency and the paper's cleanup."""
    return _build(piece, "two-way")


def build_sptm(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build the memory of SPTM: a uniform subsample with as many nodes as two-way consistency keeps."""
    return _build(piece, "uniform", size=len(build_sgm(piece)))


def build_dense(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build a memory of all frames."""
    return _build(piece, "none")


def build_ours(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build our memory: consecutive frames are joined, their steps count as successes, cleanup is by belief."""
    memory = _build(piece, "two-way", episodes=piece.buffer.episodes, policy=BELIEF)
    _count_steps(piece, memory)
    return memory


def _count_steps(piece: Piece, memory: sgm.SparseGraphicalMemory) -> None:
    """Record every step of the exploration as a success of the edge that it crossed."""
    episodes, node = piece.buffer.episodes, memory.assignment
    went = (episodes[1:] == episodes[:-1]) & (node[1:] != node[:-1]) & (node[1:] >= 0) & (node[:-1] >= 0)
    memory.record_many(node[:-1][went], node[1:][went], np.ones(int(went.sum()), np.bool_))


def build_verified(
    piece: Piece, *, reversible: bool = True, verified: str = "removed", chained: bool = True, uniform: bool = False
) -> sgm.SparseGraphicalMemory:
    """Build our memory with edges in both directions, without those that contradict the agent's own motion.

    Args:
        piece: the piece with the buffer.
        reversible: add the reverse of every edge.
        verified: treatment of doubtful edges: "removed", "doubted" (failures are recorded for them), or "kept".
        chained: join consecutive observations of an episode.
        uniform: take a uniform subsample with as many nodes as two-way consistency keeps.
    """
    settings: dict[str, Any] = {"policy": BELIEF, "reversible": 1.2 if reversible else None}
    size = len(_build(piece, "two-way")) if uniform else None
    # A uniform subsample leaves out observations, so that consecutive nodes are several steps apart.
    episodes = piece.buffer.episodes if chained else None
    memory = _build(piece, "uniform" if uniform else "two-way", size=size, episodes=episodes, **settings)
    if chained:
        _count_steps(piece, memory)
    if verified != "kept":
        buffer = piece.buffer
        found = verify_edges(memory, buffer.track, buffer.embeddings, buffer.episodes, **VERIFY)
        use = remove_doubtful if verified == "removed" else record_doubts
        piece.say(f"{found!r}, {found.true_share:.1%} of those across episodes true; {use(memory, found):,} {verified}")
    return memory


def make_agent(piece: Piece, method: str, memory: Any, _name: str | None, clean: bool) -> Any:
    """Make the agent of a method; those with a memory differ only in which edge they blame."""
    from sgm.envs.doom.env import ACTIONS

    if method == "random":
        random = np.random.default_rng(piece.seed_for(Purpose.RANDOM_AGENT))
        return PolicyAgent(lambda _, goals: random.integers(len(ACTIONS), size=len(goals)))
    distance, controller = piece.networks
    controller.random = piece.random
    if memory is None:
        return PolicyAgent(controller)
    make = agents.sptm if method in ("sptm", "dense", "sptm+sgm") else agents.ours
    return make(memory, controller, distance=distance, embedding="embedding", target="image", clean=clean, **AGENT)


def facts(_piece: Piece, memory: Any) -> Row:
    """Share of false edges, from the true poses of nodes."""
    if memory is None:
        return {"false_edges": None}
    return {"false_edges": share_over(edge_lengths(memory.edges(), memory.attributes["pose"]), FALSE)}


def by_level(piece: Piece, result: Any) -> Row:
    """Success on each level, and the number of episodes that failed because an engine died."""
    levels, names = {}, piece.tasks.levels
    for level in dict.fromkeys(names.tolist()):
        won, taken = result.successes[names == level], result.steps[names == level]
        mean = float(taken[won].mean()) if won.any() else None
        levels[level] = {"episodes": len(won), "successes": int(won.sum()), "mean_steps": mean}
    return {"levels": levels, "lost_engines": result.reasons.get("simulator lost", 0)}


def places(_piece: Piece, memory: sgm.SparseGraphicalMemory) -> dict[str, NDArray[Any]]:
    """True positions (map units) and headings (radians) of the images of nodes."""
    poses = memory.attributes["pose"]
    return {"position": poses[:, :2], "heading": np.radians(poses[:, 2])}


def floor(piece: Piece) -> Floor:
    """Walls of the map."""
    solid: NDArray[np.float64] = piece.world.segments[piece.world.solid]
    return Floor(solid.reshape(-1, 4), unit="map units")


def view(_piece: Piece, env: Any) -> View:
    """Positions and images of robots."""
    return View(lambda _: env.pose, lambda _: env.goal, lambda seen, rows: seen["observation"][rows])


SHOWN = Shown(
    attributes=places,
    images=lambda _, memory: memory.attributes["image"],
    floor=floor,
    view=view,
    stream=lambda piece, _: np.arange(len(piece.buffer.frames)),
)


def _variant(label: str, **how: Any) -> Method:
    """The method "verified" with one part changed."""
    return Method(f"ours, verified: {label}", build=partial(build_verified, **how), policy="belief", goals="active")


BENCHMARK = Benchmark(
    name="doom",
    robots="engines",
    label="ViZDoom",
    title="SPTM, SPTM + SGM and agents without a memory",
    description="Explore a Doom maze at random, train a distance between images and a visual controller, build the "
    "memories, evaluate them, clean up, evaluate again, and write results.json, memories, weights, figures and "
    "report.html. Training takes about an hour on two cores; --pretrained uses the weights shipped with the package. "
    "An interrupted run resumes when the same command is given again.",
    settings=DoomSettings,
    quick=QUICK,
    methods={
        "random": Method("random actions", learned=False),
        "controller": Method("visual controller"),
        "sptm": Method("SPTM", build=build_sptm, cleaned=False),
        "dense": Method("dense oracle", build=build_dense, cleaned=False),
        "sptm+sgm": Method("SPTM + SGM", build=build_sgm, policy="first-failure"),
        "ours": Method("ours", build=build_ours, policy="belief", goals="active"),
        "ours-random-goals": Method("ours, random goals", build=build_ours, policy="belief"),
        "verified": Method("ours, verified", build=build_verified, policy="belief", goals="active"),
        "both-ways": _variant("not verified", verified="kept"),
        "verified-one-way": _variant("one way", reversible=False),
        "verified-no-chains": _variant("no temporal edges", chained=False),
        "verified-uniform": _variant("uniform nodes", uniform=True),
        "verified-prior": _variant("verification as evidence", verified="doubted"),
    },
    environment=lambda piece: piece.settings.environment,
    world=lambda piece: piece.settings.load_map(),
    env=make_env,
    cleanup_reset=lambda _: {"goals": None},
    cleanup_episode=lambda _: CLEANUP_EPISODE,
    tasks=draw_tasks,
    check=check,
    explore=explore,
    learn=learn,
    shared=("networks", "map.wad"),
    fields={"lost_engines": COUNT},
    buffer=explore_buffer,
    distance=lambda piece: (piece.buffer.table, piece.buffer.features),
    agent=make_agent,
    agent_settings={**BUILD, **WINDOW, **AGENT, "temperature": TEMPERATURE},
    added={"budget": None, "exploration": None, "maze_rooms": 8, "maze_open": 0.3},
    facts=facts,
    breakdown=by_level,
    summary=lambda out, _: {"quality": read_quality(out / "networks")},
    shown=SHOWN,
    figure_data=figure_data.write,
    has_figure_data=figure_data.is_written,
    report=report,
    console=console,
    paper_command="sgm run doom --pretrained --methods random controller sptm dense sptm+sgm ours",
    extras={"doom": ("torch", "safetensors", "matplotlib", "vizdoom", "cv2")},
)
