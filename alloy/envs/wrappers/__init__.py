"""Wrappers around vector environments, and the faces they show to learning libraries.

An adapter is imported from its own module (`alloy.envs.wrappers.rsl_rl`, ...), so that none of the
libraries is needed unless it is used.
"""

from alloy.envs.wrappers.normalize import NormalizeObservation, RunningMoments
from alloy.envs.wrappers.statistics import EpisodeStatistics

__all__ = ["EpisodeStatistics", "NormalizeObservation", "RunningMoments"]
