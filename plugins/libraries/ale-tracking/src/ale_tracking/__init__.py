"""What experiment trackers share: which metrics there are, and a thread that writes them.

A plugin for a tracker is its options and one `OpenSink`; `Tracker` is the observer.
"""

from ale_tracking.metrics import Means, Point, episode_metrics
from ale_tracking.tracker import OpenSink, Tracker
from ale_tracking.worker import Worker, Write

__all__ = ["Means", "OpenSink", "Point", "Tracker", "Worker", "Write", "episode_metrics"]
