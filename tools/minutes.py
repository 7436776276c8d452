"""How long a notebook takes, by one formula, for the open thread and for all of it.

120 words a minute, 15 seconds for each visible line of code, the minutes that an exercise states
(with two wrong tries, hints and solution), the seconds of waiting in a cell's tag `wait-N`, and for
each question, of a prediction or said aloud, its words and 15 seconds for the answer. Looking at
pictures is not counted, but plans add a minute for each explorer, and half of one for a picture or
a claim. Held against a reader who types, 150 characters a minute, in November 2026: the visible
lines of 00 to 06, 6,100 characters, are 41 minutes where 15 seconds a line are 37, and the
solutions, 2,000 characters, 13 of the 81 that their exercises state. `make notebooks` writes the
minutes into notebooks, README and TEACHING.
"""

import re
from math import ceil

from nbformat import NotebookNode

from mha_course.base.notebook import (
    EXPLORER,
    heading,
    open_thread,
    second_readings,
    stated_minutes,
    tagged,
    without_folds,
)
from mha_course.base.numerals import counted

Books = dict[str, NotebookNode]
Asked = list[tuple[str, str]]  # what a table of questions stands before, and its rows
WORDS_A_MINUTE, SECONDS_A_LINE, SECONDS_A_GUESS = 120, 15, 15
HELP = ("Hint", "Solution", "Said it")  # what is folded, and takes no time of its own
END = r'(?:$|\\n|")'  # of a line, in a notebook's file, too
SUM = re.compile(rf"(\| \*\*(\d+)–(\d+)\*\* \|.*\| )\d+( \| )\d+(?= \|{END})", re.M)
OPENING = 5  # of each session: everybody opens the notebook
BREAK, UNBROKEN = 10, 90  # a session of more than 90 minutes has a break
ALOUD = 1.5  # for a question that the teacher's guide puts to the class before an explorer moves
MOVED = 1  # for an explorer
SEEN = 0.5  # for a picture that stands still, and for a claim's verdict
QUESTION_TABLE = re.compile(r"^\| ask before [`*](.*)[`*] \|.*\n\|[-|]+\n((?:\|.*\n)+)", re.M)
SESSION = re.compile(r"^(\| \d+ \| )((?:from memory, )?\d\d\b[^|]*)( \| )\d+ \| [^|]*( \|)", re.M)
MAPPED = re.compile(r"^(\| [^|]+ \| )(\d\d\b[^|]*)( \| )\d+(?= \|$)", re.M)  # to a syllabus
RECALL = 10  # for three exercises from memory, at the start of a session
PART = re.compile(
    r"(\d\d)(?: from \*([^*]+)\* on)?(?: up to \*([^*]+)\*)?(?: with \*([^*]+)\*)?(?:, |$)"
)
ON_THE_TITLE = re.compile(r"\b\d+ minutes; with all folded sections \d+\.")
ON_A_FOLD = re.compile(r"(?<=^\*Second reading, )\d+ minutes?", re.M)


def seconds(cells: list[NotebookNode]) -> float:
    """What these cells take by the formula."""
    return sum(_seconds(cell) for cell in cells)


def _seconds(cell: NotebookNode) -> float:
    tags = cell.metadata.get("tags", ())
    if cell.cell_type == "markdown":
        text = without_folds(cell.source, *HELP)
        exercise = stated_minutes(text)
        aloud = SECONDS_A_GUESS * cell.source.count("<summary>Said it")
        return 60 * (exercise + len(words(text)) / WORDS_A_MINUTE) + aloud
    folded = cell.metadata.get("jupyter", {}).get("source_hidden")
    hidden = folded or {"exercise", "check"} & {*tags}
    lines = 0 if hidden else sum(bool(line.strip()) for line in cell.source.splitlines())
    return wait_seconds(cell) + SECONDS_A_LINE * lines + box_seconds(cell)


def box_seconds(cell: NotebookNode) -> float:
    """The seconds for the questions of a prediction, as its output has them."""
    if "prediction" not in cell.metadata.get("tags", ()):
        return 0
    text = cell.outputs[0].data["text/plain"] if cell.outputs else ""
    guesses = len(re.findall(r"^\d+\. ", text, re.M))
    return 60 * len(words(text)) / WORDS_A_MINUTE + SECONDS_A_GUESS * guesses


def wait_seconds(cell: NotebookNode) -> int:
    """The seconds that a cell makes one wait, as its tag says."""
    tags = cell.metadata.get("tags", ())
    return sum(int(tag[5:]) for tag in tags if tag.startswith("wait-"))


def words(text: str) -> list[str]:
    """What is read: a formula or a link is its words; marks, addresses and badges are none."""
    text = re.sub(r"^\[Open in .*|\]\([^)]*\)|<[^>]*>|^\|?[-| :]+\|$", " ", text, flags=re.M)
    text = re.sub(r"\$\$?.+?\$\$?", " formula ", text, flags=re.S)
    return [word for word in text.split() if re.search(r"\w", word)]


def minutes(cells: list[NotebookNode], to: int = 1) -> int:
    """Whole minutes, rounded up to a multiple of `to`."""
    return to * max(1, ceil(seconds(cells) / 60 / to))


def with_minutes(notebook: NotebookNode) -> NotebookNode:
    """The notebook with the minutes in its title and in the headings of its second readings."""
    line = "{} minutes; with all folded sections {}.".format(*short_and_full(notebook))
    notebook.cells[0].source = ON_THE_TITLE.sub(line, notebook.cells[0].source)
    for cells in second_readings(notebook.cells):
        cells[0].source = ON_A_FOLD.sub(counted(minutes(cells), "minute"), cells[0].source)
    return notebook


