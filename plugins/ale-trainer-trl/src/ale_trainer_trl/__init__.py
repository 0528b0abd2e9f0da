"""The trainers ``dpo`` and ``grpo``, and the command ``train``, over the library `ale_trl`."""
