"""Real processes: forks, spawns, data loaders, signals and exceptions; exit codes stay the user's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path

import pytest
from client.scripted import Server, free_port, wait_until

from gradwatch.client.http_transport import HttpTransport
from gradwatch.client.sync import sync

SECONDS = 30


def program(code: str, url: str, folder: Path, *start: str) -> subprocess.Popen[str]:
    """A Python process that runs `code`, from a file so that its functions can be spawned."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(code))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GRADWATCH_", "PYTEST_"))}
    environment |= {"GRADWATCH_URL": url, "GRADWATCH_DIR": str(folder / "spool")}
    return subprocess.Popen(
        [*start, sys.executable, str(path)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out + err


def statuses(server: Server) -> list[str]:
    return [batch.status for batch in server.batches.values() if batch.status]


def test_a_process_that_just_ends_delivers_everything(server: Server, tmp_path: Path) -> None:
    code, told = ended(program("import gradwatch; gradwatch.init().log({'loss': 1.0})", server.url, tmp_path))
    assert code == 0, told
    assert server.values("loss") == [1.0]
    assert statuses(server) == ["finished"]


def test_an_uncaught_exception_is_a_failed_run_and_still_shown(server: Server, tmp_path: Path) -> None:
    code, told = ended(program("import gradwatch; gradwatch.init(quiet=True).log({'loss': 1.0}); 1 / 0", server.url, tmp_path))
    assert code == 1
    assert "ZeroDivisionError: division by zero" in told
    assert server.values("loss") == [1.0]
    assert statuses(server) == ["failed"]
    assert server.events("failed") == ["ZeroDivisionError: division by zero"]


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        ("raise ValueError('x')", "failed"),
        ("raise KeyboardInterrupt", "interrupted"),
        ("exit(0)", "finished"),
        ("exit(3)", "failed"),
    ],
)
def test_a_with_block_ends_as_it_was_left(server: Server, tmp_path: Path, stop: str, status: str) -> None:
    ended(
        program(f"import gradwatch\nwith gradwatch.init() as run:\n    run.log({{'loss': 1.0}})\n    {stop}", server.url, tmp_path)
    )
    assert statuses(server) == [status]


