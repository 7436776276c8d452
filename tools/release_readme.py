"""The README as a wheel carries it: with an address, none of its links and pictures is relative.

The address is what `tools/badges.py` wrote into pyproject.toml, as a release does; the links lead
to this version's tag. hatchling calls this at every build.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

TARGET = re.compile(r"""(?:(?<=\]\()|(?<=src="))(?![a-z]+:|#)([^)\s"]+)""")


def absolute(text: str, address: str, tag: str) -> str:
    """Pages are shown by `blob`, pictures are sent by `raw`."""

    def place(target: re.Match[str]) -> str:
        picture = Path(target[1]).suffix in (".png", ".webp", ".svg")
        return f"{address.rstrip('/')}/{'raw' if picture else 'blob'}/{tag}/{target[1]}"

    return TARGET.sub(place, text)


class ReleaseReadme(MetadataHookInterface):
    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if address := metadata.get("urls", {}).get("Source"):
            text = absolute(text, address, f"v{metadata['version']}")
        else:
            print("No address yet (tools/badges.py): the README's links stay relative.")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
