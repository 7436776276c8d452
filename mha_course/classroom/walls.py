"""A process with walls around it: what it may reach, how long, how much; and what it reports.

How strong the walls are depends on the system: see `walls`.
"""

import os
import select
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
from threading import Event

PROJECT = Path(__file__).resolve().parents[2]
INSIDE = Path(__file__).with_name("inside.py")
MOST_REPORTED = 2**23  # bytes that are kept of a report: many times what it needs
STOPPED = "stopped after"  # how a note on a timeout begins
SAMPLE = 0.05  # seconds of work that tell how busy the machine is
LOOK = 0.2  # seconds between two looks at the clock and at the disk
# What of a Linux system a Python needs, wherever it comes from. No homes, no sockets, no /etc.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store",
          "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives",
          "/etc/fonts", "/etc/localtime")  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """For each notebook: seconds on the clock of an idle machine, GB of memory, MB on the disk."""

    seconds: float = 300
    memory_gb: float = 6
    disk_mb: float = 1000


@dataclass(frozen=True)
class Ended:
    """How a run ended, in words (empty: it went through), and what it reported."""

    note: str
    seconds: float
    said: bytes


def slowness() -> float:
    """How many seconds pass here, now, in which a process gets one of a processor's."""
    clock, work = time.monotonic(), time.thread_time()
    while (done := time.thread_time() - work) < SAMPLE:
        sum(range(1000))
    return max(1.0, (time.monotonic() - clock) / done)


def run(work: Path, limits: Limits, stop: Event) -> Ended:
    """Runs `inside` on the folder `work`, at most until `stop` is set."""
    reader, writer = os.pipe()
    child = [
        # -P: the folder of `inside` is no place to import from.
        sys.executable, "-P", str(INSIDE), str(work), str(writer),
        str(limits.seconds), str(limits.memory_gb),
    ]  # fmt: skip
    env = {
        **{k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "PYTHONPATH")},
        **dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR"), str(work)),
        "CUDA_VISIBLE_DEVICES": "",  # the same verdicts everywhere
        "MHA_LESSON_DEVICE": "cpu",
        "OMP_NUM_THREADS": "1",  # several may run side by side
        "MPLBACKEND": "Agg",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    silent = subprocess.DEVNULL
    start = time.monotonic()
    process = subprocess.Popen(
        [*walls(str(work)), *child],
        cwd=work, env=env, pass_fds=[writer], start_new_session=True,
        stdin=silent, stdout=silent, stderr=silent,
    )  # fmt: skip
    said = bytearray()
    try:
        os.close(writer)
        os.set_blocking(reader, False)
        note = _watch(process, reader, said, work, limits, stop)
    finally:
        _end(process)
        _drain(reader, said)  # what was still on its way
        os.close(reader)
    return Ended(note, time.monotonic() - start, bytes(said))


def _watch(
    process: subprocess.Popen, reader: int, said: bytearray, work: Path, limits: Limits, stop: Event
) -> str:
    """Reads while the process runs, so that a full pipe does not hold it up; says how it ended."""
    start = looked = time.monotonic()
    closed, allowed = False, limits.seconds
    while process.poll() is None:
        if closed:
            time.sleep(LOOK / 4)  # and it still runs
        elif select.select([reader], [], [], LOOK)[0]:
            closed = _drain(reader, said)
        now = time.monotonic()
        if stop.is_set():
            return "interrupted"
        if now - start > allowed:  # on a busy machine the clock runs faster than the work
            allowed = max(allowed, limits.seconds * slowness())
            if now - start > allowed:
                return f"{STOPPED} {now - start:.0f} s"
        if now - looked > LOOK:
            looked = now
            if _takes(work) + _held(process.pid) > limits.disk_mb * 1e6:
                return f"stopped: more than {limits.disk_mb:g} MB on the disk"
    return "" if process.returncode == 0 else "stopped before its end (memory, or a crash)"


def _drain(reader: int, said: bytearray) -> bool:
    """Takes what is there, keeps the first part of it; True at the pipe's end."""
    for _ in range(64):  # then look at the clock again
        try:
            chunk = os.read(reader, 2**16)
        except BlockingIOError:
            return False
        if not chunk:
            return True
        said += chunk[: MOST_REPORTED - len(said)]
    return False


