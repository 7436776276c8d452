"""The answers of `variations.toml`, whose head says what a row holds."""

import functools
import linecache
import math
import re
import tomllib
from pathlib import Path

import einops
import numpy
import torch
import torch.nn.functional as F
from torch import nn

import mha_lesson
from answers import Answer
from mha_lesson.text import sentence

SEEN = {"math": math, "torch": torch, "F": F, "nn": nn, "numpy": numpy, "mha_lesson": mha_lesson}
SEEN |= {"np": numpy, "einops": einops, "functools": functools, "rearrange": einops.rearrange}
SEEN |= {"repeat": einops.repeat, "__name__": "__main__", "creek": sentence()}
SEEN |= {"width": 2, "W_q": torch.ones(3, 5), "attention": mha_lesson.attention}


def defined(exercise, name, text):
    """What a notebook's cell with this text defines."""
    file, names = f"<{exercise}-{name}>", dict(SEEN)
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), names)
    return names[exercise]


def _answers():
    source = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    for exercise, some in tomllib.loads(source).items():
        plain = some["plain"].lstrip()
        usual = re.match(r"def \w+(\(.*\)):", plain)
        for name, row in some.items():
            named, *changes = ([],) if name == "plain" else row
            text = plain
            for change in changes:
                if isinstance(change, str):
                    arguments, body = OWN.fullmatch(change).groups()
                    lines = f"{arguments or usual[1]}:\n{body}".replace("\n", "\n    ")
                    text = f"def {exercise}{lines}\n"
                    continue
                (first, *last), new = change[0].split("…"), change[1]
                assert first in text, (exercise, name, first)
                for end in last:  # and all between
                    first = first + text.partition(first)[2].partition(end)[0] + end
                text = text.replace(first, new)
            answer = defined(exercise, name, text)
            yield Answer.of(exercise, name, answer, named)


OWN = re.compile(r"(?s)(?:(\([^)]*\)):\n)?(.*)")  # other names of the arguments, and the lines
ANSWERS = [*_answers()]
