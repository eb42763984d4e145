"""The agent: localise, plan, follow waypoints, replan, clean up, evaluate; always over a batch of episodes at once."""

from .cleanup import Cleaner, CleanupReport, cleanup
from .evaluation import Evaluation, PolicyAgent, evaluate, paired_difference, run_episodes, wilson
from .goals import ActiveGoals, Goals, RandomGoals
from .navigator import Navigator
from .odometry import OdometryNavigator
from .tasks import evaluate_tasks, run_tasks
from .timefilter import TimeFilter
from .trace import Trace
from .visual import FrameSight, MemorySight, VisualNavigator

__all__ = [
    "ActiveGoals",
    "Cleaner",
    "CleanupReport",
    "Evaluation",
    "FrameSight",
    "Goals",
    "MemorySight",
    "Navigator",
    "OdometryNavigator",
    "PolicyAgent",
    "RandomGoals",
    "TimeFilter",
    "Trace",
    "VisualNavigator",
    "cleanup",
    "evaluate",
    "evaluate_tasks",
    "paired_difference",
    "run_episodes",
    "run_tasks",
    "wilson",
]