def _takes(work: Path, most: int = 20_000) -> float:
    """Bytes on the disk below `work`; infinite for more files than anybody needs."""
    size = 0
    for place, folders, names in os.walk(work):
        for name in (*folders, *names):
            with suppress(OSError):  # gone meanwhile, or closed to us
                size += os.lstat(os.path.join(place, name)).st_blocks * 512
        most -= len(folders) + len(names)
        if most < 0:
            return float("inf")
    return size


def _held(first: int) -> float:
    """Bytes of the files without a name that a run holds open, in memory or on the disk (Linux)."""
    size: dict[tuple[int, int], int] = {}
    family = [first]
    for process in family:
        with suppress(OSError, ValueError):  # it has ended meanwhile
            for task in os.scandir(f"/proc/{process}/task"):
                family += map(int, Path(task.path, "children").read_text().split())
            for held in os.scandir(f"/proc/{process}/fd"):
                found = os.stat(held.path)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                    size[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(size.values())


def _end(process: subprocess.Popen) -> None:
    """The process and all it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def walls(work: str) -> list[str]:
    """The command that builds the strongest wall that this system has.

    With bubblewrap (Linux) nothing is there but the system's programs, Python, the course and the
    submission's own folder, and only that folder can be written: no homes, no sockets, no network,
    whatever the code tries. With `unshare` there is no network, and all processes end with the
    first. Everywhere, Python itself refuses to open files elsewhere for writing and to connect
    (`inside`), which stops accidents and simple tricks, but is no wall against native code.
    """
    if standing() == BUBBLEWRAP:
        return [*bubblewrap(), "--bind", work, work, "--chdir", work, "--remount-ro", "/"]
    return UNSHARE if standing() == NO_NETWORK else []


BUBBLEWRAP, NO_NETWORK, LIMITS_ONLY = "bubblewrap", "unshare", "limits only"
MEANS = {
    BUBBLEWRAP: "a submission can read and write nothing but its own folder, and has no network",
    NO_NETWORK: "a submission has no network, but can read what you can read, other hand-ins too",
    LIMITS_ONLY: "a submission can read what you can read, and native code can write and connect",
}


@cache
def standing() -> str:
    """The name of the strongest wall that can be built here."""
    if _stands(bubblewrap()):
        return BUBBLEWRAP
    return NO_NETWORK if _stands(UNSHARE) else LIMITS_ONLY


def warning() -> str:
    """What a teacher should know before anything runs; empty behind the strongest wall."""
    if standing() == BUBBLEWRAP:
        return ""
    advice = "Only Linux has stronger ones: bubblewrap, in a virtual machine, perhaps."
    if sys.platform == "linux":
        advice = "For stronger ones: apt-get install bubblewrap (Fedora: dnf install bubblewrap)."
        if shutil.which("bwrap"):
            advice = "bwrap is there, but may not build its walls: it needs user namespaces."
    return f"Warning: weak walls ({standing()}): {MEANS[standing()]}. {advice}"


UNSHARE = ["unshare", "-rn", "--pid", "--fork", "--kill-child", "--mount-proc"]


def bubblewrap() -> list[str]:
    wall = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    for place in filter(os.path.lexists, SYSTEM):
        link = os.path.islink(place) and not os.path.islink(os.path.dirname(place))
        wall += ["--symlink", os.readlink(place), place] if link else ["--ro-bind", place, place]
    for place in _needed():
        wall += ["--ro-bind", place, place]
    return [*wall, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]


def _needed() -> list[str]:
    """Folders without which Python and the course do not run, an outer one before an inner one."""
    found = {str(PROJECT / part) for part in ("mha_lesson", "mha_course", "data")}
    found |= {sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}
    found |= {p for p in sys.path if p.endswith(("site-packages", "dist-packages"))}
    found |= {*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))}
    return sorted(os.path.abspath(p) for p in found if os.path.isdir(p))


def _stands(wall: list[str]) -> bool:
    """Whether the wall can be built here and Python runs behind it: tried once."""
    if shutil.which(wall[0]) is None:
        return False
    command = [*wall, sys.executable, "-P", "-c", "import ctypes, json, numpy"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
