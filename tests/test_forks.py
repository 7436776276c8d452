"""A forked kernel that has ended by itself (see forks.py) may be signalled, as a process may."""

import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")
def test_a_kernel_that_has_ended_may_be_signalled():
    import forks

    with subprocess.Popen(["sleep", "60"]) as process:
        kernel = forks.Kernel(process.pid)
        kernel.kill()
        process.wait()
    kernel.terminate()
    kernel.kill()
    assert kernel.poll() == 0
