"""The tables of runs, steps, episodes, turns and scores."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Integer, Text

revision = "0001"
down_revision = None

_Id = BigInteger().with_variant(Integer, "sqlite")


def _part_of(table: str, *, primary_key: bool = False) -> Column[int]:
    key = ForeignKey(f"{table}s.id", ondelete="CASCADE")
    return Column(table, _Id, key, nullable=False, primary_key=primary_key)


def upgrade() -> None:
    """Make the tables."""
    _runs()
    _episodes()


def _runs() -> None:
    op.create_table(
        "runs",
        Column("id", _Id, primary_key=True, autoincrement=False),
        Column("path", Text, nullable=False, unique=True),
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
    )
    op.create_table(
        "files",
        _part_of("run", primary_key=True),
        Column("name", Text, primary_key=True),
        Column("size", BigInteger, nullable=False),
        Column("modified_ns", BigInteger, nullable=False),
        Column("line_at", BigInteger),
        Column("line_sha256", Text),
    )
    op.create_table(
        "settings",
        _part_of("run", primary_key=True),
        Column("key", Text, primary_key=True),
        Column("value", Text, nullable=False),
    )
    op.create_table(
        "tags",
        _part_of("run", primary_key=True),
        Column("tag", Text, primary_key=True),
    )
    op.create_table(
        "tasks",
        Column("id", _Id, primary_key=True, autoincrement=False),
        Column("sha256", Text, nullable=False, unique=True),
        Column("task_id", Text, nullable=False),
        Column("prompt", Text, nullable=False),
        Column("origin", Text, nullable=False),
    )
    op.create_table(
        "run_tasks",
        _part_of("run", primary_key=True),
        Column("split", Text, primary_key=True),
        Column("task_id", Text, primary_key=True),
        Column("task", _Id, ForeignKey("tasks.id"), nullable=False),
    )
    op.create_index("run_tasks_by_task", "run_tasks", ["task"])
    op.create_table(
        "steps",
        _part_of("run", primary_key=True),
        Column("step", Integer, primary_key=True),
        Column("at", Float, nullable=False),
    )
    op.create_table(
        "metrics",
        _part_of("run", primary_key=True),
        Column("step", Integer, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("value", Float),
    )
    op.create_table(
        "evaluations",
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
    )
    op.create_index("evaluations_run", "evaluations", ["run", "step"])


def _episodes() -> None:
    op.create_table(
        "episodes",
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
    )
    op.create_index("episodes_of_run", "episodes", ["run", "episode_id"], unique=True)
    op.create_index("episodes_by_run", "episodes", ["run", "started"])
    op.create_index("episodes_by_task", "episodes", ["task", "started"])
    op.create_index("episodes_by_model", "episodes", ["model", "started"])
    op.create_index("episodes_by_reward", "episodes", ["reward", "started"])
    op.create_index("episodes_by_split", "episodes", ["split", "started"])
    op.create_index("episodes_by_step", "episodes", ["step", "started"])
    op.create_index("episodes_by_stop", "episodes", ["stop", "started"])
    compared = ["started", "reward", "model", "task", "run", "split", "step"]
    op.create_index("episodes_by_time", "episodes", compared)
    op.create_table(
        "turns",
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
    )
    op.create_index("turns_of_episode", "turns", ["episode", "turn"], unique=True)
    op.create_table(
        "scores",
        _part_of("episode", primary_key=True),
        Column("position", Integer, primary_key=True),
        Column("criterion", Text, nullable=False),
        Column("passed", Boolean, nullable=False),
        Column("value", Float, nullable=False),
        Column("weight", Float, nullable=False),
        Column("detail", Text, nullable=False),
        Column("answer", Text),
    )
    op.create_index("scores_by_criterion", "scores", ["criterion", "passed", "episode"])
    op.create_table(
        "tools",
        _part_of("episode", primary_key=True),
        Column("tool", Text, primary_key=True),
        Column("n_calls", Integer, nullable=False),
        Column("n_errors", Integer, nullable=False),
    )
    op.create_index("tools_by_name", "tools", ["tool", "episode"])
    op.create_table(
        "errors",
        Column("id", _Id, primary_key=True, autoincrement=False),
        Column("sha256", Text, nullable=False, unique=True),
        Column("text", Text, nullable=False),
    )
    op.create_table(
        "episode_errors",
        _part_of("episode", primary_key=True),
        Column("error", _Id, ForeignKey("errors.id"), primary_key=True),
    )
    op.create_index("episode_errors_by_error", "episode_errors", ["error", "episode"])
