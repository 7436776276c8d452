"""Runs the judging of one notebook in a sandbox: what it may reach, how long and how much.

How strong the sandbox is depends on the system: see `command`.
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event

from mha_lesson.weights import FOLDER_VARIABLE, user_folder

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("sandboxed.py")
MOST_REPORTED = 2**23  # bytes that are read of a report: many times what it needs
CRASHED = "stopped before its end (memory, or a crash)"
BUSY = 1.5  # so many times slower than alone, and what had to wait is tried again
SAMPLE = 0.05  # seconds of work that tell how busy the machine is
CHECK_EVERY = 0.2  # seconds between two looks at the disk
MOST_FILES = 20_000
MOST_PROCESSES = 200  # threads of one process count as one; a notebook's answers need a handful
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
# What of a Linux system a Python needs, wherever it comes from. No homes, no sockets, no /etc.
_SYSTEM = """
/usr /bin /sbin /lib /lib32 /lib64 /nix/store /gnu/store /etc/ld.so.cache /etc/ld.so.conf
/etc/ld.so.conf.d /etc/alternatives /etc/fonts /etc/localtime
"""
SYSTEM = (*_SYSTEM.split(),)
BUBBLEWRAP, NO_NETWORK, LIMITS_ONLY = "bubblewrap", "unshare", "limits only"
MEANS = {
    BUBBLEWRAP: "a submission can read and write nothing but its own folder, and has no network",
    NO_NETWORK: "a submission has no network, but can read what you can read, other hand-ins too",
    LIMITS_ONLY: "a submission can read what you can read, and native code can write and connect",
}
UNSHARE = ["unshare", "-rn", "--pid", "--fork", "--kill-child", "--mount-proc"]


@dataclass(frozen=True)
class Limits:
    """For each notebook: seconds on the clock of an idle machine, GB of memory, MB on the disk."""

    seconds: float = 300
    memory_gb: float = 6
    disk_mb: float = 1000


@dataclass(frozen=True)
class Outcome:
    """How a run ended, in words (empty: it went through), and what it reported."""

    note: str
    seconds: float
    report: bytes


def slowness() -> float:
    """How many seconds pass here, now, in which a process gets one of a processor's."""
    clock, work = time.monotonic(), time.thread_time()
    while (done := time.thread_time() - work) < SAMPLE:
        sum(range(1000))
    return max(1.0, (time.monotonic() - clock) / done)


def run(
    work: Path, limits: Limits, stop: Event, program: Path | None = None, *more: str
) -> Outcome:
    """Runs `sandboxed`, or another program, on the folder `work`, at most until `stop` is set."""
    env = {
        **{k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "PYTHONPATH")},
        **dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR"), str(work)),
        FOLDER_VARIABLE: os.environ.get(FOLDER_VARIABLE, str(user_folder())),  # HOME is another
        "CUDA_VISIBLE_DEVICES": "",  # the same verdicts everywhere
        "MHA_LESSON_DEVICE": "cpu",
        "OMP_NUM_THREADS": "1",  # several may run side by side
        "MPLBACKEND": "Agg",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # what is compiled computes the same, and starts no compiler
    }
    silent, start = subprocess.DEVNULL, time.monotonic()
    with TemporaryFile() as report:
        given = str(work), str(report.fileno()), str(limits.seconds), str(limits.memory_gb)
        process = subprocess.Popen(  # -P: the program's folder is no place to import from
            [*command(str(work)), sys.executable, "-P", str(program or PROGRAM), *given, *more],
            cwd=work,
            env=env,
            pass_fds=[report.fileno()],
            start_new_session=True,
            stdin=silent,
            stdout=silent,
            stderr=silent,
        )
        try:
            note = _watch(process, work, limits, stop)
        finally:
            _end(process)
        report.seek(0)
        return Outcome(note, time.monotonic() - start, report.read(MOST_REPORTED))


def _watch(process: subprocess.Popen, work: Path, limits: Limits, stop: Event) -> str:
    """Waits until the process ends or goes beyond a limit; says how it ended."""
    start, allowed = time.monotonic(), limits.seconds
    while process.poll() is None:
        if stop.wait(CHECK_EVERY):
            return "interrupted"
        if (passed := time.monotonic() - start) > allowed:
            # On a busy machine the clock runs faster than the work.
            allowed = max(allowed, limits.seconds * min(4.0, slowness()))
            if passed > allowed:
                return f"stopped after {passed:.0f} s"
        if _on_disk(work) + _without_name(process.pid) > limits.disk_mb * 1e6:
            return f"stopped: more than {limits.disk_mb:g} MB on the disk"
        if len(_family(process.pid)) > MOST_PROCESSES:
            return f"stopped: more than {MOST_PROCESSES} processes"
        if _in_memory(process.pid) > limits.memory_gb * 2**30:
            return f"stopped: more than {limits.memory_gb:g} GB of memory in all"
    return "" if process.returncode == 0 else CRASHED


