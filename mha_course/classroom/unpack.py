"""In the sandbox: takes the notebooks out of a zip, each into a file whose name is its number.

What the archive says of itself, names, sizes and kinds, decides nothing about where a byte goes.
`files` runs it, and reads the names from its report. It imports no more than it needs.
"""

import json
import os
import sys
import zipfile
import zlib

ARCHIVE = "archive"
MOST_MEMBERS = 100  # files that are looked at, notebooks first
PART = 2**20  # bytes that are held at once
UNZIPS = (
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,
    ValueError,
    KeyError,
    EOFError,
    OSError,
    NotImplementedError,
)


def main(work: str, report: int, memory_gb: float, largest: int) -> None:
    """Writes a line for each file: its name, and whether it is whole; None where not a notebook."""
    import resource

    size = int(memory_gb * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    with zipfile.ZipFile(os.path.join(work, ARCHIVE)) as archive:
        names = [n for n in archive.namelist() if not (n.endswith("/") or _hidden(n))]
        names.sort(key=lambda n: not n.lower().endswith(".ipynb"))
        for number, name in enumerate(names[:MOST_MEMBERS]):
            path = os.path.join(work, str(number))
            book = name.lower().endswith(".ipynb")
            whole = _copied(archive, name, path, largest) if book else None
            os.write(report, json.dumps([name, whole]).encode() + b"\n")


def _hidden(name: str) -> bool:
    """What a Mac or Jupyter puts beside a notebook."""
    return any(part.startswith((".", "__MAC")) and part != ".." for part in name.split("/"))


def _copied(archive: zipfile.ZipFile, name: str, path: str, largest: int) -> bool:
    """Up to one part beyond the largest file that is read."""
    try:
        with archive.open(name) as member, open(path, "wb") as file:
            while file.tell() <= largest and (part := member.read(PART)):
                file.write(part)
        return True
    except UNZIPS:
        return False


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[4]), int(sys.argv[5]))
