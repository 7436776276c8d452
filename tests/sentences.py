"""What a sentence of the course looks like."""

import re


def is_a_sentence(text: str) -> bool:
    """A sentence of the course: begins with a capital or code, ends with a stop, no CAPITALS."""
    prose = re.sub(r"`[^`]*`", "", text)
    capitals = set(re.findall(r"[A-Z]{2,}", prose)) - {"GPU", "CUDA", "BF"}
    return bool(re.match(r"[A-Z`(]", text)) and text[-1] in ".?)" and not capitals
