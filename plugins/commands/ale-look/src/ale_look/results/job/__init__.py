"""A stored run as a job of Harbor: the folder that its viewer and its other tools read.

Source: harbor 0.25, ``models/job``, ``models/trial`` and ``viewer/scanner.py``.
"""

from ale_look.results.job.writing import write_job

__all__ = ["write_job"]
