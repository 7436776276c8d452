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
MOST_MEMBERS = 100  # notebooks that are taken out
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
    """Writes a line for each notebook: its name, and whether its file is whole."""
    import resource

    size = int(memory_gb * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    with zipfile.ZipFile(os.path.join(work, ARCHIVE)) as archive:
        names = [n for n in archive.namelist() if n.lower().endswith(".ipynb") and not _hidden(n)]
        for number, name in enumerate(names[:MOST_MEMBERS]):
            whole = _copied(archive, name, os.path.join(work, str(number)), largest)
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
