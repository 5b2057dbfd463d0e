"""Files of file systems that fsspec knows and the native reader does not."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from typing import Any
from urllib.parse import unquote, urlsplit

from . import _pelton

_NATIVE = {"s3", "gs", "az", "abfs", "abfss", "azure", "http", "https", "demo", "items"}
_URL = re.compile(r"([a-z][a-z0-9+.-]+)://")


def here(name: str, cache_dir: str | os.PathLike[str] | None) -> str:
    """The name that the native reader takes: of a local file for ``file://``, and of a copy for other file systems."""
    match = _URL.match(name)
    if match is None or match[1] in _NATIVE:
        return name
    if match[1] == "file":
        parts = urlsplit(name)
        if parts.netloc not in ("", "localhost"):
            raise _pelton.ConfigurationError(f"{name}: `file://` is followed by a host, {parts.netloc}; write file:///PATH")
        return unquote(parts.path)
    return _copied(name, match[1], cache_dir)


def _copied(name: str, scheme: str, cache_dir: str | os.PathLike[str] | None) -> str:
    shown = _pelton.without_secrets(name)
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"{shown} is read through fsspec: pip install fsspec, and what it needs for {scheme}") from error
    try:
        files, path = fsspec.core.url_to_fs(name)
    except (ImportError, ValueError) as error:
        raise _pelton.ConfigurationError(f"{shown}: fsspec cannot open {scheme}:// ({_pelton.without_secrets(str(error))})") from error
    info: dict[str, Any] = files.info(path)
    if info.get("type") == "directory":
        raise _pelton.ConfigurationError(f"{shown} is a folder; name its files, as fsspec.open_files lists them")
    version = next((str(info[key]) for key in ("ETag", "etag", "blob_id", "mtime", "LastModified", "sha256") if info.get(key)), "")
    digest = hashlib.blake2b(f"{name} {info.get('size')} {version}".encode(), digest_size=12).hexdigest()
    stem, dot, kind = os.path.basename(path.partition("?")[0] if "://" in path else path).partition(".")

    def fill(part: str) -> None:
        warnings.warn(f"{shown} is copied to the cache folder before it is read", stacklevel=5)
        files.get_file(path, part)

    return os.fspath(_pelton.cached_copy(os.fspath(cache_dir) if cache_dir else None, f"{stem}-{digest}", dot + kind, fill))
