"""A Slurm cluster of one node on this machine, in a folder of its own.

The daemons run as whoever runs the tests, listen on ports that were free, and are the
only processes that are ended: whatever else of Slurm is here stays as it is.
"""

import contextlib
import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol")
PATIENCE = 400.0  # Seconds that are waited for anything of the cluster.
# Jobs that share a core: tests have more workers than small machines have cores. A
# requeued job waits as long as a credential is valid, at least 6 s.
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=6
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
KillWait=2
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=usual Nodes=ALL Default=YES PriorityTier=1 OverSubscribe=FORCE:8
PartitionName=urgent Nodes=ALL PriorityTier=9
"""


def missing() -> list[str]:
    """Programs of Slurm that are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name)]


class Job(NamedTuple):
    """What the controller says of a job, or of one of an array."""

    id: str  # As commands take it, such as 3_1.
    state: str
    restarts: int


class Cluster(NamedTuple):
    """Where the daemons listen, as `SLURM_CONF` in the environment of commands."""

    folder: pathlib.Path
    environment: Mapping[str, str]

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints; raises if it fails."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def jobs(self) -> dict[str, Job]:
        """Those that wait, run or have ended lately, by id."""
        found = {}
        for line in self.ask("scontrol", "--oneliner", "show", "job").splitlines():
            own = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if "JobId" in own:
                array, task = own.get("ArrayJobId"), own.get("ArrayTaskId")
                id = own["JobId"] if array is None else f"{array}_{task}"
                found[id] = Job(id, own["JobState"], int(own["Restarts"]))
        return found

    def runs(self, id: str, restarts: int) -> bool:
        """Whether a job runs, and was started again so many times. Of an array that
        waits jobs have no ids yet."""
        job = self.jobs().get(id)
        return job is not None and job[1:] == ("RUNNING", restarts)

    def unfinished(self) -> list[Job]:
        """Jobs that wait or run, or are being ended."""
        going = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED"}
        return [job for job in self.jobs().values() if job.state in going]

    def processes(self, id: str) -> list[int]:
        """The processes of a running job."""
        text = self.ask("squeue", "--noheader", "--format=%A", f"--jobs={id}")
        words = self.ask("scontrol", "listpids", text.strip()).split("\n")[1:]
        return [int(line.split()[0]) for line in words if line.strip()]

    def wait_until(self, is_true: Callable[[], object], what: str) -> None:
        """Look every tenth of a second; AssertionError if it does not come about."""
        deadline = time.monotonic() + PATIENCE
        while not is_true():
            if time.monotonic() > deadline:
                log = (self.folder / "slurmctld.log").read_text()[-2000:]
                raise AssertionError(f"{what} did not come: {self.jobs()}\n{log}")
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


@contextlib.contextmanager
def running(folder: pathlib.Path) -> Iterator[Cluster]:
    """A cluster in a folder whose path is short, as that of a socket must be; all its
    jobs are cancelled and its daemons ended with the context."""
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir()
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=socket.gethostname(),
            user=getpass.getuser(),
            controller=_free_port(),
            node=_free_port(),
            folder=folder,
            cores=os.cpu_count(),
        )
    )
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    environment |= {"OMP_NUM_THREADS": "1"}
    own = lambda name: f"--{name}={folder}/munge/{name.removesuffix('-file')}"
    files = ("key-file", "socket", "pid-file", "log-file", "seed-file")
    daemons = (
        # Temporary folders may be anybody's, which it only warns of if forced.
        ["munged", "--foreground", "--force", *map(own, files)],
        ["slurmctld", "-D"],
        ["slurmd", "-D"],
    )
    started: list[subprocess.Popen] = []
    cluster = Cluster(folder, environment)
    try:
        with (folder / "output").open("w") as output:
            for command in daemons:
                both: dict[str, Any] = {"stdout": output, "stderr": output}
                started.append(subprocess.Popen(command, env=environment, **both))
        is_there = lambda: b"idle" in _said("sinfo", "-h", "-o", "%T", env=environment)
        cluster.wait_until(is_there, "an idle node")
        yield cluster
        if jobs := [job.id for job in cluster.unfinished()]:
            cluster.ask("scancel", *jobs)
            cluster.wait_until(lambda: not cluster.unfinished(), "the end of all jobs")
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _said(*command: str, env: Mapping[str, str]) -> bytes:
    """What a command prints, if it can already."""
    return subprocess.run(command, env=env, capture_output=True).stdout
