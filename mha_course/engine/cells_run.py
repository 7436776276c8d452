"""Whether the cell with the learner's latest version ran: a failed one leaves the version before.

Only IPython keeps what was typed; elsewhere nothing is known, and nothing is said.
"""

import ast
import linecache
import re
import sys
import textwrap
from types import FunctionType
from typing import Any

from mha_course.engine.report import Finding

DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NEARLY = r"^(?:async\s+)?(?:def|class|\w{2,5})\s+%s\b"  # `dfe` as well, in a cell that is no Python


def stale(answer: Any) -> Finding | None:
    """What is to be said where a later cell was to define this name, and stopped before it did."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = getattr(answer, "__name__", "")
    try:
        if shell is None or shell.user_ns.get(name) is not answer:
            return None
        cells = [*shell.history_manager.input_hist_parsed]
    except AttributeError:  # a shell of another kind
        return None
    own = "".join(linecache.getlines(_file(answer))).rstrip("\n")
    since = [cell.rstrip("\n") for cell in cells]
    if not own or own not in since:  # made by a magic, or elsewhere
        return None
    since = since[len(since) - since[::-1].index(own) :]
    later = any(name in cell and _was_to_define(cell, name) for cell in since)
    return _failed(name) if later else None


def _file(answer: Any) -> str:
    members = vars(answer).values() if isinstance(answer, type) else (answer,)
    codes = (m.__code__ for m in members if isinstance(m, FunctionType))
    return next((code.co_filename for code in codes), "")


def _was_to_define(cell: str, name: str) -> bool:
    try:
        body = ast.parse(cell).body
    except (SyntaxError, ValueError):
        return bool(re.search(NEARLY % re.escape(name), textwrap.dedent(cell), re.M))
    return any(isinstance(node, DEFINES) and node.name == name for node in body)


def _failed(name: str) -> Finding:
    return Finding(
        "stale",
        f"The last cell with `{name}` stopped with an error, so what would be judged here is your "
        "version from before, not what you see.",
        "What does the message below that cell say? Mend it, run that cell, then this one.",
    )
