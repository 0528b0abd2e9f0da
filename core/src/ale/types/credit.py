"""Groups of rollouts and the credit of every chunk in them."""

from collections.abc import Mapping
from typing import Literal

from attrs import field

from ale.types._record import record
from ale.types.chunk import Chunk
from ale.types.episode import Episode


@record
class StepScore:
    """The judgement of a scorer on one chunk: a value, or why it has none."""

    value: float | None = None
    """In [0, 1], 1 is best; None if the scorer abstained."""
    abstained: str = ""
    """Why there is no value; empty if there is one."""
    cost: int = 0
    """Tokens that models read and wrote for it."""
    text: str = ""
    """The reasons for the value, for a human reader."""


@record
class ScoredEpisode:
    """A line in ``step_scores/``: the scores of one scorer for chunks of an episode."""

    schema: int = 1
    episode_id: str
    started_at: str = ""
    """`Episode.started_at`: an episode that was sampled again under its id was not scored."""
    scorer: str
    chunks: tuple[Chunk, ...]
    """The chunks that were scored: all of a run's scorer, one turn of feedback from outside."""
    scores: tuple[StepScore, ...]
    """One for each chunk."""


@record
class Rollout:
    """One episode and its chunks."""

    episode: Episode
    chunks: tuple[Chunk, ...]
    scores: Mapping[str, tuple[StepScore, ...]] = field(factory=dict)
    """By scorer, one for each chunk. Empty in a run without scorers."""


FEEDBACK = "feedback"
"""Name in place of a scorer's for scores that come from outside, such as those of users."""


@record
class BatchStatistics:
    """Facts about all the graded episodes that are credited together (a step, or a stored run)."""

    n_episodes: int
    mean_reward: float
    """0 if there are none."""


@record
class Group:
    """The graded rollouts of one task. Broken episodes are never in a group."""

    task_id: str
    rollouts: tuple[Rollout, ...]
    batch: BatchStatistics


@record
class Gae:
    """How a trainer's critic makes advantages of an episode's rewards (arXiv:1506.02438)."""

    gamma: float
    """Discount per step, in (0, 1]."""
    lam: float
    """lambda, in [0, 1]."""
    unit: Literal["token", "turn", "chunk"]
    """The unit that is one step."""
    truncated: bool = False
    """The episode was cut off: the value of the state after its last step is used, not 0."""


@record
class Credit:
    """The credit of every chunk of one episode. All tuples have one entry per chunk, in order."""

    schema: int = 1
    episode_id: str
    scheme: str
    rewards: tuple[float, ...]
    """r_k: reward of the chunk itself."""
    returns: tuple[float, ...]
    """G_k: discounted return from the chunk on."""
    weights: tuple[float, ...]
    """Factor on grad log pi of each of the chunk's tokens: advantage or return."""
    skipped: str | None = None
    """Why this episode has no training signal under this scheme (all rewards of a group equal)."""
    gae: Gae | None = None
    """Set if a critic is to complete this credit: `weights` are those of a critic that values every
    state at 0, and the trainer replaces them (`CriticTrainer`)."""


@record
class CreditedEpisode:
    """A line of ``credits/<step>.jsonl``: an episode's chunks and their credit."""

    schema: int = 1
    episode_id: str
    task_id: str
    step: int = 0
    chunker: str
    chunks: tuple[Chunk, ...]
    credit: Credit
