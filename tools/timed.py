"""Runs a command and says what it took: `python tools/timed.py make checks`.

Seconds by the clock, and of all processors together: of every process that the command started and
waited for. Windows counts none of these.
"""

import os
import subprocess
import sys
import time

start = time.monotonic()
code = subprocess.run(sys.argv[1:]).returncode
took, times = time.monotonic() - start, os.times()
work = times.children_user + times.children_system
print(
    f"{took:.0f} seconds ({took / 60:.1f} minutes), "
    f"{work:.0f} seconds' work of {os.cpu_count()} processors."
)
sys.exit(code)
