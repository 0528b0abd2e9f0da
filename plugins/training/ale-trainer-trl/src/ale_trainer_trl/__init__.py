"""The trainers ``dpo`` and ``grpo``, and the command ``train``."""
