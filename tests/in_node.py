"""What the browser's own scripts compute, without a browser."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from mha_course.pictures import live

PROGRAM = """
import { text } from "node:stream/consumers";
globalThis.matchMedia = () => ({ matches: true }); // what node has not
const { source, ...given } = JSON.parse(await text(process.stdin));
const scripts = await import("data:text/javascript," + encodeURIComponent(source));
const found = await (async () => { %s })();
process.stdout.write(JSON.stringify(found));
"""


def node(body: str, **given: Any) -> Any:
    """What these lines return: what they are given is in `given`, all that scripts export in
    `scripts`.
    """
    if (found := shutil.which("node")) is None:
        pytest.skip("node runs the browser's scripts here, and is not installed")
    command = [found, "--input-type=module", "-e", PROGRAM.replace("%s", body)]
    sent = json.dumps({"source": live.SCRIPT, **given})
    done = subprocess.run(command, input=sent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
