"""Nothing of a learner's is lost: full disks, killed programs, and updates while they work.

The server is the one of `make lab`, with its options and settings. A full disk is a limit on the
size of files, which the system enforces in the same place: in the middle of writing.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client import BlockingKernelClient

from browser.lab import Lab
from mha_course import check
from mha_course.base.disk import write_whole
from mha_course.engine.report import Report
from mha_course.lab import command as lab
from mha_course.lab import copies
from mha_course.practice import journal

resource = pytest.importorskip("resource", reason="Windows has no limit on the size of files")

TODAY = date(2026, 11, 21)
LIMIT = 2**18  # bytes that a file may have on the server's full disk
PATIENCE = 600  # seconds for what takes a few: a machine may be busy


@contextlib.contextmanager
def full_disk(n_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond `n_bytes`. No module is compiled, as Python would keep
    the file that is cut off, and fail at every import.
    """
    _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


def wait_until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


# --- one file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bytes", [0, 1, 4097, 9999])
def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with full_disk(n_bytes), pytest.raises(OSError, match="large"):
        write_whole(path, b"n" * 10_000)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
    assert write_whole(path, b"n" * 10_000)
    assert path.read_bytes() == b"n" * 10_000 and list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link_and_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, b"new")
    assert link.is_symlink() and path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640


# --- the table of progress ------------------------------------------------------------------------


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of progress in a folder of its own, one exercise done; this kernel knows nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "_state", {})
    path = tmp_path / journal.FILE
    path.write_text('{"causal_mask": "done"}')
    return path


def right(x: Any, n_heads: int) -> Any:
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def test_a_full_disk_is_reported_and_progress_saved_later(progress: Path) -> None:
    before = progress.read_bytes()
    with full_disk(7):
        assert check.split_heads(right).passed
        assert not check.progress().kept
    assert progress.read_bytes() == before
    check.split_heads(right)  # done already, and still not in the file
    assert json.loads(progress.read_text()) == {"causal_mask": "done", "split_heads": "done"}


@pytest.mark.parametrize(
    "content", ["", "\x00", "[1]", '{"merge_heads": "do', "[" * 100_000, '{"merge_heads": 3}']
)
def test_a_broken_file_of_progress_is_put_aside(progress: Path, content: str) -> None:
    for broken in (content, "another"):  # which replaces the first one nowhere
        progress.write_text(broken)
        check.split_heads(right)
    assert json.loads(progress.read_text()) == {"split_heads": "done"}
    kept = {path.read_text() for path in progress.parent.glob(".progress.broken*")}
    assert kept == {content, "another"}


