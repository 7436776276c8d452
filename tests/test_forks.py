"""A forked kernel is like one that Python has started anew (see forks.py)."""

import ast
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel
from jupyter_client.provisioning import KernelProvisionerFactory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")
PATIENCE = 600  # seconds, on however busy a machine
LOOK = """
import gc, os, signal, sys
print({
    "arguments": [word for word in sys.argv[1:] if not word.endswith(".json")],
    "path": [place for place in sys.path if place != os.getcwd()],  # older kernels name it, and ""
    "folder": os.getcwd(),
    "variables": {name: x for name, x in os.environ.items() if name != "JPY_PARENT_PID"},
    "alone": os.getpgrp() == os.getsid(0) == os.getpid(),
    "handlers": [str(signal.getsignal(s)) for s in (signal.SIGCHLD, signal.SIGINT)],
    "names": sorted(name for name in globals() if not name.startswith("_")),
    "here": (__name__, sys.modules[__name__].__dict__ is globals()),
    "course": [name for name in sys.modules if name.startswith(("mha_lesson", "forks"))],
    "frozen": gc.get_freeze_count(),
})
"""


def seen(folder: Path) -> dict[str, object]:
    """What a kernel that is started here knows of itself."""
    said = []
    manager, client = start_new_kernel(PATIENCE, "python3", cwd=str(folder))
    try:
        client.execute_interactive(
            LOOK, timeout=PATIENCE, output_hook=lambda message: said.append(message["content"])
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    assert not manager.is_alive()
    return ast.literal_eval("".join(content.get("text", "") for content in said))


def test_a_kernel_that_has_ended_may_be_signalled():
    import forks

    with subprocess.Popen(["sleep", "60"]) as process:
        kernel = forks.Kernel(process.pid)
        kernel.kill()
        process.wait()
    kernel.terminate()
    kernel.kill()
    assert kernel.poll() == 0


def test_a_forked_kernel_is_like_one_started_anew(tmp_path, monkeypatch):
    import forks

    factory = KernelProvisionerFactory.instance()
    monkeypatch.setattr(factory, "default_provisioner_name", "local-provisioner")
    monkeypatch.setenv("A_VARIABLE", "of this test")
    there = forks.ADDRESS in os.environ  # not beside a GPU, whatever the option
    if not there:
        monkeypatch.setenv(forks.ADDRESS, "")  # and away again after the test
    with nullcontext() if there else forks.server():
        anew = seen(tmp_path)
        forks.use()
        forked = seen(tmp_path)
    assert forked == anew
    assert forked["folder"] == str(tmp_path) and forked["alone"] and not forked["course"]
