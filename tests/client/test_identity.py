"""Which processes belong to one launch, and which rank they have, as launchers tell it."""

from __future__ import annotations

import os

import pytest

from gradwatch.client.identity import Born, host, identify, launch_of, new_run_id, own, start_of
from gradwatch.schema import NO_RANK

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "1",
    "MASTER_ADDR": "n1", "MASTER_PORT": "29500",
}  # fmt: skip
SLURM = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "2"}
MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "ns"}
RAY = {"RAY_JOB_ID": "01000000"}


@pytest.mark.parametrize(
    ("environment", "launch", "rank", "point_rank"),
    [
        (TORCHRUN, "torchelastic/job/1/n1:29500", 3, 3),
        (TORCHRUN | {"RANK": "0"}, "torchelastic/job/1/n1:29500", 0, NO_RANK),
        (SLURM, "slurm/77/0/2", 2, 2),
        (SLURM | TORCHRUN, "torchelastic/job/1/n1:29500", 3, 3),
        (MPI, "pmix_namespace/ns", 1, 1),
        (RAY, "ray_job_id/01000000", None, NO_RANK),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "master/a:1", 1, 1),
        ({"RANK": "0", "WORLD_SIZE": "1"}, str(own()), None, NO_RANK),
        ({"RANK": "x", "WORLD_SIZE": "2"}, str(own()), None, NO_RANK),
        ({}, str(own()), None, NO_RANK),
    ],
    ids=["torchrun", "rank 0", "slurm", "torchrun in slurm", "mpi", "ray", "plain ranks", "one rank", "no number", "nothing"],
)
def test_launchers_are_understood(environment: dict[str, str], launch: str, rank: int | None, point_rank: int) -> None:
    found = identify(environment)
    assert (found.launch, found.rank, found.point_rank) == (launch, rank, point_rank)


def test_a_restart_by_the_launcher_is_another_launch() -> None:
    assert launch_of(TORCHRUN) != launch_of(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "2"})
    assert launch_of(SLURM) != launch_of(SLURM | {"SLURM_RESTART_COUNT": "3"})


def test_a_given_launch_comes_first() -> None:
    assert identify(TORCHRUN, "mine").launch == "mine"


def test_a_process_is_named_once() -> None:
    assert identify({}).process != identify({}).process


def test_ranks_of_one_job_get_one_run() -> None:
    assert new_run_id(TORCHRUN) == new_run_id(TORCHRUN | {"RANK": "5", "TORCHELASTIC_RESTART_COUNT": "2"})
    assert new_run_id(SLURM) == new_run_id(SLURM | {"SLURM_PROCID": "3"})
    assert new_run_id(SLURM) != new_run_id(SLURM | {"SLURM_JOB_ID": "78"})
    assert new_run_id({}) != new_run_id({})


def test_a_launchers_default_name_is_not_taken_for_the_jobs() -> None:
    unnamed = TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}
    assert new_run_id(unnamed) != new_run_id(unnamed)
    on_one_machine = unnamed | {"LOCAL_WORLD_SIZE": "8"}
    assert new_run_id(on_one_machine) == new_run_id(on_one_machine | {"RANK": "1"})


def test_living_and_dead_processes_are_told_apart() -> None:
    assert own().is_alive
    assert Born(host(), os.getpid(), "1").is_alive is False
    assert Born(host(), 2**22 + 1, "1").is_alive is False
    assert Born("elsewhere", 1, "1").is_alive is None
    assert start_of(2**22 + 1) == "0"