def _on_disk(work: Path) -> float:
    """Bytes on the disk below `work`; infinite for more files than anybody needs."""
    size, left = 0, MOST_FILES
    for folder, folders, names in os.walk(work):
        for name in (*folders, *names):
            with suppress(OSError):  # gone meanwhile, or closed to us
                size += os.lstat(os.path.join(folder, name)).st_blocks * 512
        left -= len(folders) + len(names)
        if left < 0:
            return float("inf")
    return size


def _family(first: int) -> list[int]:
    """The process and all that it has started, as far as they run still (Linux)."""
    family = [first]
    for process in family:
        with suppress(OSError, ValueError):  # it has ended meanwhile
            for task in os.scandir(f"/proc/{process}/task"):
                family += map(int, Path(task.path, "children").read_text().split())
    return family


def _in_memory(first: int) -> float:
    """Bytes that they hold, each for itself: what is shared with a file is left out."""
    pages = 0
    for process in _family(first):
        with suppress(OSError, ValueError):
            _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_text().split()
            pages += int(resident) - int(shared)
    return pages * PAGE


def _without_name(first: int) -> float:
    """Bytes of the files without a name that a run holds open, in memory or on the disk (Linux)."""
    size: dict[tuple[int, int], int] = {}
    for process in _family(first):
        with suppress(OSError, ValueError):  # it has ended meanwhile
            for link in os.scandir(f"/proc/{process}/fd"):
                file = os.stat(link.path)
                if stat.S_ISREG(file.st_mode) and file.st_nlink == 0:
                    size[file.st_dev, file.st_ino] = file.st_blocks * 512
    return sum(size.values())


def _end(process: subprocess.Popen) -> None:
    """The process and all it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def command(work: str) -> list[str]:
    """What runs a program in the strongest sandbox that this system has.

    With bubblewrap (Linux) nothing is there but the system's programs, Python, the course and the
    submission's own folder, and only that folder can be written: no homes, no sockets, no network,
    whatever the code tries. With `unshare` there is no network, and all processes end with the
    first. Everywhere, Python itself refuses to open files elsewhere for writing and to connect
    (`sandboxed`), which stops accidents and simple tricks, but not native code.
    """
    if strongest() == BUBBLEWRAP:
        return [*_bubblewrap(), "--bind", work, work, "--chdir", work, "--remount-ro", "/"]
    return UNSHARE if strongest() == NO_NETWORK else []


@cache
def strongest() -> str:
    """The name of the strongest sandbox that this system has."""
    if _runs_python(_bubblewrap()):
        return BUBBLEWRAP
    return NO_NETWORK if _runs_python(UNSHARE) else LIMITS_ONLY


def warning() -> str:
    """What a teacher should know before anything runs; empty with bubblewrap."""
    if strongest() == BUBBLEWRAP:
        return ""
    advice = "Only Linux has a stronger one: bubblewrap, in a virtual machine, perhaps."
    if sys.platform == "linux":
        advice = "For a stronger one: apt-get install bubblewrap (Fedora: dnf install bubblewrap)."
        if shutil.which("bwrap"):
            advice = "bwrap is there, but may not build its sandbox: it needs user namespaces."
    return f"Warning: weak sandbox ({strongest()}): {MEANS[strongest()]}. {advice}"


def _bubblewrap() -> list[str]:
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for path in filter(os.path.lexists, SYSTEM):
        link = os.path.islink(path) and not os.path.islink(os.path.dirname(path))
        command += ["--symlink", os.readlink(path), path] if link else ["--ro-bind", path, path]
    needed = {str(PROJECT / part) for part in ("mha_lesson", "mha_course", "data")}
    needed |= {os.environ.get(FOLDER_VARIABLE, ""), str(user_folder())}
    needed |= {sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}
    needed |= {p for p in sys.path if p.endswith(("site-packages", "dist-packages"))}
    needed |= {*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))}
    for folder in sorted(os.path.abspath(p) for p in needed if os.path.isdir(p)):  # outer first
        command += ["--ro-bind", folder, folder]
    return [*command, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]


def _runs_python(sandbox: list[str]) -> bool:
    """Whether it can be built here, with a Python that runs in it: tried once."""
    if shutil.which(sandbox[0]) is None:
        return False
    trial = [*sandbox, sys.executable, "-P", "-c", "import ctypes, json, numpy"]
    try:
        return subprocess.run(trial, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
