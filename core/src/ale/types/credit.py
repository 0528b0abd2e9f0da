"""Groups of rollouts and the credit of every chunk in them."""

from typing import Literal

from ale.types._record import record
from ale.types.chunk import Chunk
from ale.types.episode import Episode


@record
class Rollout:
    """One episode and its chunks."""

    episode: Episode
    chunks: tuple[Chunk, ...]


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
