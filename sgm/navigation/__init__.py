"""The agent: localises, plans, follows waypoints, replans, cleans up and is evaluated, for a batch of episodes."""

from . import agents
from .arrive import TwoWay, WithinRadius, WithinSteps, calibrate
from .blame import LastEdge, MostDoubtful
from .cleanup import Cleaner, CleanupReport, cleanup
from .collect import collect
from .evaluation import Evaluation, PolicyAgent, evaluate, paired_difference, run_episodes, wilson
from .goals import ActiveGoals, Goals, RandomGoals
from .localise import BayesFilter, NearestNode, Odometry
from .motion import LinearMotion, dead_reckon
from .navigator import Controller, Navigator
from .record import Recorder, View
from .rollout import Driver, Stream
from .route import NearestPair, RankedGoals
from .trace import Trace
from .verify import Verification, prune_doubtful, record_doubts, remove_doubtful, verify, verify_edges

__all__ = [
    "ActiveGoals",
    "BayesFilter",
    "Cleaner",
    "CleanupReport",
    "Controller",
    "Driver",
    "Evaluation",
    "Goals",
    "LastEdge",
    "LinearMotion",
    "MostDoubtful",
    "Navigator",
    "NearestNode",
    "NearestPair",
    "Odometry",
    "PolicyAgent",
    "RandomGoals",
    "RankedGoals",
    "Recorder",
    "Stream",
    "Trace",
    "TwoWay",
    "Verification",
    "View",
    "WithinRadius",
    "WithinSteps",
    "agents",
    "calibrate",
    "cleanup",
    "collect",
    "dead_reckon",
    "evaluate",
    "paired_difference",
    "prune_doubtful",
    "record_doubts",
    "remove_doubtful",
    "run_episodes",
    "verify",
    "verify_edges",
    "wilson",
]
