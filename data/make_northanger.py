"""Writes northanger_abbey.txt: Jane Austen's novel, as Debian packages it.

    apt-get download r-cran-janeaustenr
    dpkg -x r-cran-janeaustenr_1.0.0-1_all.deb austen
    pip install rdata
    python data/make_northanger.py austen

The package holds the text of Project Gutenberg, without its header and licence, as an R data file:
an index (.rdx) of zlib-compressed objects (.rdb). R itself is not needed.
"""

import sys
import zlib
from io import BytesIO
from pathlib import Path

import rdata

FILE = Path(__file__).parent / "northanger_abbey.txt"
PACKED = "usr/lib/R/site-library/janeaustenr/data/Rdata"
NOT_BY_AUSTEN = "A NOTE ON THE TEXT"  # the last paragraph, on editions


def main(unpacked: Path, path: Path = FILE) -> None:
    index = rdata.read_rds(unpacked / f"{PACKED}.rdx")
    start, length = (int(number) for number in index["variables"]["northangerabbey"])
    packed = (unpacked / f"{PACKED}.rdb").read_bytes()[start : start + length]
    lines = rdata.read_rds(BytesIO(zlib.decompress(packed[4:])))  # four bytes say the length
    novel = "\n".join(str(line) for line in lines).split(NOT_BY_AUSTEN)[0].strip()
    path.write_text(novel + "\n", encoding="ascii", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
