"""What takes many runs of notebook 14's model, for machines without the weights, or the time.

    python data/make_experiments.py [NAME ...]

Runs the experiments of `mha_course/collection/experiments.py` and all of `breaks.py`, or those
named, and writes down what they give. Needs the weights (`mha-lesson weights writer`); takes ten
minutes on one thread.
"""

import json
import sys
from pathlib import Path
from typing import Any

from mha_course.base.disk import write_whole
from mha_course.collection import breaks, experiments
from mha_course.collection.opened import opened
from mha_lesson import smollm

FILE = Path(__file__).with_name(experiments.FILE)


def plain(x: Any) -> Any:
    """As it comes out of JSON, with four figures."""
    return json.loads(json.dumps(x), parse_float=lambda digits: float(f"{float(digits):.4g}"))


def write(results: dict[str, Any], path: Path = FILE) -> None:
    lines = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(results.items()))
    write_whole(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def main() -> None:
    results = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    model = smollm.load()
    for name in sys.argv[1:] or (*experiments.EXPERIMENTS, "breaks"):
        if name == "breaks":
            found: Any = breaks.all_of_them(model)
        else:
            found = experiments.EXPERIMENTS[name](opened(model))
        results[name] = plain(found)
        write(results)


if __name__ == "__main__":
    main()
