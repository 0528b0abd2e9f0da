"""The tables. `migrations` makes them, and brings a database from one version to the next.

Times are seconds since the epoch (UTC), durations seconds. A text is stored without NUL
characters, which PostgreSQL can't hold.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()
_Id = BigInteger().with_variant(Integer, "sqlite")


def _part_of(table: str, *, primary_key: bool = False) -> Column[int]:
    """A reference to a row that takes this one with it when it is deleted."""
    key = ForeignKey(f"{table}s.id", ondelete="CASCADE")
    return Column(table, _Id, key, nullable=False, primary_key=primary_key)


runs = Table(
    "runs",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("created", Float),
    Column("outcome", Text),
    Column("seconds", Float),
    Column("n_tasks", Integer, nullable=False),
    Column("n_episodes", Integer, nullable=False),
    Column("n_broken", Integer, nullable=False),
    Column("n_graded", Integer, nullable=False),
    Column("n_succeeded", Integer, nullable=False),
    Column("mean_reward", Float),
    # A file of SQLite lies beside the directories: whoever opens it sees the same ones. Another
    # machine has directories of its own of the same name.
    UniqueConstraint("path").ddl_if(dialect="sqlite"),
    UniqueConstraint("host", "path", name="runs_of_host").ddl_if(dialect="postgresql"),
)

files = Table(
    "files",
    metadata,
    _part_of("run", primary_key=True),
    Column("name", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("modified_ns", BigInteger, nullable=False),
    Column("line_at", BigInteger),
    Column("line_sha256", Text),
)

settings = Table(
    "settings",
    metadata,
    _part_of("run", primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

tags = Table(
    "tags",
    metadata,
    _part_of("run", primary_key=True),
    Column("tag", Text, primary_key=True),
)

tasks = Table(
    "tasks",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("sha256", Text, nullable=False, unique=True),
    Column("task_id", Text, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("origin", Text, nullable=False),
)

run_tasks = Table(
    "run_tasks",
    metadata,
    _part_of("run", primary_key=True),
    Column("split", Text, primary_key=True),
    Column("task_id", Text, primary_key=True),
    Column("task", _Id, ForeignKey("tasks.id"), nullable=False),
    Index("run_tasks_by_task", "task"),
)

steps = Table(
    "steps",
    metadata,
    _part_of("run", primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("at", Float, nullable=False),
)

metrics = Table(
    "metrics",
    metadata,
    _part_of("run", primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Float),
)

evaluations = Table(
    "evaluations",
    metadata,
    _part_of("run"),
    Column("step", Integer, nullable=False),
    Column("temperature", Float),
    Column("at", Float, nullable=False),
    Column("policy_version", Integer),
    Column("n_graded", Integer, nullable=False),
    Column("n_succeeded", Integer, nullable=False),
    Column("mean_reward", Float),
    Column("k", Integer),
    Column("pass_at_k", Float),
    Column("majority", Float),
    Index("evaluations_run", "run", "step"),
)

episodes = Table(
    "episodes",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    _part_of("run"),
    Column("episode_id", Text, nullable=False),
    Column("task", _Id, ForeignKey("tasks.id"), nullable=False),
    Column("task_id", Text, nullable=False),
    Column("split", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("start", Text, nullable=False),
    Column("rollout", Integer, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("temperature", Float),
    Column("reward", Float),
    Column("model", Text, nullable=False),
    Column("stop", Text, nullable=False),
    Column("failure", Text),
    Column("sandbox", Text, nullable=False),
    Column("worker", Text),
    Column("started", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("n_turns", Integer, nullable=False),
    Column("n_calls", Integer, nullable=False),
    Column("n_errors", Integer, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("policy_version", Integer),
    Column("details", Text, nullable=False),
    Column("line_at", BigInteger, nullable=False),
    Index("episodes_of_run", "run", "episode_id", unique=True),
    Index("episodes_by_run", "run", "started"),
    Index("episodes_by_task", "task", "started"),
    Index("episodes_by_model", "model", "started"),
    Index("episodes_by_reward", "reward", "started"),
    Index("episodes_by_split", "split", "started"),
    Index("episodes_by_step", "step", "started"),
    Index("episodes_by_stop", "stop", "started"),
    Index("episodes_by_worker", "worker", "started"),
    # All that a filter compares, so that going through a million rows reads this index alone.
    Index("episodes_by_time", "started", "reward", "model", "task", "run", "split", "step"),
)

turns = Table(
    "turns",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    _part_of("episode"),
    Column("turn", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("finish_reason", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("n_calls", Integer, nullable=False),
    Column("n_errors", Integer, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Index("turns_of_episode", "episode", "turn", unique=True),
)

scores = Table(
    "scores",
    metadata,
    _part_of("episode", primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("criterion", Text, nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("value", Float, nullable=False),
    Column("weight", Float, nullable=False),
    Column("detail", Text, nullable=False),
    Column("answer", Text),
    Column("contested", Float),
    Index("scores_by_criterion", "criterion", "passed", "episode"),
)

tools = Table(
    "tools",
    metadata,
    _part_of("episode", primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("n_calls", Integer, nullable=False),
    Column("n_errors", Integer, nullable=False),
    Index("tools_by_name", "tool", "episode"),
)

errors = Table(
    "errors",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("sha256", Text, nullable=False, unique=True),
    Column("text", Text, nullable=False),
)

episode_errors = Table(
    "episode_errors",
    metadata,
    _part_of("episode", primary_key=True),
    Column("error", _Id, ForeignKey("errors.id"), primary_key=True),
    Index("episode_errors_by_error", "error", "episode"),
)
