"""What lies in the folder of hand-ins: whose it is, which file counts, and what is no notebook."""

import csv
import os
import re
import stat
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from mha_course.lab import NOTEBOOKS

LARGEST = 32 * 2**20  # bytes of a notebook: two hundred times one of the course's
NOISE = {".ipynb_checkpoints", "__MACOSX", "__pycache__"}
NUMBERED = re.compile(r"(?:^|.*[^0-9])(\d\d)_[a-z]", re.I)  # 03_splitting_into_heads (1).ipynb
# A name that the course gives, whole or its first word: `ada_03_splitting_21_nov` is 03.
GIVEN = sorted(path.stem for path in NOTEBOOKS.glob("[0-9]*.ipynb"))
FIRST = [stem[: (stem + "_").index("_", 3)] for stem in GIVEN]
NAMED = re.compile(rf"(?<![0-9])(?:{'|'.join([*GIVEN, *FIRST]) or '(?!)'})(?![a-z])", re.I)
UPDATED = re.compile(r"\.updated-[\d-]+", re.I)
# What a browser, Jupyter and `make lab` add to a name that is there already.
AGAIN = re.compile(r"(?: ?\(\d+\)|-copy\d*|\.updated-[\d-]+)+$", re.I)


@dataclass(frozen=True)
class HandIn:
    """A notebook that a learner handed in: its path, and its path in the folder as it is shown."""

    path: Path
    file: str
    notebook: str  # "03", or "" where the name has no number
    changed: float  # when


@dataclass
class Learner:
    """What one learner handed in.

    Attributes:
        name: as it is shown.
        notebooks: those that count: the latest of each.
        others: every other file and why it does not count.
    """

    name: str
    notebooks: list[HandIn] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)


def shown(text: str) -> str:
    """A name fit for a terminal, a table and a page: no line breaks, no control codes.

    An ü is one character, also where a Mac has written it as two.
    """
    text = unicodedata.normalize("NFC", text)
    return "".join(c if c.isprintable() else "�" for c in text) or "�"


def learners(folder: Path, roster: Path | None = None, report: Path | None = None) -> list[Learner]:
    """Everybody who handed in, or stands on the roster, by name.

    A learner is a subfolder of `folder`; of a notebook that lies in no subfolder, what its name
    says before the number (`ada_03_splitting_into_heads.ipynb`), or else its whole name. What lies
    in the folder of the report is nobody's.
    """
    listed = _roster(roster) if roster else {}
    found = {name: Learner(name) for name in listed}
    for path in sorted(_files(folder, report)):
        inside = path.relative_to(folder)
        name = _on_roster(inside, listed) or shown(_whose(inside))
        learner = found.setdefault(name, Learner(name))
        why = _unfit(path)
        if why is not None:
            learner.others.append((shown(str(inside)), why))
            continue
        at = _number(path.stem)
        number = "" if at is None else path.stem[at : at + 2]
        learner.notebooks.append(HandIn(path, shown(str(inside)), number, path.lstat().st_mtime))
    for learner in found.values():
        _keep_the_latest(learner)
    return sorted(found.values(), key=lambda learner: learner.name.casefold())


def _files(folder: Path, report: Path | None) -> list[Path]:
    """Links are never followed, neither to folders nor to files."""
    left_out = report and report.resolve()
    found: list[Path] = []
    closed = lambda error: found.append(Path(error.filename))  # noqa: E731
    for place, folders, names in os.walk(folder, onerror=closed):
        folders[:] = [f for f in folders if f not in NOISE and not f.startswith(".")]
        folders[:] = [f for f in folders if Path(place, f).resolve() != left_out]
        links = [f for f in folders if os.path.islink(os.path.join(place, f))]
        found += [Path(place, n) for n in [*names, *links] if not n.startswith(".")]
    return [path for path in found if path.name not in ("Thumbs.db", "desktop.ini")]


def _whose(inside: PurePath) -> str:
    if len(inside.parts) > 1:
        return inside.parts[0]
    before = inside.stem[: _number(inside.stem) or 0].strip(" _-")
    return before or AGAIN.sub("", inside.stem) or inside.stem


