"""What lies in the folder of hand-ins: whose it is, which file counts, and what is no notebook."""

import csv
import io
import json
import os
import re
import stat
import subprocess
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from tempfile import mkdtemp
from threading import Event

from mha_course.base.disk import plainly
from mha_course.base.notebook import paths
from mha_course.classroom import sandbox, unpack
from mha_course.classroom.reading import read

LARGEST = 32 * 2**20  # bytes of a notebook: two hundred times one of the course's
USUAL = 4 * 2**20  # bytes up to which it is simply read
PROBE = "import json, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))\n"
PROBE += "json.loads(sys.stdin.buffer.read())"
UNPACKING = sandbox.Limits(seconds=60, memory_gb=0.5, disk_mb=500)  # of an archive
TOO_LARGE = (
    f"larger than {LARGEST // 2**20} MB, not read: clear its outputs (Kernel, Restart Kernel and "
    "Clear Outputs of All Cells), save it, and hand it in again"
)
NO_ZIP = "a zip archive that cannot be opened{}: hand in the notebook itself"
# What learning platforms make of a name: Canvas lovelaceada_LATE_1234_56789_03_splitting.ipynb,
# Moodle "Ada Lovelace_12345_assignsubmission_file".
PLATFORM = re.compile(
    r"(?P<name>[^_]+)_(?:LATE_)?(?P<id>\d+)_(?:\d{3,}_|assignsubmission_(?:file|onlinetext))", re.I
)
CANVAS = re.compile(r"^[^_/]+_\d+_\d{3,}_|_LATE_\d+_\d{3,}_")
NOISE = {"__MACOSX", "__pycache__"}
OURS = {"CLAIMS.md", "WORDS.md", "LICENSE", "Thumbs.db", "desktop.ini"}  # nobody's work
BOOK = re.compile(r"\.(ipynb(\.txt|\.json)?|zip)$", re.I)  # browsers add an ending
NO_NOTEBOOK = "not a notebook: hand in the .ipynb"
CHECKPOINTS = ".ipynb_checkpoints"  # where Jupyter puts a copy of what it saves
ONLY_A_COPY = "only Jupyter's own copy of it is there, not read: hand in the notebook itself"
NOT_LISTED = "the roster does not say whose it is: the points reach none of its lines"
NAMED_IN = ("learner", "name", "student", "full name", "first name")  # heads of a name's column
SURNAME = ("surname", "last name")
# At the start, or else the last such number: 03_splitting_into_heads (1).ipynb
NUMBERED = re.compile(r"^\d\d_[a-z]|(?<![0-9])\d\d_(?=[a-z])(?!.*[^0-9]\d\d_[a-z])", re.I)
# A name that the course gives, whole or its first word: `ada_03_splitting_21_nov` is 03.
GIVEN = [path.stem for path in paths().values()]
FIRST = [stem[: (stem + "_").index("_", 3)] for stem in GIVEN]
NAMED = re.compile(rf"(?<![0-9])(?:{'|'.join([*GIVEN, *FIRST]) or '(?!)'})(?![a-z])", re.I)
LAST_NUMBER = re.compile(rf"(.*[^\W\d])[ _-]+({'|'.join(stem[:2] for stem in GIVEN) or '(?!)'})")
UPDATED = re.compile(r"\.updated-[\d-]+", re.I)
# What a browser, Jupyter and `make lab` add to a name that is there already.
AGAIN = re.compile(r"(?: ?\(\d+\)|-copy\d*|\.updated-[\d-]+)+$", re.I)


@dataclass(frozen=True)
class HandIn:
    """A notebook that a learner handed in: its path, and its path in the folder as it is shown."""

    path: Path
    file: str
    notebook: str  # "03", or "" where neither its cells nor its name say a number
    changed: float  # when
    note: str = ""  # what its learner should know
    why: str = ""  # it cannot be read


@dataclass
class Learner:
    """What one learner handed in."""

    name: str  # as it is shown
    notebooks: list[HandIn] = field(default_factory=list)  # those that count: the latest of each
    others: list[tuple[str, str]] = field(default_factory=list)  # every other, and why not


