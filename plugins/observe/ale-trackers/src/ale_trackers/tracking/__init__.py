"""Shared by experiment trackers: the names of metrics, and the observer that sends them.

A plugin for a tracker has options and one `OpenSink`; `Tracker` is the observer.
"""

from ale_trackers.tracking.metrics import Means, Point, episode_metrics
from ale_trackers.tracking.tracker import OpenSink, Tracker

__all__ = ["Means", "OpenSink", "Point", "Tracker", "episode_metrics"]
