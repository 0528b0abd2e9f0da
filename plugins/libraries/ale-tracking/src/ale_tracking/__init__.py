"""Shared by experiment trackers: metric names, and a thread that writes metrics.

A plugin for a tracker has options and one `OpenSink`; `Tracker` is the observer.
"""

from ale_tracking.metrics import Means, Point, episode_metrics
from ale_tracking.tracker import OpenSink, Tracker
from ale_tracking.worker import Worker, Write

__all__ = ["Means", "OpenSink", "Point", "Tracker", "Worker", "Write", "episode_metrics"]