@dataclass
class Roster:
    """A CSV of the class, as the system wrote it that shall read the points."""

    head: list[str] = field(default_factory=lambda: ["learner"])
    cells: dict[str, list[str]] = field(default_factory=dict)  # by the learner's name
    most: list[str] = field(default_factory=list)  # Canvas's row with the most points of each

    @property
    def texts(self) -> dict[str, list[str]]:
        """Name -> what the paths of this learner's files hold: any of the cells, or the name with
        its surname first, or last; joined as well, since Canvas writes lovelaceada.
        """
        found, own = {}, {_plain(name) for name in self.cells}
        for name, cells in self.cells.items():
            words = _plain(name).split()
            turned = [[*words[k:], *words[:k]] for k in range(1, len(words))]
            other = {" ".join(some) for some in turned} - own
            joined = {"".join(some) for some in turned and [words, *turned]}
            found[name] = [text for c in (name, *cells) if (text := _plain(c))]
            found[name] += [*other, *joined]
        often = Counter(text for texts in found.values() for text in {*texts})  # a group's number
        return {name: [t for t in texts if often[t] == 1] for name, texts in found.items()}


def shown(text: str) -> str:
    """A name fit for a terminal, a table and a page: no line breaks, no control codes.

    An ü is one character, also where a Mac has written it as two.
    """
    text = unicodedata.normalize("NFC", text)
    return "".join(c if c.isprintable() else "�" for c in text) or "�"


def learners(
    folder: Path,
    unpacked: Path,
    roster: Roster | None = None,
    report: Path | None = None,
    test: bool = False,
) -> list[Learner]:
    """Everybody who handed in, or stands on the roster, by name.

    A learner is a subfolder, or what a platform has named; of a notebook that lies in no subfolder,
    what its name says before the number (`ada_03_splitting_into_heads.ipynb`), or else its whole
    name. What lies in the report's folder is nobody's. Archives are taken apart in `unpacked`.
    The number in the name of a test is none of a notebook.
    """
    listed = roster.texts if roster else {}
    everybody = {name: Learner(name) for name in listed}
    files = []
    for path in sorted(_files(folder, report)):  # Jupyter's copy counts beside what it is one of
        parts = path.relative_to(folder).parts
        files.append((path, PurePath(*(part for part in parts if part != CHECKPOINTS))))
    numbers = defaultdict(set)  # Moodle gives a learner another one in each assignment
    for name, number, place in (_learner_of(file) for _, file in files):
        numbers[name, place].add(number)
    namesakes = {name for (name, _), found in numbers.items() if len(found) > 1}
    for path, file in files:
        name, number, _ = _learner_of(file)
        name = shown(f"{name} ({number})" if name in namesakes and number else name)
        name = _on_roster(file, listed) or name
        learner = everybody.setdefault(name, Learner(name))
        if why := _unfit(path):
            learner.others.append((shown(str(file)), why))
        else:
            hand_in = HandIn(path, shown(str(file)), "", path.lstat().st_mtime)
            for made in _notebooks(hand_in, unpacked):
                if made.why.endswith(NO_NOTEBOOK):
                    learner.others.append((made.file, made.why))
                else:
                    learner.notebooks.append(replace(made, notebook="") if test else made)
    for learner in everybody.values():
        _keep_the_latest(learner)
        if listed and learner.name not in listed:
            learner.others.append((learner.name, NOT_LISTED))
    return sorted(everybody.values(), key=lambda learner: learner.name.casefold())


def _notebooks(hand_in: HandIn, unpacked: Path | None) -> Iterator[HandIn]:
    """The one in the file, or those in a zip; its number is that of its cells, or its name's.

    Without `unpacked` a zip is not opened: what lies in another one.
    """
    named = _parted(PurePath(hand_in.file).stem)[1] or hand_in.notebook
    if hand_in.why:
        yield replace(hand_in, notebook=named)
        return
    try:
        raw = content(hand_in)
        if raw[:2] == b"PK" and unpacked:
            for member in _members(raw, replace(hand_in, notebook=named), unpacked):
                yield from _notebooks(member, None)
            return
    except OSError as error:
        yield replace(hand_in, notebook=named, why=shown(str(error)))
        return
    number = read(raw).notebook or named
    name = f"its name says {named}" if named else "its name has no number"
    same = named, AGAIN.sub("", PurePath(hand_in.file).stem)
    note = f"{name}, but its cells are those of notebook {number}, so it counts as that"
    yield replace(hand_in, notebook=number, note=note if number not in same else "")


