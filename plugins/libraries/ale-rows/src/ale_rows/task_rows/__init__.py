"""Tasks from rows of JSON, of Parquet files and of data sets: reading, checking, choosing."""

from ale_rows.task_rows.options import Choice, Origin
from ale_rows.task_rows.origin import check_exists, files_of, rows_below, rows_from
from ale_rows.task_rows.rows import Row, RowError, rows_of
from ale_rows.task_rows.selection import RowTasks, safe_id

__all__ = [
    "Choice",
    "Origin",
    "Row",
    "RowError",
    "RowTasks",
    "check_exists",
    "files_of",
    "rows_below",
    "rows_from",
    "rows_of",
    "safe_id",
]
