"""Plain sentences as HTML: escaped, with code and symbols set."""

import re
from html import escape

# The Q of W^Q is raised, the k of d_k lowered; every drawer of texts splits them with these.
SPLIT = "(?<=(?<![A-Za-z0-9_])[A-Za-z])([\\^_])([A-Z]|model|kv|[qkvo])(?![A-Za-z0-9_])"
CODE = r"[a-z]\("  # a text with a call in it stays as it is
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


def scripts(text: str) -> list[tuple[str, str]]:
    """Pieces of a text, each with "^" if it is raised, "_" if it is lowered, or ""."""
    # Between the pieces of plain text stand the sign and what it raises or lowers.
    parts = [text] if re.search(CODE, text) else re.split(SPLIT, text)
    return [
        (part, parts[i - 1] if i % 3 == 2 else "")
        for i, part in enumerate(parts)
        if part and i % 3 != 1
    ]


def emphasised(html: str) -> str:
    """*This* as emphasis."""
    return re.sub(r"\*(\w[\w ,−-]*)\*", r"<em>\1</em>", html)
