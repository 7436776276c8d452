"""What notebook 14 computes with its model, stored for machines without the weights.

    python data/make_writing.py

Runs the notebook's code and writes down what its `kept` functions give. Needs the weights
(`mha-lesson weights writer`); takes a minute or two on one thread.
"""

import json
from pathlib import Path
from typing import Any

from mha_course.base.disk import write_whole
from mha_course.base.notebook import tagged
from mha_course.collection import kept

FILE = Path(__file__).with_name(kept.FILE)
NOTEBOOK = FILE.parents[1] / "notebooks/14_a_model_that_writes.ipynb"


def main(path: Path = FILE) -> None:
    kept.recorded.clear()
    space: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code" and not tagged(cell, "check"):
            exec(compile("".join(cell["source"]), cell["id"], "exec"), space)
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(kept.recorded.items()))
    write_whole(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


if __name__ == "__main__":
    main()
