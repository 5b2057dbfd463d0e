"""Names of files as text, also where they are not UTF-8."""

from __future__ import annotations

import os
import re
from typing import Union

# A byte that is not UTF-8, as `os.fsdecode` encodes it.
_ESCAPED = re.compile("[\udc80-\udcff]")

FileName = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def file_name(path: FileName) -> str:
    r"""The name as the native part takes it: a byte that is not UTF-8 is written as in ``caf\xE9.csv``."""
    return _ESCAPED.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02X}", os.fsdecode(path))
