"""Write where the repository is into README, notebooks, pyproject.toml and CITATION.cff.

python tools/badges.py https://github.com/OWNER/NAME [BRANCH or TAG, else main]
"""

import re
import sys

import nbformat

from notebooks import FOLDER, paths, read

BADGES = {
    "Colab": "https://colab.research.google.com/assets/colab-badge.svg",
    "Binder": "https://mybinder.org/badge_logo.svg",
}

LINES = r"\A(# .*\n)\n(\[Move it now.*\n\n)?(\[!\[Open in .*\n)*\n*"  # the title, what it wrote


def links(address: str, ref: str, path: str) -> dict[str, str]:
    """Name -> link of where this notebook opens; none but for a repository on GitHub."""
    if not (match := re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", address)):
        return {}
    colab = f"https://colab.research.google.com/github/{match[1]}/blob/{ref}/{path}"
    return {
        "Colab": colab,
        "Binder": f"https://mybinder.org/v2/gh/{match[1]}/{ref}?urlpath=lab/tree/{path}",
    }


def site(address: str) -> str:
    """Where GitHub Pages show the site of a repository of theirs, or ""."""
    found = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+)", address)
    return f"https://{found[1].lower()}.github.io/{found[2]}/" if found else ""


def write(address: str, ref: str = "main") -> None:
    """Called again with another address, it takes the old one away."""
    address = address.rstrip("/").removesuffix(".git")
    for path in paths():
        notebook, there = read(path), links(address, ref, f"notebooks/{path.name}")
        line = " · ".join(f"[Open in {name}]({link})" for name, link in there.items())
        text = re.sub(r"\n\n\[Open in .*", "", notebook.cells[0].source)
        notebook.cells[0].source = f"{text}\n\n{line}".rstrip("\n")
        path.write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8")
    first = links(address, ref, "notebooks/00_start_here.ipynb").items()
    badges = "".join(f"[![Open in {name}]({BADGES[name]})]({link})\n" for name, link in first)
    if page := site(address):
        badges = f"[Move it now, nothing to install]({page})\n\n{badges}\n"
    urls = f'[project.urls]\nSource = "{address}"\nIssues = "{address}/issues"\n\n'
    for name, old, new in (
        ("README.md", LINES, rf"\1\n{badges}"),
        ("CITATION.cff", r"(^repository-code: .*\n)?\Z", f'repository-code: "{address}"\n'),
        ("pyproject.toml", r"(^\[project.urls\]\n(.+\n)+\n)?(?=^\[project.opt)", urls),
    ):
        text = (FOLDER.parent / name).read_text(encoding="utf-8")
        text = re.sub(old, new, text, count=1, flags=re.M)
        (FOLDER.parent / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write(*sys.argv[1:])
