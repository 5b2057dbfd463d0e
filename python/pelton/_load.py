"""Opens data: files, tables that name files, and what a program has in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _pelton
from ._checks import choice, parse_bytes, typed, whole
from ._classes import class_setting
from ._columns import as_column, is_picture
from ._fsspec import here
from ._items import Items, Rows, Spool, samples_of
from ._manifest import Files, Manifest, rows_of
from ._names import FileName, file_name
from ._pipeline import Pipeline
from ._steps import Step

if TYPE_CHECKING:
    from ._classes import Classes

ConfigurationError = _pelton.ConfigurationError
Paths = Union[FileName, Iterable[FileName]]

# Types of features by NumPy's names.
_DTYPES = {"float32": "f32", "float64": "f64"}


@typed
def load(
    paths: Paths,
    *,
    format: str | None = None,
    header: str | bool = "auto",
    decimal: str = "auto",
    label: str | int | None = None,
    labels: Sequence[Any] | None = None,
    label_file: str | os.PathLike[str] | None = None,
    file_column: str = "first",
    classes: Classes | None = None,
    zero_based: bool = False,
    missing: str | None = None,
    dtype: str | np.dtype[Any] | None = None,
    pair: str | os.PathLike[str] | None = None,
    io: str = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    remote_cache: int | str | None = None,
    device_model: str | None = None,
) -> Pipeline[dict[str, Any]]:
    """Opens data in place: a path, pattern, URL or ``demo:NAME``, or several of them, in any format that Pelton reads.

    Nothing is read before it is needed. Names of files may be bytes, as ``os.fsencode`` makes them, and need not be UTF-8.
    URLs of ``s3``, ``gs``, ``az`` and ``http`` are read in place; files of other file systems of fsspec, such as
    ``hf://datasets/NAME/FILE``, are copied to ``cache_dir`` first.

    :param paths: the data. Several image files by name, or a pattern of them, are one record each.
    :param format: such as ``"csv"`` or ``"tar"``; by default by names and contents. ``"folder"`` makes a record of each file that
        is named, of whatever kind: ``text`` where all are ``.txt``, otherwise ``bytes``.
    :param header: whether the first line of a text table names its columns: ``"yes"``, ``"no"``, or ``"auto"``, which refuses
        an ambiguous line. Columns of further files are matched by these names.
    :param decimal: what separates the fraction of numbers in text tables: ``"."``, ``","``, or ``"auto"``, which takes commas
        if semicolons separate cells.
    :param label: the column of labels of a table (``"first"``, ``"last"``, a position from 1 or a name; by default the last for
        text and none for NumPy's arrays), or ``"json:KEY"`` for samples of tar files.
    :param labels: the label of each file that ``paths`` names, numbers or names of classes, in the same order.
    :param label_file: a table with the classes of a folder's images, which ``label`` is a column of.
    :param file_column: the column of that table that names the image.
    :param classes: defines the indices of classes: a list of names or labels, a file with one a line, or another pipeline, such
        as that of the training data. The label of a record is then the index of its class in the list or in that
        pipeline; a record of another class is a bad record. A number of classes, such as ``10``, means 0 to 9.
    :param zero_based: whether LIBSVM's indices count from 0.
    :param missing: what fills empty cells and null: ``"zero"``, or ``"mean"`` for features.
    :param dtype: of the features of CSV, TSV and NumPy matrices: by default float32, where a whole number that this would round
        is an error; ``"float64"`` keeps more digits, ``"float32"`` rounds them.
    :param pair: a second text whose lines belong to those of the first.
    :param io: how files are opened: ``"auto"``, ``"direct"``, ``"buffered"`` or ``"pread"``.
    :param cache_dir: folder for decompressed copies and for indexes of folders that cannot be written to.
    :param remote_cache: how much data from servers it may also contain, such as ``"50GB"`` (default: none).
    :param device_model: limits reads to the speed of a device: ``"hdd"``, ``"ssd"`` or ``"optane"``.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        paths = [paths]
    elif isinstance(paths, (np.ndarray, Mapping)) or hasattr(paths, "columns"):
        raise ConfigurationError("`paths` is data, and load opens files; from_arrays(…) takes what is in memory: arrays, or a data frame")
    given = list(paths) if isinstance(paths, Iterable) else [paths]
    for path in given:
        if not isinstance(path, (str, bytes, os.PathLike)):
            raise ConfigurationError(f"`paths` has {path!r}; give names of files, patterns or URLs")
    setting, by_class = class_setting(classes)
    data = {
        "paths": [here(file_name(path), cache_dir) for path in given],
        "format": format,
        "header": choice("header", ("yes" if header else "no") if isinstance(header, bool) else header, "auto", "yes", "no"),
        "decimal": choice("decimal", decimal, "auto", ".", ","),
        "label": None if label is None else str(label),
        "whole_arrays": True if label is None else None,
        "file_classes": None if labels is None else _file_classes(labels),
        "label_file": label_file and file_name(label_file),
        "file_column": file_column,
        "classes": setting,
        "zero_based": zero_based,
        "missing": choice("missing", missing, "zero", "mean", "flag"),
        "dtype": _DTYPES.get(choice("dtype", str(dtype) if isinstance(dtype, np.dtype) else dtype, *_DTYPES)),
        "pair": pair and file_name(pair),
        "io": io,
        "cache_dir": cache_dir and file_name(cache_dir),
        "remote_cache_bytes": None if remote_cache is None else parse_bytes(remote_cache),
        "device_model": device_model,
    }
    if not data["paths"]:
        raise ConfigurationError("no data is given: name at least one file in `paths`")
    pipeline: Pipeline[dict[str, Any]] = Pipeline({name: value for name, value in data.items() if value is not None})
    return pipeline._then(Step("load", terms={"by_class": True})) if by_class else pipeline


def _file_classes(labels: Sequence[Any]) -> dict[str, Any]:
    """Labels of files as the native part takes them."""
    given = np.asarray(labels)
    if given.ndim != 1 or given.dtype.kind not in "biufU" or (given.dtype.kind == "f" and not np.isfinite(given).all()):
        raise ConfigurationError(
            "`labels` must be numbers or names of classes in one dimension, one a file; columns of from_manifest may have more"
        )
    values, codes = np.unique(given, return_inverse=True)
    if given.dtype.kind in "biuf" and len(given) and max(abs(float(values[0])), abs(float(values[-1]))) >= 2.0**53:
        raise ConfigurationError("`labels` must be below 2^53 in magnitude; number the classes from 0")
    named = given.dtype.kind == "U"
    return {
        "names": values.tolist() if named else [],
        "values": list(range(len(values))) if named else values.astype(float).tolist(),
        "codes": codes.tolist(),
    }


@typed
def from_sequence(items: Sequence[Any], *, names: Sequence[str] | None = None) -> Pipeline[dict[str, Any]]:
    """The items of anything with ``len(items)`` and ``items[i]``: a list, a map-style ``Dataset`` of PyTorch, a data set of
    Hugging Face.

    An item is a dict of fields, or a tuple whose fields have these ``names``; by default the second of two is ``label``, and
    the first ``image`` where it is a picture of uint8, uint16 or PIL, ``bytes`` or ``text``, and otherwise ``data``. Several threads
    ask for items at once, for many by ``items.__getitems__(numbers)`` if there is such a function. The order is exact and resumes exactly as that of files, and random numbers of functions
    follow from seed, epoch and record; those that ``items[i]`` draws by itself are its own. A state is refused for another
    number of items, or another first or last one; those between are not compared.
    """
    lacking = [shown for name, shown in (("__len__", "`len`"), ("__getitem__", "`[i]`")) if not hasattr(items, name)]
    if lacking:
        raise ConfigurationError(
            f"`items` is {type(items).__name__}, without {' and '.join(lacking)}; give a class with both, as docs/containers.md has for "
            "HDF5, zarr and Lance; from_generator takes a function that returns an iterator"
        )
    if isinstance(items, Mapping) or hasattr(items, "columns"):
        raise ConfigurationError(f"`items` is {type(items).__name__} and has columns, not items by number; from_arrays takes columns")
    return _of_items(Items([items], names))


@typed
def from_generator(
    make: Callable[[], Iterable[Any]] | Iterable[Any],
    *,
    names: Sequence[str] | None = None,
    limit: int | None = None,
    folder: str | None = None,
) -> Pipeline[dict[str, Any]]:
    """The items that ``make()`` yields, or an iterable such as an ``IterableDataset``, as `from_sequence` takes them with
    these ``names``.

    They are drawn once, at most ``limit`` of them, one after another into a temporary file in ``folder``: memory stays
    small, and every epoch is a full random order that resumes exactly, which a stream does not allow.
    """
    if isinstance(make, Iterator) or not (callable(make) or isinstance(make, Iterable)):
        raise ConfigurationError(f"`make` is {type(make).__name__}; give a function that returns an iterator, such as a generator function, not the iterator itself")
    most = None if limit is None else whole("limit", limit, 1)
    return _of_items(Items([Spool(make if callable(make) else make.__iter__, most, folder)], names))


@typed
def from_arrays(arrays: Any = None, **columns: Any) -> Pipeline[dict[str, Any]]:
    """Arrays in memory with one row a record: ``from_arrays(image=images, label=labels)``, a dict of them, or a data frame,
    whose columns are the fields. Batches are taken from them as NumPy does; nothing is copied before."""
    given = {**({} if arrays is None else dict(rows_of("arrays", arrays))), **columns}
    if not given:
        raise ConfigurationError("give at least one array, as in from_arrays(image=images, label=labels)")
    made = {name: as_column(name, values) for name, values in given.items()}
    first = next(iter(made))
    if not len(made[first]):
        raise ConfigurationError(f"`{first}` has no rows; give at least one")
    for name, column in made.items():
        if len(column) != len(made[first]):
            raise ConfigurationError(
                f"`{name}` has {len(column)} rows and `{first}` {len(made[first])}; give arrays with one row a record"
            )
    # Pictures go through the stages; the other columns are gathered for whole batches.
    arrays = {name: column for name, column in made.items() if isinstance(column, np.ndarray)}
    pictures = {name: made.pop(name) for name, each in arrays.items() if is_picture(name, each.dtype, each.shape[1:])}
    ends = repr([(name, type(column), column[0], column[len(column) // 2], column[-1]) for name, column in made.items()])
    pipeline = _of_items(Items([Rows(len(given[first]), pictures)], identity=ends))
    pipeline._columns = made
    return pipeline


@typed
def from_manifest(
    table: Any,
    *,
    files: str | Sequence[str],
    label: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    classes: Classes | None = None,
) -> Pipeline[dict[str, Any]]:
    """A table whose column ``files`` names the file of each record: CSV, TSV, JSON, JSON Lines, Parquet, a dict of columns or
    a data frame. Its other columns are fields of the batch.

    Names are relative to ``folder``, by default that of the table. Pictures are decoded by ``.decode("image")``; files of other
    kinds are ``text`` where all are ``.txt``, otherwise ``bytes``, for a function of `Pipeline.map` to decode. The column
    ``label`` has numbers or names of classes, whose indices ``classes`` defines as in `load`.

    Several columns, such as ``files=["image", "mask"]``, name several files of each record, whose bytes are fields by the names
    of the columns, for ``.decode("image=image,mask=mask:image")``.
    """
    manifest = Manifest.of(table, [files] if isinstance(files, str) else files, label, folder)
    if isinstance(files, str):
        pipeline = load(manifest.paths[files], format="folder", labels=manifest.labels, classes=classes)
    elif classes is not None:
        raise ConfigurationError("labels next to several files are the indices of classes, so `classes` names none of them; leave it out")
    else:
        pipeline = _of_items(Items([Files(manifest.paths)]))
        if manifest.labels is not None:
            labels = manifest.columns["label"] = as_column("label", manifest.labels)
            if not isinstance(labels, np.ndarray):
                raise ConfigurationError("labels next to several files are numbers; give the indices of the classes")
    pipeline._columns = manifest.columns
    return pipeline


@typed
def concat(*pipelines: Pipeline | Sequence[Pipeline]) -> Pipeline[dict[str, Any]]:
    """The samples of several pipelines one after another, as one data set: a full random order goes over all of them.

    Each decodes and augments as it does, and all must make the same fields. Batches, functions after it and resuming are
    those of any pipeline. Samples are read one by one, on several threads."""
    given: Any = pipelines[0] if len(pipelines) == 1 and isinstance(pipelines[0], (list, tuple)) else pipelines
    return _of_items(samples_of(given))


@typed
def mix(pipelines: Sequence[Pipeline], shares: Sequence[float]) -> Pipeline[dict[str, Any]]:
    """The samples of several pipelines in these shares, as by `Pipeline.mix`; small ones repeat. The order is random, and
    `Pipeline.shuffle` gives it another seed."""
    if len(shares) != len(pipelines):
        raise ConfigurationError(f"there are {len(pipelines)} pipelines and {len(shares)} shares; give one for each")
    return concat(*pipelines).shuffle().mix(shares)


def _of_items(items: Items) -> Pipeline[dict[str, Any]]:
    pipeline: Pipeline[dict[str, Any]] = Pipeline({"paths": items.paths()})
    pipeline._items = items
    return pipeline
