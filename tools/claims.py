"""Collects the notebooks' verdicts on popular claims into notebooks/CLAIMS.md.

    python tools/claims.py

It reads the stored outputs of the cells tagged `claim` and runs nothing.
"""

from pathlib import Path

import notebooks

FILE = notebooks.FOLDER / "CLAIMS.md"
HEAD = """\
# Claims, put to the test

What is often said about attention, and what came out when a notebook of this series tried it.
Where a claim names a paper, a page or a repository, it stands there; where it names none, it is
what is said in classes, in these or other words. Each figure was computed in the notebook named.
“no” needs a test that could have said yes; where it could not, the claim is not decided.
This file is made from the notebooks by `python tools/claims.py`.

| claim | notebook | holds | what is true | measured |
|---|---|---|---|---|
"""
HOLDS = {"It holds": "yes", "Not in general": "no", "Not decided": "not decided"}


def claims() -> list[tuple[Path, str]]:
    """(notebook, text of the verdict) for each cell tagged `claim`, in the order of the course."""
    return [
        (path, output.data["text/plain"])
        for path in notebooks.paths()
        for cell in notebooks.read(path).cells
        if "claim" in cell.metadata.get("tags", ())
        for output in cell.outputs
        if "text/plain" in output.get("data", {})
    ]


def row(path: Path, card: str) -> str:
    claim, verdict, measured = (line.split(": ", 1) for line in card.splitlines())
    holds = HOLDS[verdict[0]]
    words = (claim[1], f"[{path.stem[:2]}]({path.name})", holds, verdict[1], measured[1])
    return "| " + " | ".join(word.replace("|", "\\|") for word in words) + " |\n"


def text() -> str:
    return HEAD + "".join(row(path, card) for path, card in claims())


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(f"{FILE.name}: {len(claims())} claims")
