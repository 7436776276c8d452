"""Writes northanger_abbey.txt: Jane Austen's novel, as Debian packages it.

    apt-get download r-cran-janeaustenr        (any version from 1.0.0)
    dpkg -x r-cran-janeaustenr_*.deb austen
    pip install rdata
    python data/make_northanger.py austen

The package holds the text of Project Gutenberg without Project Gutenberg's header and licence, as
an R data file: an index (.rdx) of zlib-compressed objects (.rdb). R itself is not needed. The same
package gives the same bytes; only those whose hash is the one below are written.
"""

import sys
import zlib
from pathlib import Path

import rdata

from mha_lesson.text import DATA, NORTHANGER_ABBEY, require_hash

FOLDER = "usr/lib/R/site-library/janeaustenr/data"


def main(unpacked: Path) -> None:
    index = rdata.read_rds(unpacked / FOLDER / "Rdata.rdx")
    start, length = index["variables"]["northangerabbey"]
    packed = (unpacked / FOLDER / "Rdata.rdb").read_bytes()[start : start + length]
    # Four bytes of length come first; R then wants its own header, which an .rds has already.
    lines = rdata.read_rds(zlib.decompress(packed[4:]))
    text = ("\n".join(str(line) for line in lines).strip() + "\n").encode("utf-8")
    require_hash(NORTHANGER_ABBEY, text)
    (DATA / NORTHANGER_ABBEY).write_bytes(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
