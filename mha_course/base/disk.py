"""Where the notebooks are, and how a file is written so that nothing is lost on the way."""

import itertools
import os
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
IN_WHEEL = (HERE / "notebooks").is_dir()  # a wheel holds them inside this package
NOTEBOOKS = HERE / "notebooks" if IN_WHEEL else HERE.parent / "notebooks"


def write_whole(path: Path, content: bytes, instead_of: bytes | None = None) -> bool:
    """Write all of it or nothing: what goes wrong halfway leaves the old file as it was.

    With `instead_of`, only a file that still holds these bytes is replaced: somebody may save in
    the meantime. Returns whether the file was written.
    """
    path = path.resolve()  # a link stays a link
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # two programs never share one
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, part)
        if instead_of is not None and path.read_bytes() != instead_of:
            return False
        os.replace(part, path)
        return True
    finally:
        part.unlink(missing_ok=True)


def plainly(error: Exception) -> str:
    """What an error says; of the system's, without its number and the path."""
    return getattr(error, "strerror", None) or str(error)


def free_path(path: Path) -> Path:
    """The path itself, or with -2, -3 … before its ending: the first where nothing lies yet."""
    others = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(2))
    return next(free for free in itertools.chain([path], others) if not free.exists())