def _number(stem: str) -> int | None:
    """Where the notebook's number stands in a name."""
    if named := NAMED.search(stem):
        return named.start()
    found = NUMBERED.match(stem)
    return found.start(1) if found else None


def _unfit(path: Path) -> str | None:
    """Why a file is not run; None if it looks like a notebook."""
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode):
        return "a folder that cannot be opened"
    if stat.S_ISLNK(found.st_mode):
        return "a link: not followed"
    if not stat.S_ISREG(found.st_mode):
        return "no ordinary file (a pipe, a device, a socket): not opened"
    if path.suffix.lower() != ".ipynb":
        kind = shown(path.suffix) if path.suffix else "file without an ending"
        return f"a {kind}, not a notebook: not looked at"
    if found.st_size > LARGEST:
        return f"larger than {LARGEST // 2**20} MB: not looked at"
    return None


def content(hand_in: HandIn) -> bytes:
    """The file's bytes; it is opened so that neither a link nor a pipe in its place can hold us.

    Raises:
        OSError: it cannot be read, or is no ordinary file any more.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(hand_in.path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("no ordinary file")
        read = file.read(LARGEST + 1)
    if len(read) > LARGEST:
        raise OSError("too large")
    return read


def _keep_the_latest(learner: Learner) -> None:
    """Of several versions of one notebook the latest counts; on equal times, the last by name.

    What `make lab` has put beside a learner's notebook counts besides: either may be worked in.
    """
    newest: dict[str, HandIn] = {}
    for hand_in in sorted(learner.notebooks, key=lambda h: (h.changed, _natural(h.path.stem))):
        key = hand_in.notebook or AGAIN.sub("", hand_in.path.stem)
        if updated := UPDATED.search(hand_in.path.stem):
            key += updated[0]
        if key in newest:
            learner.others.append((newest[key].file, f"handed in again: {hand_in.file} counts"))
        newest[key] = hand_in
    learner.notebooks = sorted(newest.values(), key=lambda h: (h.notebook or "~", h.file))


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _roster(path: Path) -> dict[str, list[str]]:
    """Name -> what their files' paths hold: a CSV, the first column is the learner's name.

    Further columns (a user name, an e-mail address, a number) name the learner's files, too.
    """
    try:
        text = path.read_text(encoding="utf-8-sig").splitlines()
        # So a spreadsheet writes where a comma is decimal; "Lovelace, Ada" is one cell there.
        semicolons = all(";" in line for line in text if line.strip())
        lines = list(csv.reader(text, delimiter=";" if semicolons else ","))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SystemExit(f"The roster {path} cannot be read as CSV: {error}.") from error
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    rows = [row for row in rows if row]
    if rows and rows[0][0].casefold() in ("learner", "name", "student"):
        rows = rows[1:]
    if not rows:
        raise SystemExit(f"The roster {path} names nobody: one learner a line is expected.")
    names = [shown(row[0]) for row in rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SystemExit(
            f"The roster {path} has more than one {', '.join(twice)}: add what tells them apart."
        )
    texts = [[text for cell in row if (text := _plain(cell))] for row in rows]
    return dict(zip(names, texts, strict=True))


def _plain(text: str) -> str:
    """Ada_Lovelace and "ada lovelace" are one."""
    text = unicodedata.normalize("NFC", text).casefold()
    return re.sub(r"[\W_]+", " ", text).strip()


def _on_roster(inside: PurePath, listed: dict[str, list[str]]) -> str | None:
    """Who on the roster the path names; the longest name wins (Ann, Ann-Marie)."""
    own = inside.with_name(NAMED.sub(" ", inside.name))  # the course's words name nobody
    words = f" {_plain(str(own))} "
    pairs = [(text, name) for name, texts in listed.items() for text in texts]
    hits = [(len(text), name) for text, name in pairs if f" {text} " in words]
    return max(hits)[1] if hits else None
