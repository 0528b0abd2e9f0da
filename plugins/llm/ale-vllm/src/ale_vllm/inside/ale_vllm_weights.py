"""Registers the weight-transfer backend ``ale_weights`` with vLLM, which runs this in each process.

This package is installed into vLLM's environment, not into that of `ale`.
"""

import contextlib


def register() -> None:
    """Called by vLLM, sometimes twice in a process."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    with contextlib.suppress(ValueError):  # it is already registered
        WeightTransferEngineFactory.register_engine(
            "ale_weights", "ale_vllm_weights_engine", "WeightsEngine"
        )
