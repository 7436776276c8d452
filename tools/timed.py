"""Runs a command and says what it took: `python tools/timed.py make checks`.

Seconds by the clock, and of all processors together: those of every process that the command has
started and that somebody has waited for. Windows counts none of these.
"""

import os
import subprocess
import sys
import time

start = time.monotonic()
code = subprocess.run(sys.argv[1:]).returncode
took, times = time.monotonic() - start, os.times()
print(
    f"{took:.0f} seconds ({took / 60:.1f} minutes), "
    f"{times.children_user + times.children_system:.0f} of {os.cpu_count()} processors' work."
)
sys.exit(code)
