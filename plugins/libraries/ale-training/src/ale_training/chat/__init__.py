"""Conversations as token ids, and sampled ids as messages; imports no torch.

Modules: `template` (prompts rendered turn by turn, answers parsed), `rendering` (a tokenizer's
template), `calls` and `formats` (tool calls in text), `token_bytes` (tokens as bytes), `tokenizer`
(loading), `sessions` (prompts that extend earlier ids), `stops` (stop strings), and `model`, a
model component over all of these, whatever samples the ids.
"""

from ale_training.chat.formats import FORMATS
from ale_training.chat.template import Answer, ChatTemplate

__all__ = ["FORMATS", "Answer", "ChatTemplate"]