def short_and_full(notebook: NotebookNode) -> tuple[int, int]:
    """Minutes of the open thread, and with all second readings, as they are stated."""
    return minutes(open_thread(notebook.cells), 5), minutes(notebook.cells, 5)


def with_new_tables(text: str, books: Books) -> str:
    """A text whose tables and sums say the minutes of these notebooks, given by name."""
    stated = {name: short_and_full(book) for name, book in books.items()}

    def summed(row: re.Match[str]) -> str:
        short, whole = map(
            sum, zip(*[*stated.values()][int(row[2]) : int(row[3]) + 1], strict=True)
        )
        return f"{row[1]}{short}{row[4]}{whole}"

    for name, (short, whole) in stated.items():
        row = re.compile(rf"(\([\w/]*{name}\.ipynb\).*\| )\d+( \| )\d+(?= \|{END})", re.M)
        text = row.sub(rf"\g<1>{short}\g<2>{whole}", text)
    text = SUM.sub(summed, text)
    parts = text.split("### ")
    questions = {part[:2]: QUESTION_TABLE.findall(part) for part in parts}
    text = "### ".join(_with_timetable(part, books, questions) for part in parts)
    first = sum(short for name, (short, _) in stated.items() if name < "07")
    everything = sum(whole for name, (_, whole) in stated.items() if name < "12")  # beyond: extra
    text = re.sub(r"(?<=notebooks 00 to 06, )\d+(?= minutes)", str(first), text)
    return re.sub(r"(?<=\*second readings\*, )[\d,]+(?= minutes)", f"{everything:,}", text)


def between(cells: list[NotebookNode], start: str, end: str) -> list[NotebookNode]:
    """The cells from one heading up to another; an empty one is the notebook's own end."""
    at = {heading(cell): i for i, cell in enumerate(cells)}
    return cells[at[2, start] if start else 0 : at[2, end] if end else len(cells)]


def fold(notebook: NotebookNode, name: str) -> list[NotebookNode]:
    """The cells of a second reading; none without a heading."""
    found = (cells for cells in second_readings(notebook.cells) if heading(cells[0])[1] == name)
    return next(found, []) if name else []


def part_of_a_plan(part: tuple, books: Books, whole: bool = False) -> list[NotebookNode]:
    """The cells that a match of PART names, of notebooks by number; of open threads, or of all."""
    book, start, end, also = part
    cells = books[book].cells if whole else open_thread(books[book].cells)
    return between(cells, start, end) + fold(books[book], also)


def in_class(cells: list[NotebookNode], questions: Asked) -> float:
    """Minutes of cells in a lesson: with its pictures, and the questions put aloud before them."""
    code = [cell for cell in cells if cell.cell_type == "code"]
    moved = sum(len(EXPLORER.findall(cell.source)) for cell in code)
    seen = sum(tagged(cell, "claim") or _stands_still(cell) for cell in code)
    asked = "".join(rows for _, rows in aloud(cells, questions)).count("\n")
    return seconds(cells) / 60 + MOVED * moved + SEEN * seen + ALOUD * asked


def aloud(cells: list[NotebookNode], questions: Asked) -> Asked:
    """The tables of questions that are put among these cells."""
    lines = "\n".join(["", *(cell.source.removeprefix("## ") for cell in cells)])
    return [(before, rows) for before, rows in questions if f"\n{before}" in lines]


def _stands_still(cell: NotebookNode) -> bool:
    """Whether a cell shows a picture that nobody moves."""
    shown = ["".join(output.get("data", {}).get("text/html", "")) for output in cell.outputs]
    return any(html.startswith("<figure") for html in shown) and not EXPLORER.search(cell.source)


def clock(
    row: str, books: Books, questions: dict[str, Asked], whole: bool
) -> tuple[list[tuple[float, tuple[str, ...], list[NotebookNode]]], float]:
    """(minute, match of PART, cells) of each part of a session, and where it ends.

    A break, of no notebook, stands where half of the time is over.
    """
    parts = [(part, part_of_a_plan(part, books, whole)) for part in PART.findall(row)]
    lengths = [in_class(cells, questions[book]) for (book, *_), cells in parts]
    now = float(OPENING + RECALL * row.startswith("from memory"))
    total, starts = now + sum(lengths), []
    rests = total > UNBROKEN
    for (part, cells), length in zip(parts, lengths, strict=True):
        if starts and rests and 2 * now + length > total:
            starts.append((now, ("",), []))
            now, total, rests = now + BREAK, total + BREAK, False
        starts.append((now, part, cells))
        now += length
    return starts, now


def _with_timetable(plan: str, books: Books, questions: dict[str, Asked]) -> str:
    """A plan's sessions with minutes and timetable: open threads, or all if it says everything."""
    everything = plan.startswith("Everything")
    numbered = {name[:2]: book for name, book in books.items()}

    def mapped(row: re.Match[str]) -> str:
        parts = PART.findall(row[2])
        cells = [part_of_a_plan(part, numbered, everything) for part in parts]
        taken = sum(in_class(c, questions[p[0]]) for c, p in zip(cells, parts, strict=True))
        return f"{row[1]}{row[2]}{row[3]}{5 * ceil(taken / 5)}"

    def session(row: re.Match[str]) -> str:
        starts, total = clock(row[2], numbered, questions, everything)
        marks = [f"{part[0] or 'break'} at {5 * round(at / 5)}" for at, part, _ in starts]
        return f"{row[1]}{row[2]}{row[3]}{5 * ceil(total / 5)} | {', '.join(marks)}{row[4]}"

    return MAPPED.sub(mapped, plan) if plan.startswith("A map") else SESSION.sub(session, plan)
