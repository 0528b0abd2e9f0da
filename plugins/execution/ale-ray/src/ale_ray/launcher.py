"""The launcher ``ray``: every process where Ray has room for it."""

import asyncio
import os
import shlex
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import ray
from attrs import field, frozen
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ale.errors import AleError, LaunchError
from ale.protocols import Launch, Process
from ale_processes.supervised import Running, Supervised
from ale_processes.torchrun import check_ranks, record_of, status_of_run, torchrun
from ale_ray.cluster import connected
from ale_ray.options import RayLaunchOptions
from ale_ray.place import Order, Place
from ale_ray.placed import Placed, Ranks

NAMESPACE = "ale-launch"
_LITTLE = 0.001
"""Of a custom resource."""
_SOME_MEMORY = 2**20
"""For a process that reserves nothing: a bundle must not be empty."""
_QUIET_S = 15.0
"""Seconds after which the user is told that there is no room yet."""


@frozen(kw_only=True)
class Spot:
    """What one process may use."""

    process: Process
    name: str
    bundles: Sequence[Mapping[str, float]]
    """One; for trainer processes on several nodes, one for each node."""
    first: int
    """Number of the first bundle in the placement group."""


class RayLauncher:
    """Asks for the resources of all processes at once, and starts each by an actor."""

    def __init__(self, options: RayLaunchOptions) -> None:
        self._options = options

    def plan(self, launch: Launch) -> str:
        """A block for each process, with its bundles."""
        spots = list(spots_of(launch, self._options))
        lines = [f"run directory: {launch.directory}", f"strategy: {self._options.strategy}"]
        for spot in (*spots[1:], *spots[:1]):
            bundles = "; ".join(map(_text, spot.bundles))
            lines.append(f"{spot.name} ({spot.process.role}): {bundles}, log {spot.name}.log")
            lines.append(f"  {shlex.join(spot.process.command)}")
        return "\n".join(lines)

    async def start(self, launch: Launch, say: Callable[[str], None]) -> "Placement":
        """Connect to the cluster and ask for the resources."""
        spots = list(spots_of(launch, self._options))
        stack = ExitStack()
        try:
            stack.enter_context(connected(self._options.address))
        except AleError as error:
            raise LaunchError(str(error)) from error
        with stack:
            bundles = [dict(bundle) for spot in spots for bundle in spot.bundles]
            group = placement_group(bundles, strategy=self._options.strategy.upper())
            stack.callback(remove_placement_group, group)
            made = Placement(launch, self._options, say, group, stack.pop_all())
            made.begin(spots)
        return made


