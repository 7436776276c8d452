"""Collects the notebooks' verdicts on popular claims into notebooks/CLAIMS.md.

    python tools/claims.py

It reads the stored outputs of the cells tagged `claim` and runs nothing.
"""

import re
from pathlib import Path

import notebooks

FILE = notebooks.FOLDER / "CLAIMS.md"
HEAD = """\
# Claims, put to the test

What is often said about attention, and what came out when a notebook of this series tried it.
“stands in” names a place where one can read it, in these or other words (looked up in November
2026); *a lesson* has no address that we know, *classes* is where one hears it. Each figure was
computed in the notebook named.
“no” needs a test that could have said yes; where it could not, the claim is not decided.
Each row says what chance alone would give and where the figure lies; “exact” where chance plays
no part. The last column says of what it is true: what has one value there was never varied. What
was *also tried* was computed once, and is in no notebook.
{counts}
This file is made from the notebooks by `python tools/claims.py`.

| claim | stands in | notebook | holds | what is true | measured | tried on |
|---|---|---|---|---|---|---|
"""
PLACES = Path(__file__).with_name("claim_sources.tsv")
NAMED = re.compile(r"\b(19|20)\d\d\b|^README of")  # a paper, a repository, or this course itself
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


def places() -> dict[str, str]:
    """How a claim begins, within its quotation marks: where it stands."""
    return dict(line.split("\t") for line in PLACES.read_text("utf-8").splitlines())


def place(claim: str) -> str:
    said = [where for start, where in places().items() if f"“{start}" in claim]
    source = claim.split("“")[0]
    if said or NAMED.search(source):
        return said[0] if said else "the place named"
    return "a lesson" if re.search("lesson|utorial", source) else "classes"


def row(path: Path, card: str) -> str:
    claim, verdict, measured, *tried = (line.split(": ", 1) for line in card.splitlines())
    holds, notebook = HOLDS[verdict[0]], f"[{path.stem[:2]}]({path.name})"
    tried_on = ". Also tried: ".join(line[1] for line in tried)
    words = (claim[1], place(claim[1]), notebook, holds, verdict[1], measured[1], tried_on)
    return "| " + " | ".join(word.replace("|", "\\|") for word in words) + " |\n"


def text() -> str:
    rows = [row(path, card) for path, card in claims()]
    counts = [f"{sum(f' | {word} | ' in line for line in rows)} {word}" for word in HOLDS.values()]
    return HEAD.format(counts=f"Of {len(rows)} claims: {', '.join(counts)}.") + "".join(rows)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(f"{FILE.name}: {len(claims())} claims")
