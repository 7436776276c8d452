"""How `make lab` saves a notebook: all of it or nothing.

Jupyter empties the old file, then writes the new one; it keeps a copy, but where the disk is full
at the end of writing the copy is not put back, and the next attempt to save writes over it.
"""

import io
import os
import runpy
from contextlib import contextmanager
from pathlib import Path

from jupyter_server.services.contents.filecheckpoints import AsyncFileCheckpoints
from jupyter_server.services.contents.fileio import AsyncFileManagerMixin
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

# By its path: importing the package would import torch, and the server needs none.
COURSE = Path(__file__).resolve().parents[2]
write_whole = runpy.run_path(str(COURSE / "base/disk.py"))["write_whole"]


class Whole(AsyncFileManagerMixin):
    """The two ways in which Jupyter's managers write a file."""

    @contextmanager
    def atomic_writing(self, os_path, text=True, encoding="utf-8", **_):
        new = io.BytesIO()
        file = io.TextIOWrapper(new, encoding, newline="\n", write_through=True) if text else new
        yield file
        with self.perm_to_403(os_path):
            write_whole(Path(os_path), new.getvalue())

    async def _copy(self, src, dest):
        with self.perm_to_403(dest):
            write_whole(Path(dest), Path(src).read_bytes())


class WholeCheckpoints(Whole, AsyncFileCheckpoints):
    """A checkpoint, and the way back to it."""


class WholeFiles(Whole, AsyncLargeFileManager):
    """Notebooks and other files."""


c = get_config()  # pyrefly: ignore[unknown-name]  # noqa: F821  # Jupyter defines it
if os.name == "posix":  # Windows replaces no file that another program has open
    c.ServerApp.contents_manager_class = WholeFiles
    c.WholeFiles.checkpoints_class = WholeCheckpoints