def _members(raw: bytes, archive: HandIn, unpacked: Path) -> list[HandIn]:
    """The notebooks in a zip, which is opened in the sandbox: what comes out are its numbers.

    Raises:
        OSError: there is none, or it could not be opened.
    """
    work = Path(mkdtemp(dir=unpacked))
    (work / unpack.ARCHIVE).write_bytes(raw)
    program = Path(unpack.__file__), str(LARGEST)
    outcome = sandbox.run(work.resolve(), UNPACKING, Event(), *program)
    names = [json.loads(line) for line in outcome.report.splitlines()]
    if outcome.note:
        stopped = "" if outcome.note == sandbox.CRASHED else f" ({outcome.note})"
        raise OSError(NO_ZIP.format(stopped))
    if not any(whole is not None for _, whole in names):
        raise OSError("a zip archive without a notebook: hand in the notebook itself")
    found = []
    for number, (name, whole) in enumerate(names):
        why = _other(name) if whole is None else "" if whole else NO_ZIP.format("")
        if PurePath(name).name not in OURS:
            file = f"{archive.file}/{shown(name)}"
            found.append(replace(archive, path=work / str(number), file=file, why=why))
    return found


def _files(folder: Path, report: Path | None) -> list[Path]:
    """Links are never followed, neither to folders nor to files."""
    left_out = report and report.resolve()
    files: list[Path] = []
    closed = lambda error: files.append(Path(error.filename))  # noqa: E731
    for top, folders, names in os.walk(folder, onerror=closed):
        if os.path.basename(top) == CHECKPOINTS:
            originals = {n: os.path.join(top, "..", n.replace("-checkpoint", "")) for n in names}
            names = [n for n in names if not os.path.lexists(originals[n])]
        folders[:] = [f for f in folders if f not in NOISE and (f[0] != "." or f == CHECKPOINTS)]
        folders[:] = [f for f in folders if Path(top, f).resolve() != left_out]
        links = [f for f in folders if os.path.islink(os.path.join(top, f))]
        files += [Path(top, n) for n in [*names, *links] if not n.startswith(".")]
    return [path for path in files if path.name not in OURS]


def _learner_of(file: PurePath) -> tuple[str, str, tuple[str, ...]]:
    """The learner's name, the number that a platform has put behind it, and the folders above."""
    for depth, part in enumerate(file.parts):
        if (match := PLATFORM.match(part)) and (depth == 0 or "_assignsubmission_" in part):
            return match["name"], match["id"], file.parts[:depth]
    if len(file.parts) > 1:
        return file.parts[0], "", ()
    return _parted(file.stem)[0] or AGAIN.sub("", file.stem) or file.stem, "", ()


def _parted(stem: str) -> tuple[str, str]:
    """What a name says before the notebook's number, and the number; empty where there is none."""
    if match := NAMED.search(stem) or NUMBERED.search(stem):
        return stem[: match.start()].strip(" _-"), match[0][:2]
    match = LAST_NUMBER.fullmatch(AGAIN.sub("", stem))  # anna_03, dörte 06
    return (match[1], match[2]) if match else ("", "")


def _unfit(path: Path) -> str | None:
    """Why a file is not opened; None if it looks like a notebook, or a zip."""
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        return "a folder that cannot be opened"
    if stat.S_ISLNK(mode):
        return "a link: not followed"
    if not stat.S_ISREG(mode):
        return "not an ordinary file (a pipe, a device, a socket): not opened"
    if path.parent.name == CHECKPOINTS:
        return ONLY_A_COPY
    return None if BOOK.search(path.name) else _other(path.name)


def _other(name: str) -> str:
    ending = PurePath(name).suffix
    return f"a {shown(ending) if ending else 'file without an ending'}, {NO_NOTEBOOK}"


