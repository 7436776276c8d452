"""The command `mha-lesson`, or `python -m mha_course`: each of its words is one of the modules."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from io import TextIOWrapper

COMMANDS = {  # word -> what it does, and the module whose `main` takes the rest of the line
    "lab": ("open the course in JupyterLab, on your own copies (the default)", "lab.command"),
    "export": ("run a notebook and save it as a page that moves offline", "pages.export"),
    "practice": ("write a notebook with what is due, from memory", "lab.practice"),
    "test": ("write a final test for a class, with its key", "classroom.final_test"),
    "classroom": ("run a folder of submitted notebooks: who solved what", "classroom.command"),
    "worksheets": ("write sheets with numbers to compute by hand, and a key", "pages.worksheets"),
    "compare": ("say whether an attention class is right, for CI", "comparison.command"),
    "weights": ("fetch the published model of notebook 08, or of 14", "lab.weights"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code: 0, or 1 and a sentence, 2 for a word unknown."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows no ✓ shows a question mark
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    words = sys.argv[1:] if arguments is None else [*arguments]
    word, *rest = words or ["lab"]
    if word not in COMMANDS:
        _parser().parse_args(words)
    try:
        done = import_module(f"mha_course.{COMMANDS[word][1]}").main(rest)
        return done if isinstance(done, int) else 0
    except ModuleNotFoundError as error:
        why = f"{error.name} is not installed; get it with: pip install 'mha-lesson[lab]'"
    except (ValueError, TypeError) as error:
        why = str(error)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    print(f"mha-lesson {word}: {why}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mha-lesson",
        description="Multi-head attention, to learn from notebooks whose pictures move.",
        epilog="mha-lesson COMMAND --help shows the rest.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('mha-lesson')}")
    words = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for word, (does, _) in COMMANDS.items():
        words.add_parser(word, help=does)
    return parser


if __name__ == "__main__":
    sys.exit(main())
