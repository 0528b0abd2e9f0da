"""What runs on a node for a launch: an actor that starts one process, and ends with the driver."""

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import ray
from attrs import frozen

from ale.protocols import Launch
from ale_processes.supervised import Child
from ale_processes.torchrun import process_of_rank_0


@frozen(kw_only=True)
class Order:
    """A process to start."""

    command: Sequence[str]
    environ: Mapping[str, str]
    folder: str
    """Its working directory."""
    log: Path
    on_death: signal.Signals
    """What the process gets when its actor is killed."""
    rank_0_of: Launch | None = None
    """It is torchrun, on the machine of rank 0, to which signals go."""


class Place:
    """One for each process, with the resources of it."""

    def __init__(self) -> None:
        self._child: Child | None = None

    async def where(self) -> tuple[str, int]:
        """The address of this node for the others, and a free port of it."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return str(cast("Any", ray).util.get_node_ip_address()), int(probe.getsockname()[1])

    async def start(self, order: Order) -> str:
        """Start the process; why that is not possible here, or nothing."""
        launch = order.rank_0_of
        gpus = ",".join(map(str, ray.get_gpu_ids()))
        try:
            os.chdir(order.folder)
            self._child = await Child.start(
                order.command,
                environ={**order.environ, "CUDA_VISIBLE_DEVICES": gpus},
                log=order.log,
                target=lambda: None if launch is None else process_of_rank_0(launch),
                on_death=order.on_death,
            )
        except OSError as error:
            return str(error)
        return ""

    async def wait(self) -> int:
        """The exit status; negative: the number of the signal that killed it."""
        assert self._child is not None, "started before"
        return (await self._child.wait()).code

    async def send(self, number: int) -> None:
        """Pass a signal to the process."""
        if self._child is not None:
            await self._child.send(signal.Signals(number))

    async def end(self, grace_s: float) -> None:
        """End the process."""
        if self._child is not None:
            await self._child.end(grace_s)
