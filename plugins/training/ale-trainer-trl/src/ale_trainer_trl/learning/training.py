"""Training from a data set: the function behind `ale train`."""

from functools import partial

from ale_trainer_trl.learning.options import DpoTraining, GrpoTraining
from ale_trainer_trl.learning.packages import require_packages
from ale_trainer_trl.learning.progress import Listener, Stop, Trained

_LESS_MEMORY = (
    "It takes less with a smaller batch_size, gradient_checkpointing: true, lora, or shorter rows."
)


def train(
    training: DpoTraining | GrpoTraining,
    *,
    progress: Listener | None = None,
    stop: Stop | None = None,
) -> Trained:
    """Train on preferences, or on prompts whose sampled completions a function rewards.

    Training begins at the last checkpoint in ``output_dir`` if there is one.

    Args:
        training: model, data set, options and output folder.
        progress: called after every update. An exception ends the training; the next call resumes
            from the last checkpoint.
        stop: called after every update; True writes a checkpoint and ends the training.

    Returns:
        The result in ``output_dir``; a finished training is not repeated.

    Raises:
        NotUsableError: a package is missing, or quantisation is asked for and there is no GPU.
        InputError: the rows, the model or the options can't be used, or ``output_dir`` holds
            another training.
        StoppedError: `stop` returned True before the end.
        AleError: there is too little memory.
    """
    require_packages()
    from ale_trainer_trl.learning import engine  # late: torch and TRL take seconds
    from ale_training.memory import naming_lack_of_memory

    if isinstance(training, DpoTraining):
        from ale_trainer_trl.learning import dpo

        load = partial(dpo.load, training)
    else:
        from ale_trainer_trl.learning import grpo

        load = partial(grpo.load, training)
    with naming_lack_of_memory("the training", _LESS_MEMORY):
        return engine.train(training, load, progress, stop)
