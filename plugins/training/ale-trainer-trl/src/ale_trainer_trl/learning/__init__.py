"""Training with TRL and PEFT: from a data set, or token for token from what a run sampled.

A library, not a plugin. Importing it is cheap: torch and TRL are imported by the functions that
need them. Modules: `options` and `reading` (configuration), `packages` (missing packages), `models`
(loading, adapters, quantisation), `tokens` (conversations as ids and masks), `pairs` (a data set of
preferences), `preference` and `groups` (TRL's trainers on given ids), `dpo` and `grpo` (training on
a data set), `learner` (training step by step inside a run), `output` (checkpoints and record) and
`card` (model card).
"""

from ale_trainer_trl.learning.options import DpoTraining, GrpoTraining
from ale_trainer_trl.learning.progress import Progress, StoppedError, Trained
from ale_trainer_trl.learning.reading import read_training
from ale_trainer_trl.learning.training import train
from ale_training.lora import LoraOptions

__all__ = [
    "DpoTraining",
    "GrpoTraining",
    "LoraOptions",
    "Progress",
    "StoppedError",
    "Trained",
    "read_training",
    "train",
]
