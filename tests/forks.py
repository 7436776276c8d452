"""Kernels that need not import PyTorch: forks of one process that has (`--forked-kernels`).

A new kernel imports for seconds before its first cell, and the tests start some twenty. With this
option one process imports what kernels have in common, and forks one whenever a test starts a
kernel, with the environment, folder and arguments that it would have; the course itself is imported
in the kernel. `make test-again` starts each kernel as a new process.
"""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

COMMON = (
    "ipykernel.kernelapp",
    "ipywidgets",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "torch._dynamo",  # which its optimizers import
)
ADDRESS = "MHA_LESSON_FORKS"

# ---------------------------------------------------------------- where tests run


@contextmanager
def kernel_server() -> Iterator[None]:
    """While it runs, this process and the run's workers can fork kernels."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[ADDRESS] = str(Path(folder) / "forks")
        command = [sys.executable, __file__]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it listens, and answers when it has imported all
            yield


def fork_kernels() -> None:
    """From now on kernels that this process starts are forked."""
    factory = KernelProvisionerFactory.instance()
    factory.provisioners["forked"] = EntryPoint("forked", f"{__name__}:Forked", factory.GROUP_NAME)
    factory.default_provisioner_name = "forked"


def server_config() -> str:
    """The configuration (Python) of a Jupyter server that forks kernels if this process does."""
    if KernelProvisionerFactory.instance().default_provisioner_name != "forked":
        return ""
    found = f"import sys\nsys.path.append({str(Path(__file__).parent)!r})\n"
    return f"{found}import forks\nforks.fork_kernels()\n"


class Kernel(psutil.Process):
    """As much of `subprocess.Popen` as a kernel's manager uses."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        return None if self.is_running() else 0

    def send_signal(self, number: int) -> None:
        with suppress(psutil.NoSuchProcess):  # it has ended: `Popen` is silent, too
            super().send_signal(number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forked(LocalProvisioner):
    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        wanted = {"arguments": cmd[3:], "folder": options.get("cwd"), "environment": options["env"]}
        with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as stream:
            connection.connect(os.environ[ADDRESS])
            print(json.dumps(wanted), file=stream, flush=True)
            self.process = Kernel(int(stream.readline()))
        self.pid = self.pgid = self.process.pid
        self.cwd = options.get("cwd") or Path.cwd()
        return self.connection_info


# ---------------------------------------------------------------- the process that forks


def serve() -> None:
    sys.path.pop(0)  # this folder
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.environ[ADDRESS])
        listener.listen()
        print("listening", flush=True)
        gc.disable()
        for name in COMMON:
            import_module(name)
        gc.freeze()  # a kernel that looked for rubbish among these would copy their memory
        gc.enable()
        signal.signal(signal.SIGCHLD, wait_for_kernels)
        while listener in select.select([listener, sys.stdin], [], [])[0]:  # until stdin is closed
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as stream:
                wanted = json.loads(stream.readline())
                if kernel := os.fork():
                    print(kernel, file=stream, flush=True)
                    continue
            break
        else:
            os._exit(0)  # an orderly end would take a second
    become_kernel(**wanted)


def wait_for_kernels(*_: object) -> None:
    """For all that have ended, so that their processor time is counted."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become_kernel(arguments: list[str], folder: str | None, environment: dict[str, str]) -> None:
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()  # signals are sent to the kernel and to what it has started
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(folder or ".")
    os.environ.clear()
    os.environ.update(environment, JPY_PARENT_PID=str(os.getppid()))
    sys.argv[1:] = arguments
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    kernel = IPKernelApp.instance()
    kernel.initialize(arguments)
    for backend in entry_points(group="torch.backends"):  # as `import torch` would do here
        backend.load()()
    if threads := environment.get("OMP_NUM_THREADS"):  # read while torch is imported
        import torch

        torch.set_num_threads(int(threads))
    kernel.start()


if __name__ == "__main__":
    serve()
