"""A Slurm of three nodes on this machine, started for the tests and ended after them."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import field, frozen

from ale.testing.waiting import wait_for

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")
# A lost node is noticed after some 6 seconds, and a job that was cancelled is killed after one.
# Heterogeneous jobs are started by the backfill scheduler only, by default twice a minute.
# Jobs of two clusters on this machine need other ids, from which the port of their ranks follows.
_CONF = """
ClusterName=ale
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmctldParameters=enable_configless
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
MpiDefault=none
SlurmdTimeout=2
MessageTimeout=2
TCPTimeout=1
KillWait=1
SlurmdParameters=config_overrides
FirstJobId={first}
{nodes}
PartitionName=cpu Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP
"""


@frozen
class Cluster:
    """Its daemons run in the foreground, as children of the tests."""

    folder: Path
    processes: dict[str, "subprocess.Popen[bytes]"] = field(factory=dict)

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                command, stdout=out, stderr=out, start_new_session=True
            )

    def start_node(self, name: str) -> None:
        conf = str(self.folder / "slurm.conf")
        self.start(name, "slurmd", "-D", "-f", conf, "-N", name)

    def states(self) -> dict[str, str]:
        printed = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%N %T"], capture_output=True, text=True, check=False
        ).stdout
        return dict(line.split() for line in printed.splitlines())

    def kill_node(self, name: str) -> None:
        """As a machine dies: its daemon, the parents of its steps, and what they have started."""
        self.processes[name].kill()
        self.processes[name].wait()
        mark = f"SLURMD_NODENAME={name}".encode()
        found = [entry for entry in Path("/proc").glob("[0-9]*") if mark in environ_of(entry)]
        parents = {parent_of(entry) for entry in found}
        for entry in [*(each for each in parents if is_step(each)), *found]:
            try:
                os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue

    def end(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            process.wait(20)


def environ_of(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def parent_of(entry: Path) -> Path:
    try:
        return Path("/proc", (entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return Path("/proc/0")


def is_step(entry: Path) -> bool:
    try:
        return "slurmstepd" in (entry / "comm").read_text()
    except OSError:
        return False


def free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def missing() -> list[str]:
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    return absent or ([] if os.geteuid() == 0 else ["root, who alone can start slurmd here"])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Running, with SLURM_CONF set."""
    if absent := missing():
        reason = f"Slurm can't be started: {', '.join(absent)} missing"
        assert os.environ.get("CI") != "true", reason
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    host = socket.gethostname().partition(".")[0]
    port, *ports = free_ports(4)
    nodes = "\n".join(
        f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={each} CPUs=4 RealMemory=2000"
        for i, each in enumerate(ports, 1)
    )
    text = _CONF.format(
        host=host, port=port, user="root", folder=folder, nodes=nodes, first=1 + port % 10_000
    )
    (folder / "slurm.conf").write_text(text)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    made = Cluster(folder)
    files = {"socket": "sock", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
    named = [f"--{option}={folder}/munge.{name}" for option, name in files.items()]
    made.start("munged", "munged", "--foreground", "--force", f"--key-file={key}", *named)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    try:
        wait_for((folder / "munge.sock").exists)
        made.start("slurmctld", "slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        for name in ("n1", "n2", "n3"):
            made.start_node(name)
        wait_for(lambda: [*made.states().values()] == ["idle"] * 3)
        yield made
    finally:
        del os.environ["SLURM_CONF"]
        made.end()
