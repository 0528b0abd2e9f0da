"""Rows of data sets: collect, score, pair, import and export stored episodes as streams."""

from ale_rows.chat import chat, chats, chunk_answer, record
from ale_rows.chattools import chat_tools, read_tools
from ale_rows.chunkrows import make_rl
from ale_rows.collecting import collect, crediting_of, found_runs
from ale_rows.files import form_of, read_rows, write_rows
from ale_rows.imitation import make_sft
from ale_rows.pairs import make_dpo
from ale_rows.report import Report, report_path
from ale_rows.rows import (
    ChatCall,
    ChatFunction,
    ChatMessage,
    ChatTool,
    ChatToolFunction,
    ChunkTokens,
    DpoRow,
    EpisodeRow,
    Origin,
    RlRow,
    ScoredRow,
    SftRow,
)
from ale_rows.scoring import make_crediting, score
from ale_rows.training import Trained, check_scored, train
from ale_rows.transfer import export_rows, import_rows

__all__ = [
    "ChatCall",
    "ChatFunction",
    "ChatMessage",
    "ChatTool",
    "ChatToolFunction",
    "ChunkTokens",
    "DpoRow",
    "EpisodeRow",
    "Origin",
    "Report",
    "RlRow",
    "ScoredRow",
    "SftRow",
    "Trained",
    "chat",
    "chat_tools",
    "chats",
    "check_scored",
    "chunk_answer",
    "collect",
    "crediting_of",
    "export_rows",
    "form_of",
    "found_runs",
    "import_rows",
    "make_crediting",
    "make_dpo",
    "make_rl",
    "make_sft",
    "read_rows",
    "read_tools",
    "record",
    "report_path",
    "score",
    "train",
    "write_rows",
]
