"""The agent: localise, plan, follow waypoints, replan, clean up, evaluate; always over a batch of episodes at once."""

from .cleanup import Cleaner, CleanupReport, cleanup
from .evaluation import Evaluation, PolicyAgent, evaluate, run_episodes, wilson
from .navigator import Navigator
from .trace import Trace

__all__ = [
    "Cleaner",
    "CleanupReport",
    "Evaluation",
    "Navigator",
    "PolicyAgent",
    "Trace",
    "cleanup",
    "evaluate",
    "run_episodes",
    "wilson",
]
