"""Plain sentences as HTML: escaped, with code and symbols set."""

import re
from html import escape

from mha_course.pictures.marks import emphasised, scripts

TAGS = {"": "{}", "^": "<sup>{}</sup>", "_": "<sub>{}</sub>"}


def prose(text: str) -> str:
    """HTML of `text`: code in backticks, *emphasis*, the Q of W^Q raised, the k of d_k lowered."""
    parts = re.split(r"`([^`]+)`", text)
    return "".join(
        f"<code>{escape(part)}</code>"
        if i % 2
        else emphasised("".join(map(_set, re.split(r"(\s+)", part))))
        for i, part in enumerate(parts)
    )


def _set(word: str) -> str:
    return "".join(TAGS[sign].format(escape(piece)) for piece, sign in scripts(word))