def test_kernels_that_write_at_once_and_one_that_is_killed_meanwhile(progress: Path) -> None:
    load = journal._load

    def slowly() -> Any:
        found = load()
        time.sleep(0.2)  # long enough for the other kernels to read the same
        return found

    def dies(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def kernel(name: str) -> int:
        """In a fork of this process, which has loaded the package."""
        child = os.fork()
        if child == 0:
            try:
                journal._load = slowly
                if name == "killed":
                    os.fsync = dies
                journal.remember(Report(name, True))
                os._exit(0)
            finally:
                os._exit(1)
        return child

    kernels = [kernel(name) for name in ("a", "b", "killed", "c")]
    assert [os.waitpid(child, 0)[1] for child in kernels] == [0, 0, signal.SIGKILL, 0]
    kept = json.loads(progress.read_text())
    assert kept == {"causal_mask": "done", "a": "done", "b": "done", "c": "done"}
    check.split_heads(right)  # the killed one has left no lock
    assert json.loads(progress.read_text()) == {**kept, "split_heads": "done"}


# --- the server of `make lab` ---------------------------------------------------------------------


def notebook(text: str) -> nbformat.NotebookNode:
    cell = nbformat.v4.new_code_cell(text, id="only")
    return nbformat.v4.new_notebook(cells=[cell])


def text_of(path: Path) -> str:
    """The only cell of a notebook on disk; fails where the file is not a whole notebook."""
    return nbformat.read(path, as_version=4).cells[0].source


class Server(Lab):
    """The server of `make lab` over a folder, on a disk on which large files do not fit."""

    def __init__(self, folder: Path) -> None:
        with full_disk(LIMIT):
            super().__init__(folder)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def save(self, name: str, text: str) -> tuple[int, Any]:
        content = {"type": "notebook", "format": "json", "content": notebook(text)}
        return self.ask("PUT", f"api/contents/{name}", content)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server"))
    yield made
    made.stop()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("beyond", [1, 5_000, 100_000])
def test_a_full_disk_while_saving_is_reported_and_leaves_the_old_notebook(
    server: Server, beyond: int
) -> None:
    """A few bytes too many show only at the very end of writing."""
    name = f"full{beyond}.ipynb"
    server.save(name, "old")
    for _ in range(2):  # the browser tries again by itself
        code, said = server.save(name, "x" * (LIMIT + beyond - 200))
        assert code == 500 and "File too large" in said["message"]
        assert text_of(server.work / name) == "old"
    assert server.save(name, "new")[0] == 200
    assert text_of(server.work / name) == "new"


def test_what_is_typed_is_saved_every_twenty_seconds(server: Server) -> None:
    _, found = server.ask("GET", "lab/api/settings/@jupyterlab/docmanager-extension:plugin")
    saving = found["schema"]["properties"]
    assert saving["autosave"]["default"] is True and saving["autosaveInterval"]["default"] == 20


def test_a_full_disk_leaves_the_old_checkpoint(server: Server) -> None:
    path = server.work / "checked.ipynb"
    server.save(path.name, "old")
    _, checkpoint = server.ask("POST", f"api/contents/{path.name}/checkpoints", {})
    path.write_text(nbformat.writes(notebook("x" * LIMIT)))  # from elsewhere
    assert server.ask("POST", f"api/contents/{path.name}/checkpoints", {})[0] == 500
    assert len(text_of(path)) == LIMIT
    restore = f"api/contents/{path.name}/checkpoints/{checkpoint['id']}"
    assert server.ask("POST", restore, {})[0] == 204
    assert text_of(path) == "old"


# --- kernels --------------------------------------------------------------------------------------


class Kernel:
    """A kernel that the server has started for a notebook, and a client of it."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        session = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        _, answer = server.ask("POST", "api/sessions", session)
        self.id = answer["kernel"]["id"]
        connection = server.work.parent / f"runtime/kernel-{self.id}.json"
        self.client = BlockingKernelClient(connection_file=str(connection))
        self.client.load_connection_file()
        self.client.start_channels()
        self.wait_for_ready()

    def wait_for_ready(self) -> None:
        """Tries again: a kernel that starts slowly has no heartbeat, and counts as dead."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.client.wait_for_ready(PATIENCE)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def start(self, code: str) -> None:
        """Runs `code`, and returns as soon as it has made the file `running`."""
        sign = self.server.work / "running"
        sign.unlink(missing_ok=True)
        self.client.execute(code)
        wait_until(sign.exists)

    def says(self, code: str) -> str:
        said: list[str] = []

        def listen(message: dict[str, Any]) -> None:
            said.append(message["content"].get("text", ""))

        self.client.execute_interactive(code, timeout=PATIENCE, output_hook=listen)
        return "".join(said)


@pytest.fixture(scope="class")
def running(server: Server) -> Iterator[Kernel]:
    server.save("kernel.ipynb", "old")
    made = Kernel(server, "kernel.ipynb")
    yield made
    made.client.stop_channels()
    server.ask("DELETE", f"api/kernels/{made.id}")


ENDLESS = """
from pathlib import Path
from mha_course import check
check.progress(keep=True)

def causal_mask(T):
    Path("running").touch()
    while True:
        pass

report = check.causal_mask(causal_mask)
"""
AFTER = """
import json, torch
print(report.passed, str(report), torch.initial_seed() == seed)
check.split_heads(lambda x, h: x.unflatten(-1, (h, -1)).transpose(1, 2))
print(json.load(open(".progress.json")))
"""


class TestKernel:
    def test_an_interrupted_check_says_so_and_leaves_all_as_it_was(self, running: Kernel) -> None:
        running.says("import torch; torch.manual_seed(8677); seed = torch.initial_seed()")
        running.start(ENDLESS)
        running.server.ask("POST", f"api/kernels/{running.id}/interrupt", {})
        said = running.says(AFTER)
        assert said.startswith("False") and "was interrupted" in said and "True\n" in said
        assert "{'causal_mask': 'tried', 'split_heads': 'done'}" in said

    def test_a_kernel_killed_while_a_cell_runs_and_the_notebook_is_saved(
        self, running: Kernel
    ) -> None:
        server, path = running.server, running.server.work / "kernel.ipynb"
        before = int(running.says("import os; print(os.getpid())"))
        running.start("open('running', 'w').close()\nwhile True: pass")
        assert server.save(path.name, "saved while it runs")[0] == 200
        os.kill(before, signal.SIGKILL)
        for n in range(20):
            assert server.save(path.name, f"saved {n}")[0] == 200
            assert text_of(path) == f"saved {n}"
        wait_until(lambda: b"restarting" in server.log.read_bytes())
        running.wait_for_ready()
        assert int(running.says("import os; print(os.getpid())")) != before
        assert text_of(path) == "saved 19"


# --- an update while a notebook is open -----------------------------------------------------------


@pytest.fixture
def course(server: Server, tmp_path: Path) -> tuple[Path, Path]:
    """A course of one notebook, and a fresh working copy of it below the server's folder."""
    source, mine = tmp_path / "notebooks", server.work / tmp_path.name
    source.mkdir()
    (source / "a.ipynb").write_text(nbformat.writes(notebook("first")))
    lab.sync(source, mine, TODAY)
    return source, mine


def texts(mine: Path) -> dict[str, str]:
    return {path.name: text_of(path) for path in mine.glob("*.ipynb")}


def test_an_update_of_what_is_open_and_not_saved_yet(
    server: Server, course: tuple[Path, Path]
) -> None:
    """JupyterLab sees another hash and asks; a learner who overwrites keeps their own version."""
    source, mine = course
    stat = f"api/contents/{mine.name}/a.ipynb?content=0&hash=1"
    opened = server.ask("GET", stat)[1]["hash"]
    (source / "a.ipynb").write_text(nbformat.writes(notebook("second")))
    assert lab.sync(source, mine, TODAY)
    assert server.ask("GET", stat)[1]["hash"] != opened
    server.save(f"{mine.name}/a.ipynb", "my work")
    assert lab.sync(source, mine, TODAY) == []
    assert texts(mine) == {"a.ipynb": "my work"}
    (source / "a.ipynb").write_text(nbformat.writes(notebook("third")))
    lab.sync(source, mine, TODAY)
    assert texts(mine) == {"a.ipynb": "my work", f"a.updated-{TODAY}.ipynb": "third"}


def test_a_save_in_the_middle_of_an_update_is_not_overwritten(
    server: Server, course: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, mine = course
    (source / "a.ipynb").write_text(nbformat.writes(notebook("second")))
    fsync, saves = os.fsync, iter(["my work"])

    def meanwhile(file: int) -> None:
        for text in saves:
            server.save(f"{mine.name}/a.ipynb", text)
        fsync(file)

    monkeypatch.setattr(os, "fsync", meanwhile)
    assert lab.sync(source, mine, TODAY)
    assert texts(mine) == {"a.ipynb": "my work", f"a.updated-{TODAY}.ipynb": "second"}


@pytest.mark.parametrize("n_bytes", [10, 300])
def test_an_update_on_a_full_disk_changes_nothing(
    course: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, n_bytes: int
) -> None:
    source, mine = course
    (source / "a.ipynb").write_text(nbformat.writes(notebook("second" * 100)))
    with full_disk(n_bytes), pytest.raises(OSError, match="large"):
        lab.sync(source, mine, TODAY)
    assert texts(mine) == {"a.ipynb": "first"}
    assert {path.name for path in mine.iterdir()} == {"a.ipynb", copies.RECORD}
    assert lab.sync(source, mine, TODAY) and texts(mine) == {"a.ipynb": "second" * 100}


# --- the server's end: last, as it serves no further test -----------------------------------------


def test_a_server_killed_while_it_saves_leaves_a_whole_notebook(server: Server) -> None:
    path, saved = server.work / "killed.ipynb", []

    def save_on_and_on() -> None:
        with contextlib.suppress(OSError, urllib.error.URLError):
            while True:
                server.save(path.name, f"{len(saved)} " + "x" * (LIMIT // 2))
                saved.append(len(saved))

    learner = threading.Thread(target=save_on_and_on)
    learner.start()
    wait_until(lambda: len(saved) > 5)
    server.process.kill()
    server.process.wait()
    learner.join(PATIENCE)
    assert int(text_of(path).split()[0]) in (saved[-1], saved[-1] + 1)
