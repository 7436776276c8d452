"""What a fresh Python loads and does, step by step: one process answers tests of several files.

Every step is told when it is done, so that a later one that fails is not its failure.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = """
import contextlib, gc, hashlib, json, sys

def tell(step, **found):
    print(json.dumps([step, found | {"loaded": sorted(sys.modules)}]), flush=True)

frozen = gc.get_freeze_count()
import mha_lesson
checked = hasattr(mha_lesson.split_heads, "__wrapped__")
tell("import mha_lesson", checked=checked, frozen=gc.get_freeze_count() - frozen)

from mha_course import check
check.attention_scores(lambda Q, K: Q @ K.mT / K.shape[-1] ** 0.5)
check.attention_scores(lambda Q, K: Q @ K.mT)
tell("check")

from mha_lesson import pretrained
tell("import pretrained")
with contextlib.suppress(pretrained.WeightsMissing):
    pretrained.load()
tell("load the weights")

sys.path.append("tests")
import test_figures
picture = test_figures.figures.png(test_figures.heads(8))
tell("draw", hash=hashlib.sha256(picture).hexdigest())
"""


def python(once: Callable[..., Path], step: str) -> dict[str, Any]:
    """What is known after this step: `loaded`, the names of all modules, and what else it told."""
    folder = once("fresh", _ask)
    told = dict(map(json.loads, (folder / "told").read_text(encoding="utf-8").splitlines()))
    assert step in told, (folder / "errors").read_text(encoding="utf-8", errors="replace")
    return told[step]


def _ask(folder: Path) -> None:
    with (folder / "told").open("wb") as told, (folder / "errors").open("wb") as errors:
        root = Path(__file__).parents[1]
        subprocess.run([sys.executable, "-c", STEPS], stdout=told, stderr=errors, cwd=root)