def spots_of(launch: Launch, options: RayLaunchOptions) -> Iterator[Spot]:
    """A spot for each process, the run first.

    Raises:
        InputError: the ranks can't be spread evenly over the nodes.
    """
    if launch.nodes > 1:
        check_ranks(launch)
    run, n = launch.run, launch.nodes
    bundle = _bundle(run, run.ranks // n, options)
    yield Spot(process=run, name=run.name, bundles=[bundle] * n, first=0)
    number = n
    for process in launch.others:
        for name in process.names:
            bundles = [_bundle(process, 1, options)]
            yield Spot(process=process, name=name, bundles=bundles, first=number)
            number += 1


def _bundle(process: Process, ranks: int, options: RayLaunchOptions) -> Mapping[str, float]:
    reserved = {"CPU": process.cpus * ranks, "GPU": process.gpus * ranks}
    bundle: dict[str, float] = {name: amount for name, amount in reserved.items() if amount}
    if options.resource is not None:
        bundle[options.resource] = _LITTLE
    return bundle or {"memory": _SOME_MEMORY}


def _text(bundle: Mapping[str, float]) -> str:
    named = [f"{amount:g} {name}" for name, amount in bundle.items() if name != "memory"]
    return ", ".join(named) or "any node"


@frozen(eq=False)
class Placement:
    """A launch on the cluster."""

    _launch: Launch
    _options: RayLaunchOptions
    _say: Callable[[str], None]
    _group: PlacementGroup
    _stack: ExitStack
    """Gives the resources back and leaves the cluster."""
    _supervised: Supervised[Spot] = field(init=False)

    @_supervised.default
    def _make_supervised(self) -> Supervised[Spot]:
        launch = self._launch
        status = partial(status_of_run, launch) if launch.nodes > 1 else lambda code: code
        return Supervised(launch, self._place, self._options.grace_s, self._say, status)

    def begin(self, spots: Sequence[Spot]) -> None:
        """Start every process as soon as there is room for all."""
        self._supervised.start(spots)

    async def wait(self) -> int:
        """See `Launched`."""
        try:
            return await self._supervised.wait()
        finally:
            await self.end()

    async def send_signal(self, number: signal.Signals) -> None:
        """See `Launched`."""
        await self._supervised.send_signal(number)

    async def end(self) -> None:
        """See `Launched`."""
        await self._supervised.end()
        self._stack.close()

    async def _place(self, spot: Spot) -> Running:
        """Start a process by actors on its bundles; cancelled, these are killed."""
        actors = [self._actor(spot, number) for number in range(len(spot.bundles))]
        try:
            return await self._started(spot, actors)
        except BaseException:
            for actor in actors:
                ray.kill(actor, no_restart=True)
            raise

    async def _started(self, spot: Spot, actors: Sequence[Any]) -> Running:
        (head, port), *_ = await self._there(spot, actors)
        if len(actors) == 1:
            return await self._begun(spot, actors[0], spot.process.command)
        record_of(self._launch).unlink(missing_ok=True)
        begun = []
        for number, actor in enumerate(actors):
            where = (
                *("--nnodes", str(len(actors)), "--node-rank", str(number)),
                *("--master-addr", head, "--master-port", str(port)),
            )
            command = torchrun(self._launch, where, restarts=0)
            begun.append(self._begun(spot, actor, command, self._launch if number == 0 else None))
        return Ranks(await asyncio.gather(*begun), self._options.grace_s)

    def _actor(self, spot: Spot, number: int) -> Any:
        bundle = dict(spot.bundles[number])
        made = ray.remote(Place).options(
            name=f"{self._launch.name}/{spot.name}/{uuid.uuid4().hex[:8]}",
            namespace=NAMESPACE,
            num_cpus=bundle.pop("CPU", 0),
            num_gpus=bundle.pop("GPU", 0),
            memory=bundle.pop("memory", None),
            resources=bundle,
            max_concurrency=100,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=spot.first + number
            ),
        )
        return made.remote()

    async def _there(self, spot: Spot, actors: Sequence[Any]) -> Sequence[tuple[str, int]]:
        """Where the actors are, once there is room for them.

        Raises:
            LaunchError: there is none, or the cluster is gone.
        """
        answers = asyncio.gather(*(each.where.remote() for each in actors))
        try:
            done, _ = await asyncio.wait({answers}, timeout=min(_QUIET_S, self._options.give_up_s))
            if not done:
                self._say(f"{spot.name} waits for room: {'; '.join(map(_text, spot.bundles))}")
            left = max(0.0, self._options.give_up_s - _QUIET_S)
            return await asyncio.wait_for(answers, None if done else left)
        except TimeoutError:
            seconds = f"{self._options.give_up_s:g} s"
            raise LaunchError(f"the cluster had no room for {spot.name} in {seconds}") from None
        except RayError as error:
            raise LaunchError(f"{spot.name} can't be placed: {error}") from error
        finally:
            answers.cancel()

    async def _begun(
        self, spot: Spot, actor: Any, command: Sequence[str], rank_0_of: Launch | None = None
    ) -> Running:
        order = Order(
            command=tuple(command),
            environ=self._environ(spot),
            folder=str(Path.cwd()),
            log=self._launch.log(spot.name),
            # The run has to be gone when it is resumed elsewhere; others may end their children.
            on_death=signal.SIGKILL if spot.process.role == "run" else signal.SIGTERM,
            rank_0_of=rank_0_of,
        )
        try:
            failed = await actor.start.remote(order)
        except RayError as error:
            raise LaunchError(f"{spot.name} can't be started: {error}") from error
        if failed:
            raise LaunchError(f"{spot.name} can't be started on its node: {failed}")
        return Placed(actor)

    def _environ(self, spot: Spot) -> Mapping[str, str]:
        """Those of this process, but Ray's own; and of the cluster for ``executor: ray``."""
        process = spot.process
        mine = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
        threads = {"OMP_NUM_THREADS": str(process.cpus)} if process.cpus else {}
        return {
            **mine,
            **threads,
            "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
            "ALE_RUN_DIRECTORY": str(self._launch.directory),
            "ALE_PROCESS": spot.name,
            **process.environ,
        }
