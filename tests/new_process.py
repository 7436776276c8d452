"""What a new Python process loads and does, step by step, for tests of several files.

Every step prints its results when it is done, so that an error in a later step is not its own.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = """
import contextlib, gc, hashlib, json, sys

def report(step, **results):
    print(json.dumps([step, results | {"loaded": sorted(sys.modules)}]), flush=True)

frozen = gc.get_freeze_count()
import mha_lesson
checked = hasattr(mha_lesson.split_heads, "__wrapped__")
frozen = gc.get_freeze_count() - frozen
report("import mha_lesson", checked=checked, frozen=frozen)

from mha_course import check
check.attention_scores(lambda Q, K: Q @ K.mT / K.shape[-1] ** 0.5)
check.attention_scores(lambda Q, K: Q @ K.mT)
report("check")

from mha_lesson import pretrained
report("import pretrained")
with contextlib.suppress(pretrained.WeightsMissing):
    pretrained.load()
report("load the weights")

sys.path += ["tests", "tests/pictures"]
import test_figures
picture = test_figures.figures.png(test_figures.heads(8))
report("draw", hash=hashlib.sha256(picture).hexdigest())
"""


def after(shared_folder: Callable[..., Path], step: str) -> dict[str, Any]:
    """The results of a step, and `loaded`: the names of all modules that are imported then."""
    folder = shared_folder("new_process", _run)
    results = dict(map(json.loads, (folder / "results").read_text(encoding="utf-8").splitlines()))
    assert step in results, (folder / "errors").read_text(encoding="utf-8", errors="replace")
    return results[step]


def _run(folder: Path) -> None:
    with (folder / "results").open("wb") as results, (folder / "errors").open("wb") as errors:
        root = Path(__file__).parents[1]
        subprocess.run([sys.executable, "-c", STEPS], stdout=results, stderr=errors, cwd=root)
