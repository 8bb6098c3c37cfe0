"""Who this process is: its name for a collector, the launch that it belongs to, and its rank."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gradwatch.schema import NO_RANK

RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
)
"""Variables with a process's rank and the number of ranks, as launchers set them; the first pair that is set counts."""


class Born(NamedTuple):
    """A process of a machine, told apart from a later one with the same number. `started` is in the system's own units."""

    host: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"{self.host}-{self.pid}-{self.started}"

    @property
    def is_alive(self) -> bool | None:
        """Whether it still runs; None on another host, where this cannot be seen."""
        if self.host != host():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return self.started == start_of(self.pid)


class Identity(NamedTuple):
    """`process` and `launch` as `OpenRun` has them; `rank` is announced, `point_rank` is the rank that points carry."""

    process: str
    launch: str
    rank: int | None
    point_rank: int
    born: Born


def identify(environment: Mapping[str, str], launch: str = "", inits: int = 1) -> Identity:
    """The identity of this process, as the `inits`-th run that it opens."""
    born = own()
    name, rank = _rank(environment)
    is_rank = rank is not None and not _is_inherited(name)
    return Identity(
        process=f"{born}-{secrets.token_hex(4)}",
        launch=launch or launch_of(environment, inits),
        rank=rank if is_rank else None,
        point_rank=rank or NO_RANK,
        born=born,
    )


def launch_of(environment: Mapping[str, str], inits: int = 1) -> str:
    """One name for all processes of a job start: the launcher's, else the parent's of a multiprocessing child, else our own."""
    get = environment.get
    address = f"{get('MASTER_ADDR', '')}:{get('MASTER_PORT', '')}"
    if get("TORCHELASTIC_RUN_ID"):
        return f"torchelastic/{get('TORCHELASTIC_RUN_ID')}/{get('TORCHELASTIC_RESTART_COUNT', '0')}/{address}"
    if get("SLURM_JOB_ID") and get("SLURM_PROCID"):
        return f"slurm/{get('SLURM_JOB_ID')}/{get('SLURM_STEP_ID', '')}/{get('SLURM_RESTART_COUNT', '0')}"
    for variable in ("RAY_JOB_ID", "PMIX_NAMESPACE"):
        if get(variable):
            return f"{variable.lower()}/{get(variable)}"
    if _rank(environment)[1] is not None and get("MASTER_PORT"):
        return f"master/{address}"
    parent = parent_pid()
    if parent is not None:
        return str(Born(host(), parent, start_of(parent)))
    return f"{own()}" if inits == 1 else f"{own()}/{inits}"


def new_run_id(environment: Mapping[str, str], inits: int = 1) -> str:
    """The id of the `inits`-th unnamed run of a process: one for all ranks where a launcher names the job, else a random one."""
    job = _job(environment) if _rank(environment)[1] is not None else ""
    return hashlib.sha256(f"{job}/{inits}".encode()).hexdigest()[:12] if job else secrets.token_hex(6)


def _job(environment: Mapping[str, str]) -> str:
    """A name that no other job has, "" where there is none: a launcher's default name, or a batch script, serves job after job."""
    get = environment.get
    if get("SLURM_JOB_ID") and get("SLURM_STEP_ID"):
        return f"slurm/{get('SLURM_CLUSTER_NAME', '')}/{get('SLURM_JOB_ID')}/{get('SLURM_STEP_ID', '')}"
    if get("TORCHELASTIC_RUN_ID", "none") != "none":
        return f"torchelastic/{get('TORCHELASTIC_RUN_ID')}/{get('MASTER_ADDR', '')}:{get('MASTER_PORT', '')}"
    if parent_pid() is not None or get("LOCAL_WORLD_SIZE") == get("WORLD_SIZE", ""):
        parent = os.getppid()
        return f"parent/{Born(host(), parent, start_of(parent))}"
    return ""


def _rank(environment: Mapping[str, str]) -> tuple[str, int | None]:
    """The variable that holds the rank, and the rank; None for the only process of its job."""
    for name, size in RANKS:
        rank, ranks = environment.get(name, ""), environment.get(size, "")
        if rank.isdigit() and ranks.isdigit():
            return name, int(rank) if int(ranks) > 1 else None
    return "", None


def _is_inherited(variable: str) -> bool:
    """Whether a multiprocessing child (a data loader's worker) has its parent's rank and none of its own."""
    return parent_pid() is not None and variable in _first_environment()


@cache
def _first_environment() -> frozenset[str]:
    try:
        pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return frozenset()
    return frozenset(pair.partition(b"=")[0].decode(errors="replace") for pair in pairs)


def parent_pid() -> int | None:
    """The parent of a process that Python's multiprocessing started, else None."""
    module = sys.modules.get("multiprocessing.process")
    parent = module.parent_process() if module is not None else None
    return parent.pid if parent is not None else None


@cache
def host() -> str:
    """The name of this machine, in the characters that a file name allows."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", socket.gethostname())[:60] or "host"


def own() -> Born:
    """The process that asks."""
    return Born(host(), os.getpid(), start_of(os.getpid()))


def start_of(pid: int) -> str:
    """When a process of this machine started, in clock ticks since boot; "0" where the system does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "0"
    # The name, in parentheses, may hold anything; the 22nd field is the 20th after it.
    return text.rpartition(")")[2].split()[19]