def content(hand_in: HandIn) -> bytes:
    """A notebook's bytes; the file is opened so that no link and no pipe in its place can hold us.

    Raises:
        OSError: it cannot be read, or is no ordinary file any more.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(hand_in.path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("not an ordinary file")
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST or (len(raw) > USUAL and not _fits(raw)):
        raise OSError(TOO_LARGE)
    return raw


def _fits(raw: bytes) -> bool:
    """Whether reading it takes no more memory and time than a notebook does: tried elsewhere."""
    command = [sys.executable, "-P", "-S", "-c", PROBE]
    try:
        return subprocess.run(command, input=raw, capture_output=True, timeout=30).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def age(hand_in: HandIn) -> tuple[bool, float, list[tuple[int, str]]]:
    """Sorts the latest last: what is unreadable, then by time, and on equal times by name."""
    return not hand_in.why, hand_in.changed, _natural(PurePath(hand_in.file).stem)


def _keep_the_latest(learner: Learner) -> None:
    """Of several versions of one notebook the latest counts, and all that are as late as it: a zip,
    or a download, has one time for all. Of what has no number, each file counts.

    What `make lab` has put beside a learner's notebook counts besides: either may be worked in.
    """
    versions: dict[str, list[HandIn]] = defaultdict(list)
    for hand_in in sorted(learner.notebooks, key=age):
        updated = UPDATED.search(PurePath(hand_in.file).stem)
        versions[(hand_in.notebook or hand_in.file) + (updated[0] if updated else "")] += [hand_in]
    counts = list[HandIn]()
    for *others, latest in versions.values():
        for old in others:
            if not old.why and old.changed == latest.changed:
                counts.append(old)
            else:
                why = f"{old.why or 'handed in again'}: {latest.file} counts"
                learner.others.append((old.file, why))
        counts.append(latest)
    learner.notebooks = sorted(counts, key=lambda h: (h.notebook or "~", h.file))


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def read_roster(path: Path) -> Roster:
    """A CSV with a line for each learner, and perhaps one of heads.

    The name stands in the column whose head says so (a first name and a surname are joined), or in
    the first. The others (a user name, an e-mail address, a number) name the learner's files, too.
    """
    try:
        lines = table_in(path)
    except (OSError, csv.Error) as error:
        why = plainly(error)
        raise SystemExit(f"The roster {path} cannot be read; save it as CSV: {why}.") from error
    lines = [[shown(cell.strip()) if cell.strip() else "" for cell in cells] for cells in lines]
    heads = [cell.casefold() for cell in lines[0]] if lines else []
    columns = [i for i, head in enumerate(heads) if head in NAMED_IN][:1]
    roster, people = Roster(lines.pop(0)) if columns else Roster(), list[tuple[str, list[str]]]()
    if [heads[i] for i in columns] == ["first name"]:
        columns += [i for i, head in enumerate(heads) if head in SURNAME]
    for line in lines:
        name = " ".join(filter(None, (line[i] for i in columns or [0] if i < len(line))))
        if name.casefold() == "points possible":
            roster.most = line
        elif name and name != "Student, Test":  # Canvas has one
            people.append((name, line))
    if not people:
        raise SystemExit(f"The roster {path} names nobody: one learner a line is expected.")
    for name, line in people:
        others = [cells for who, cells in people if who == name and cells is not line]
        alone = [c for i, c in enumerate(line) if c and all(c not in o[i : i + 1] for o in others)]
        if others and not alone:
            raise SystemExit(f"The roster {path} has {name} twice, in lines that are alike.")
        roster.cells[f"{name} ({alone[0]})" if others else name] = line
    widest = max(map(len, roster.cells.values()))
    roster.head += [f"column {i}" for i in range(len(roster.head) + 1, widest + 1)]
    return roster


def table_in(path: Path) -> list[list[str]]:
    """The rows of a CSV, in whatever form a spreadsheet has saved it; empty ones left out."""
    raw = path.read_bytes()
    if raw[:4] == b"PK\3\4":
        raise OSError(0, "a spreadsheet's own form, not CSV", str(path))
    text = _text(raw)
    first = next(filter(str.strip, text.splitlines()), "")
    # So a spreadsheet writes where a comma is decimal; "Lovelace, Ada" is one cell there.
    between = next((mark for mark in "\t;" if mark in first), ",")
    rows = csv.reader(io.StringIO(text), delimiter=between)
    return [row for row in rows if any(map(str.strip, row))]


def _text(raw: bytes) -> str:
    """As a spreadsheet saves it: as Unicode, or in the characters of its Windows."""
    try:
        return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")


def _plain(text: str) -> str:
    """Ada_Lovelace and "ada lovelace" are one, and Moodle's "Participant 8" is 8."""
    text = unicodedata.normalize("NFC", text).casefold()
    return re.sub(r"^participant[\W_]+|[\W_]+", " ", text).strip()


def _on_roster(file: PurePath, listed: dict[str, list[str]]) -> str | None:
    """Whom the path names: the first folder that names somebody decides, else the file's name.

    In a folder's name the longest name wins (Ann, Ann-Marie). A name of one word counts only where
    the folder begins or ends with it: "homework due may 3" is not May's.
    """
    pairs = [(text, name) for name, texts in listed.items() for text in texts]
    own = file.with_name(NAMED.sub(" ", file.stem))  # the course's words name nobody
    for part in own.parts:
        words = f" {_plain(part.partition('_assignsubmission_')[0])} "
        number = (found := PLATFORM.match(part)) and len(found["id"]) > 2 and found["id"]
        hits = [
            (len(text), name)
            for text, name in pairs
            if (f" {text} " in words if " " in text else _at_an_end(text, words.strip()))
            or text == number
        ]
        if hits:
            return max(hits)[1]
    return None


def _at_an_end(word: str, words: str) -> bool:
    """Whether it is the first or the last word, numbers of a platform aside."""
    named = [w for w in words.split() if not re.fullmatch(r"\d{3,}", w) or w == word]
    return word in named[:1] + named[-1:]