LOOP = """
import gradwatch, sys, threading
run = gradwatch.init()
run.log({"loss": 1.0})
print("ready", flush=True)
threading.Event().wait(30)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_is_an_interrupted_run_and_the_exit_code_stays(server: Server, tmp_path: Path, number: int, code: int) -> None:
    process = program(LOOP, server.url, tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    exit_code, told = ended(process)
    assert exit_code == code, told
    assert server.values("loss") == [1.0]
    assert statuses(server) == ["interrupted"]


def test_a_handler_of_the_users_own_decides_what_follows(server: Server, tmp_path: Path) -> None:
    code = """
    import gradwatch, signal, threading
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    run = gradwatch.init()
    print("ready", flush=True)
    while not stop.wait(0.05):
        pass
    run.log({"saved": 1.0})
    run.finish()
    raise SystemExit(7)
    """
    process = program(code, server.url, tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 7
    assert server.values("saved") == [1.0]
    assert statuses(server) == ["interrupted"]


def test_sigterm_that_is_ignored_stays_ignored(server: Server, tmp_path: Path) -> None:
    code = """
    import gradwatch, signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gradwatch.init()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    """
    assert ended(program(code, server.url, tmp_path))[0] == 0


def test_a_forked_child_logs_as_a_process_of_its_own(server: Server, tmp_path: Path) -> None:
    code = """
    import gradwatch, os, sys
    run = gradwatch.init(id="r")
    run.log({"parent": 1.0})
    child = os.fork()
    if child == 0:
        for step in range(50):
            run.log({"child": float(step)}, step=step)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    run.log({"parent": 2.0})
    """
    exit_code, told = ended(program(code, server.url, tmp_path))
    assert exit_code == 0, told
    assert server.values("parent") == [1.0, 2.0]
    assert server.values("child") == [float(step) for step in range(50)]
    assert len({one.process for one in server.opened}) == 2
    assert len({one.launch for one in server.opened}) == 1
    assert Counter(statuses(server)) == {"finished": 2}


def test_a_forked_child_that_logs_nothing_says_nothing(server: Server, tmp_path: Path) -> None:
    code = """
    import gradwatch, os, sys
    run = gradwatch.init()
    for _ in range(3):
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
    """
    assert ended(program(code, server.url, tmp_path))[0] == 0
    assert len(server.opened) == 1
    assert statuses(server) == ["finished"]


def test_forks_while_other_threads_log_never_hang(server: Server, tmp_path: Path) -> None:
    code = """
    import gradwatch, os, threading
    run = gradwatch.init()
    stop = threading.Event()
    def work():
        while not stop.is_set():
            run.log({"x": 1.0})
            stop.wait(0.001)
    threads = [threading.Thread(target=work) for _ in range(3)]
    [one.start() for one in threads]
    for number in range(8):
        child = os.fork()
        if child == 0:
            run.log({"child": 1.0}, step=number)
            run.finish()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    [one.join() for one in threads]
    """
    exit_code, told = ended(program(code, server.url, tmp_path))
    assert exit_code == 0, told
    assert len(server.values("child")) == 8


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_children_join_the_run_and_end(server: Server, tmp_path: Path, method: str) -> None:
    code = f"""
    import gradwatch, multiprocessing
    def work(number):
        gradwatch.init(id="r").log({{"child": float(number)}}, step=number)
    if __name__ == "__main__":
        gradwatch.init(id="r")
        context = multiprocessing.get_context("{method}")
        children = [context.Process(target=work, args=(number,)) for number in range(2)]
        [one.start() for one in children]
        [one.join() for one in children]
        assert [one.exitcode for one in children] == [0, 0]
        print("over")
    """
    exit_code, told = ended(program(code, server.url, tmp_path))
    assert exit_code == 0, told
    assert sorted(server.values("child")) == [0.0, 1.0]
    launches = Counter(one.launch for one in server.opened)
    assert len(launches) == 1
    assert Counter(statuses(server)) == {"finished": 3}


def test_data_loader_workers_log_and_end(server: Server, tmp_path: Path) -> None:
    code = """
    import gradwatch, torch
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 20
        def __getitem__(self, at):
            run.log({"row": float(at)}, step=at)
            return torch.tensor(float(at))
    run = gradwatch.init(id="r")
    for epoch in range(2):
        loader = torch.utils.data.DataLoader(Rows(), batch_size=5, num_workers=2, multiprocessing_context="fork")
        for step, rows in enumerate(loader):
            run.log({"rows": rows}, step=step)
    """
    exit_code, told = ended(program(code, server.url, tmp_path))
    assert exit_code == 0, told
    assert Counter(server.values("row")) == {float(at): 2 for at in range(20)}
    assert len(server.opened) == 5


def test_a_child_leaves_what_it_cannot_send_in_a_spool_of_its_own(tmp_path: Path) -> None:
    code = """
    import gradwatch, os, sys
    run = gradwatch.init(id="r", flush_seconds=0.2)
    run.log({"parent": 1.0})
    if os.fork() == 0:
        run.log({"child": 1.0})
        sys.exit(0)
    os.wait()
    """
    exit_code, told = ended(program(code, f"http://127.0.0.1:{free_port()}", tmp_path))
    assert exit_code == 0
    assert len(list((tmp_path / "spool").glob("r@*.spool"))) == 2
    assert "gradwatch sync" in told


def test_an_interrupt_while_the_end_waits_keeps_everything(server: Server, tmp_path: Path) -> None:
    server.misbehave = lambda request: request.problem(429, "busy", {"Retry-After": "60"})
    code = """
    import gradwatch
    run = gradwatch.init(id="r", flush_seconds=20)
    run.log({"loss": 1.0})
    print("ready", flush=True)
    run.finish()
    """
    process = program(code, server.url, tmp_path)
    wait_until(lambda: server.requests >= 1)
    process.send_signal(signal.SIGINT)
    ended(process)
    (spool,) = (tmp_path / "spool").glob("*.spool")
    assert b"loss" in spool.read_bytes()


STUCK = """
import gradwatch, sys, threading
run = gradwatch.init()
run.log({"loss": 1.0})
threading.Timer(0.2, print, ["ready"], {"flush": True}).start()
"""


@pytest.mark.parametrize("ending", ["run.finish()", "threading.Event().wait(30)"])
def test_a_signal_while_a_run_is_ending_loses_nothing(server: Server, tmp_path: Path, ending: str) -> None:
    release = threading.Event()
    server.misbehave = lambda request: not release.wait(SECONDS) and False
    process = program(STUCK + ending, server.url, tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    if "finish" not in ending:
        # The handler of the first one waits for the collector; the second one has it wait no longer.
        wait_until(lambda: _is_ending(process.pid))
        process.send_signal(signal.SIGTERM)
    exit_code, told = ended(process)
    release.set()
    assert exit_code == -signal.SIGTERM, told
    server.misbehave = lambda request: False
    sync(tmp_path / "spool", lambda: HttpTransport(server.url))
    assert set(server.values("loss")) == {1.0}
    assert set(statuses(server)) == {"interrupted"}


def _is_ending(pid: int) -> bool:
    """Whether the process's SIGTERM has been taken: none is pending."""
    text = Path(f"/proc/{pid}/status").read_text()
    return all(int(line.split()[1], 16) == 0 for line in text.splitlines() if line.startswith(("SigPnd", "ShdPnd")))


