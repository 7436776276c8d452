"""Write a notebook into ./my_notebooks: up to three exercises that are due, to be solved from
memory in about a quarter of an hour, and questions. Nothing is overwritten.
"""

import argparse
from collections.abc import Sequence
from contextlib import chdir

from mha_course import check
from mha_course.lab.copies import working_copy


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="mha-lesson practice", description=__doc__)
    whole = "the whole class, from an empty page"
    parser.add_argument("--class", dest="whole_class", action="store_true", help=whole)
    options = vars(parser.parse_args(arguments))
    folder = working_copy()
    folder.mkdir(exist_ok=True)
    with chdir(folder):  # what was solved is noted there
        print(check.practice(**options))
