"""Errors in the learner's own words: which line, and what torch's message means here.

A new error is one entry of errors.toml: patterns of its message, what happened, and a question.
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mha_course.engine.report import Finding
from mha_course.engine.safely import Raised

FIXED_DEVICE = "fixed_device"


class Known(NamedTuple):
    key: str
    pattern: str
    does: str
    asks: str


def _known(key: str, patterns: Sequence[str] = (), does: str = "", asks: str = "") -> Known:
    return Known(key, "|".join(patterns), *(" ".join(text.split()) for text in (does, asks)))


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ERRORS = tuple(_known(key, **entry) for key, entry in _TABLE["message"].items())
BY_KIND = {kind: _known(**entry) for kind, entry in _TABLE["kind"].items()}
NOT_CALLED = "TypeError before the first line"
_ADVICE = re.compile(r"(?<!i\.e)[.;!] |, but expected one of|, but found")  # what torch suggests
SAY_IT_ALL = ("SystemExit", "KeyboardInterrupt", "NameError", "UnboundLocalError", "EinopsError")
ARGUMENTS = re.compile(r"(takes|missing) .*(positional|required)? ?argument")


def explain(raised: Raised, note: str = "") -> Finding:
    """What an error means, with the learner's line; `note` says on which input it came."""
    note = f" ({note})" if note else ""
    message = " ".join(raised.message.split())
    known = next((k for k in ERRORS if re.search(k.pattern, message, re.I)), None)
    if raised.kind in SAY_IT_ALL:
        known = BY_KIND[raised.kind]
    if known is None and raised.number is None and ARGUMENTS.search(message):
        known = BY_KIND[NOT_CALLED]
    known = known or BY_KIND.get(raised.kind)
    if known is None:
        stops = "" if raised.number is not None or note else f"It stops with {raised.kind}: "
        known = Known(f"error_{raised.kind}", "", f"{stops}{message}", "")
    line = ""
    if raised.number is not None:
        line = f"Line {raised.number} of your code stops with {raised.kind}{note}"
        line += f": `{raised.source.replace('`', chr(39))}`. " if raised.source else ". "
    elif note:
        line = f"It stops with {raised.kind}{note}. "
    does = known.does.replace("{message}", message.rstrip("."))
    if known in ERRORS:
        does += f" (The message: {_ADVICE.split(message)[0].rstrip('.')}.)"
    key = FIXED_DEVICE if known.key == FIXED_DEVICE else f"error:{known.key}"
    return Finding(key, line + does, known.asks)
