"""Hears when code of certain files looks at frames or code objects, by whatever name."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_EVENTS = """
    object.__getattr__ sys._getframe sys._current_frames sys._current_exceptions sys.settrace
    sys.setprofile gc.get_objects gc.get_referrers gc.get_referents
"""
AUDITED = {*_EVENTS.split()}  # as Python calls such looks
_files = frozenset[str]()
_looks = list[str]()


@contextmanager
def heard(files: frozenset[str]) -> Iterator[list[str]]:
    """The looks that are heard meanwhile, in this thread and in others."""
    global _files
    _listen()
    _looks.clear()
    _files = files
    try:
        yield _looks
    finally:
        _files = frozenset()


@cache
def _listen() -> None:
    """Once for all: Python forgets no such hook."""
    sys.addaudithook(_hear)


def _hear(event: str, _: tuple[Any, ...]) -> None:
    global _files
    if event not in AUDITED or not (files := _files):
        return
    _files = frozenset()  # what follows is heard by nobody
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__") in ("inspect", "traceback"):
        frame = frame.f_back
    if frame.f_code.co_filename in files:
        _looks.append(event)
    _files = files
