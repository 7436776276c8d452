"""A notebook as slides for a wall: one for each section, with one idea, and one thing to see."""

import re
from collections.abc import Iterator, Sequence

from nbformat import NotebookNode, v4

from mha_course.base.notebook import heading, tagged, without_folds
from mha_course.pages.exporter import written

NEIGHBOURS = re.compile(r"^[←→·] ?\[.*$", re.M)  # a line
LINK, NAMED = re.compile(r"\[([^\]]+)\]\([^)]*\)"), r"\1"
FILE_LINK = re.compile(r'<a href="\w+\.(?:ipynb|md)\b[^>]*>(.*?)</a>', re.S)
IMAGE = re.compile(r'(<img [^>]*width=")(\d+)')
LARGER, WIDEST = 1.5, 1180  # pictures on slides, in times and in pixels
FORMULA = re.compile(r"\$\$.+?\$\$", re.S)
SENTENCE = re.compile(r"(?<=[.?!:])\s+(?=[A-Z*`$“])")
# What a wall does not show: a folded cell, what stands below, and what a hand would do.
ABSENT = re.compile(
    r"\b(?:fold(?:ed|s)?|below|Drag|Point at|press|Setup)\b|^(?:\*[TY]|\(|Guess)|\.ipynb"
)
MOST_LINES, MOST_WORDS = 4, 90  # of code, and of words, that can be read from the last row
WHOLE = ("|", "**", "1. ", "> ")  # how paragraphs begin that are no running text


def as_slides(notebook: NotebookNode) -> NotebookNode:
    """The notebook as slides: each section is one, and a prediction before its picture another.

    A slide holds a sentence and a thing to see: the section's first picture, or else its claim, a
    formula, or short code, whose output comes one key press later, as a claim's verdict does.
    Exercises keep their task and stub; hints and solutions are left out.
    """
    cells: list[NotebookNode] = []
    for title, section in _sections(notebook.cells):
        for text, seen in _slides(section):
            text = f"{title}\n\n{LINK.sub(NAMED, NEIGHBOURS.sub('', text))}".strip()
            head = v4.new_markdown_cell(text, metadata={"slideshow": {"slide_type": "slide"}})
            cells += [head, *seen]
    notebook.cells = cells
    return notebook


def _sections(cells: Sequence[NotebookNode]) -> Iterator[tuple[str, list[NotebookNode]]]:
    """(the line of the heading, what stands below it) for each."""
    title, section = "", list[NotebookNode]()
    for cell in cells:
        if heading(cell)[0]:
            if section:
                yield title, section
            title, _, rest = cell.source.partition("\n")
            cell.source, section = rest, []
        section.append(cell)
    yield title, section


def _slides(section: list[NotebookNode]) -> Iterator[tuple[str, list[NotebookNode]]]:
    """(a sentence or two, what is seen with them) for each slide of a section."""
    texts = [without_folds(c.source) if c.cell_type == "markdown" else "" for c in section]
    for cell in (cell for cell in section if tagged(cell, "exercise")):
        yield texts[0].strip().partition("\n\n")[0], [_code(cell.source)]
        return
    for cell in (cell for cell in section if tagged(cell, "prediction")):
        cell.outputs = cell.outputs[:1]  # without the place where guesses are written
        yield "", [_output(cell)]
    shown = [i for i, c in enumerate(section) if c.get("outputs") and not tagged(c, "prediction")]
    pictures = [i for i in shown if "<figure" in str(section[i].outputs)]
    claims = [i for i in shown if tagged(section[i], "claim")]
    formulas = [i for i, text in enumerate(texts) if FORMULA.search(text)]
    short = [i for i in shown if section[i].source.count("\n") < MOST_LINES]
    for at in [*pictures[:1], *claims[:1], *formulas[:1], *short[-1:]][:1]:
        formula = "\n\n".join(FORMULA.findall(texts[at])[:1])
        text = f"{_line(texts[: at + 1])}\n\n{formula}"
        plain = at not in (*pictures, *claims, *formulas)
        seen = [_code(section[at].source)] if plain else []
        yield text, [*seen, _output(section[at])] if at in shown else seen
        return
    words, kept = 0, []
    for paragraph in filter(None, map(_short, "\n\n".join(texts).split("\n\n"))):
        words += len(paragraph.split())
        kept += [paragraph] * (words < MOST_WORDS)
    yield "\n\n".join(kept), []


def _line(texts: list[str]) -> str:
    """The sentence that leads to what is seen, or else the nearest that fits a wall."""
    for paragraph in reversed("\n\n".join(FORMULA.sub("", text) for text in texts).split("\n\n")):
        sentences = SENTENCE.split(paragraph.strip())
        ordered = sentences[::-1] if paragraph.rstrip().endswith(":") else sentences
        for sentence in ordered:
            if re.search(r"\w", sentence) and not ABSENT.search(sentence):
                return re.sub(r":$", ".", sentence)
    return ""


def _short(paragraph: str) -> str:
    """What a wall bears of a paragraph: each item's first sentence, what is bold, or its first."""
    if paragraph.lstrip().startswith("- "):
        return "\n".join(SENTENCE.split(line)[0] for line in paragraph.strip().splitlines())
    if paragraph.lstrip().startswith(WHOLE) and not ABSENT.search(paragraph):
        return paragraph
    return next((s for s in SENTENCE.split(paragraph.strip()) if not ABSENT.search(s)), "")


def _code(source: str) -> NotebookNode:
    return v4.new_code_cell(source, metadata={"slideshow": {"slide_type": "-"}})


def _output(cell: NotebookNode) -> NotebookNode:
    """What a cell shows, larger; of code it comes one key press later, and so does a verdict."""
    for output in cell.outputs:
        if html := output.get("data", {}).get("text/html"):
            html = IMAGE.sub(lambda m: f"{m[1]}{min(WIDEST, round(LARGER * int(m[2])))}", html)
            later = (
                '</summary><div class="fragment" ' if tagged(cell, "claim") else "</summary><div "
            )
            output.data["text/html"] = html.replace("</summary><div ", later)
    large = any("text/html" in output.get("data", {}) for output in cell.outputs)
    hidden = {"slide_type": "-" if large else "fragment"}
    metadata = {"slideshow": hidden, "transient": {"remove_source": True}}
    return v4.new_code_cell("", outputs=cell.outputs, metadata=metadata)


def slides(notebook: NotebookNode, name: str, **reveal: str) -> str:
    """The page of a deck; `reveal` holds the script and the style of reveal.js."""
    return FILE_LINK.sub(r"\1", written("slides", as_slides(notebook), name, **reveal))
