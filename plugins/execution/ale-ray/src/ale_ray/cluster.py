"""The cluster: its nodes, and the actors of a run on them."""

import asyncio
import logging
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ale.errors import AleError
from ale_ray.actor import Rollouts
from ale_ray.options import RayOptions

NAMESPACE = "ale"
_CLOSE_S = 10.0
"""Seconds for an actor to end its episodes; then it is killed."""


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connect to the cluster, or start one; ended on exit, if it was started here.

    Raises:
        AleError: there is none at the address.
    """
    if ray.is_initialized():  # by a program that runs `ale` in its own process
        yield
        return
    with _keeping_sigterm():
        try:
            ray.init(
                address=address,
                namespace=NAMESPACE,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=None if address else False,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = address or os.environ.get("RAY_ADDRESS", "this machine")
            raise AleError(f"no Ray cluster at {where}: {error}") from error
    try:
        yield
    finally:
        with _keeping_sigterm():
            ray.shutdown()


@contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Ray sets a handler of its own, which would end the run at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def nodes(options: RayOptions) -> set[str]:
    """Ids of the nodes that are alive and have the resource."""
    known: list[dict[str, Any]] = cast("Any", ray).nodes()  # which ray has no types for
    return {
        node["NodeID"]
        for node in known
        if node["Alive"] and (options.resource is None or options.resource in node["Resources"])
    }


def start_actor(run_id: str, node: str, options: RayOptions) -> Any:
    """A new actor of a run on a node. It outlives this process: see `end_actors`."""
    made = ray.remote(Rollouts).options(
        name=f"{run_id}/{uuid.uuid4().hex}",
        namespace=NAMESPACE,
        lifetime="detached",
        num_cpus=options.cpus,
        resources={options.resource: 1} if options.resource else None,
        max_concurrency=10_000,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
    )
    return made.remote()


async def end_actors(run_id: str) -> int:
    """End what an earlier session of a run has left; their number."""
    left = [
        entry["name"]
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["namespace"] == NAMESPACE and entry["name"].startswith(f"{run_id}/")
    ]
    for name in left:
        with suppress(ValueError):  # it has ended since
            await end_actor(ray.get_actor(name, namespace=NAMESPACE))
    return len(left)


async def end_actor(actor: Any) -> list[str]:
    """End an actor; what it could not close."""
    failed: list[str] = []
    with suppress(RayError):  # it has ended, or its node is gone
        try:
            failed = await asyncio.wait_for(actor.close.remote(), _CLOSE_S)
        except TimeoutError:
            failed = [f"an actor was killed that did not end its episodes within {_CLOSE_S:g} s"]
        finally:
            ray.kill(actor, no_restart=True)
    return failed