def test_a_handler_between_two_of_ours_is_no_circle(server: Server, tmp_path: Path) -> None:
    code = """
    import gradwatch, os, signal
    gradwatch.init(id="a").log({"loss": 1.0})
    below = signal.getsignal(signal.SIGTERM)
    def mine(number, frame):
        print("mine", flush=True)
        below(number, frame)
    signal.signal(signal.SIGTERM, mine)
    gradwatch.init(id="b").log({"loss": 2.0})
    os.kill(os.getpid(), signal.SIGTERM)
    """
    exit_code, told = ended(program(code, server.url, tmp_path))
    assert (exit_code, told.count("mine")) == (-signal.SIGTERM, 1)
    assert sorted(server.values("loss")) == [1.0, 2.0]
    assert statuses(server) == ["interrupted", "interrupted"]
    assert server.events("interrupted") == ["SIGTERM", "SIGTERM"]


def test_an_exception_that_cannot_be_text_is_still_the_users(server: Server, tmp_path: Path) -> None:
    code = """
    import gradwatch, sys
    class Mute(Exception):
        def __str__(self): raise RuntimeError("no text")
    try:
        with gradwatch.init(id="a"): raise Mute
    except Mute:
        print("caught", flush=True)
    sys.excepthook = lambda kind, error, trace: print("hook of", kind.__name__, flush=True)
    gradwatch.init(id="b")
    raise Mute
    """
    exit_code, told = ended(program(code, server.url, tmp_path))
    assert exit_code == 1
    assert "caught" in told
    assert server.events("failed") == ["Mute"]
    assert statuses(server) == ["failed", "finished"]


def test_a_flag_raised_in_a_signals_handler_waits_for_nothing(tmp_path: Path) -> None:
    code = """
    import signal
    from gradwatch.client.flag import Flag
    flag, taken = Flag(), 0
    def handler(number, frame):
        global taken
        flag.set()
        flag.wait(0.0)
        taken += 1
        if taken < 2000:
            signal.setitimer(signal.ITIMER_REAL, 2e-5)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 2e-5)
    while taken < 2000:
        flag.set()
        flag.take(0.0)
    """
    assert ended(program(code, "http://127.0.0.1:1", tmp_path)) == (0, "")
