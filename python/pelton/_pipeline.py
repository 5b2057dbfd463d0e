"""What happens to records on their way to batches, written as a chain of calls."""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import ArrayLike

from . import _pelton
from ._batch import Batch
from ._classes import class_names, class_setting, given_words, warn_of_other_classes, warn_of_other_words, word_list
from ._dataset import Dataset
from ._names import FileName, file_name
from ._processes import Processes, caller_of, checked, grouped
from ._run import Loop, Run
from ._stage import Function
from ._workers import Told
from ._world import ALONE, World, find_world, handed_on, ranks_here

if TYPE_CHECKING:
    from ._classes import Classes, Words

_UNITS = {"": 1, "B": 1}
for _i, _letter in enumerate("KMGT", start=1):
    _UNITS[f"{_letter}iB"] = 1024**_i
    _UNITS[f"{_letter}B"] = 1000**_i

# Types of features by NumPy's names.
_DTYPES = {"float32": "f32", "float64": "f64"}

# Lines of a warning about the data.
MOST_NOTES = 5

ConfigurationError = _pelton.ConfigurationError
Paths = Union[FileName, Iterable[FileName]]


def parse_bytes(size: int | str) -> int:
    """Bytes of a size such as ``"512MiB"``, ``"2GB"`` or a number."""
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size > 0:
        return int(size)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B|B|)\s*", str(size))
    if not match or float(match[1]) == 0:
        raise ConfigurationError(f"`{size}` is not an amount of memory: give a number of bytes, or text such as 512MiB or 2GB")
    return int(float(match[1]) * _UNITS[match[2]])


def load(
    paths: Paths,
    *,
    format: str | None = None,
    header: str | bool = "auto",
    decimal: str = "auto",
    label: str | int | None = None,
    label_file: str | os.PathLike[str] | None = None,
    file_column: str = "first",
    classes: Classes | None = None,
    zero_based: bool = False,
    missing: str | None = None,
    dtype: str | None = None,
    pair: str | os.PathLike[str] | None = None,
    io: str = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    remote_cache: int | str | None = None,
    device_model: str | None = None,
) -> Pipeline:
    """Opens data in place: a path, pattern, URL or ``demo:NAME``, or several of them, in any format that Pelton reads.

    Nothing is read before it is needed. ``format`` is detected from names and contents unless given; ``header`` says
    whether the first line of a text table names its columns (``"yes"``, ``"no"``, or ``"auto"``, which refuses an
    ambiguous line); ``decimal`` is what separates the fraction of its numbers (``"."``, ``","``, or ``"auto"``, which
    takes commas where semicolons separate cells); columns of further files are matched by these names; ``label`` is the
    column of labels of a table (``"first"``, ``"last"``, a position from 1 or a name; by default the last for text
    and none for NumPy's arrays), or ``"json:KEY"`` for samples of tar files; ``missing`` fills empty cells and null
    (``"zero"``, or ``"mean"`` for features). The
    features of CSV, TSV and NumPy matrices are float32, and a whole number that this would round is an error; ``dtype`` is
    ``"float64"`` to keep more digits, or ``"float32"`` to have them rounded. ``cache_dir`` is the folder for
    decompressed copies and for indexes of folders that cannot be written to; ``remote_cache`` is how much data from
    servers it may also contain, such as ``"50GB"`` (default: none).

    Names of files may be bytes, as ``os.fsencode`` makes them, and need not be UTF-8.

    ``classes`` defines the indices of classes: a list of names or labels, a file with one a line, or another
    pipeline, such as that of the training data. The label of a record is then the index of its class in the list or
    in that pipeline; a record of another class is a bad record. A number of classes, such as ``10``, means 0 to 9.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        paths = [paths]
    setting, by_class = class_setting(classes)
    data = {
        "paths": [file_name(path) for path in paths],
        "format": format,
        "header": ("yes" if header else "no") if isinstance(header, bool) else header,
        "decimal": decimal,
        "label": None if label is None else str(label),
        "whole_arrays": True if label is None else None,
        "label_file": label_file and file_name(label_file),
        "file_column": file_column,
        "classes": setting,
        "zero_based": zero_based,
        "missing": missing,
        "dtype": None if dtype is None else _DTYPES.get(str(dtype), str(dtype)),
        "pair": pair and file_name(pair),
        "io": io,
        "cache_dir": cache_dir and file_name(cache_dir),
        "remote_cache_bytes": None if remote_cache is None else parse_bytes(remote_cache),
        "device_model": device_model,
    }
    if not data["paths"]:
        raise ConfigurationError("no data is given: name at least one file in `paths`")
    pipeline = Pipeline({name: value for name, value in data.items() if value is not None})
    return pipeline._with(terms={"by_class": True}) if by_class else pipeline


class Pipeline:
    """Records on their way to batches. Every method returns a new pipeline; iterating one runs an epoch.

    ``for batch in pipeline`` is one epoch, and the next ``for`` is the next epoch, in another order where the pipeline
    shuffles. ``len(pipeline)`` is the number of batches of an epoch. A pipeline without ``.batch()`` or
    ``.buckets()`` yields samples, one by one, as dicts.

    Loops are independent: a second loop started within a first runs the next epoch, with its own loader and memory.

    It is an ``IterableDataset`` for PyTorch: ``DataLoader(pipeline, batch_size=None, num_workers=2)`` divides the batches
    among its workers, and ``DataLoader(pipeline, batch_size=32)`` takes samples.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data
        self._config: dict[str, Any] = {}
        self._augment: list[str] = []
        self._terms: dict[str, Any] = {"order": "sequential", "seed": 0}
        # Functions before and after augmentation, and the worker processes of each.
        self._maps: dict[bool, list[tuple[Function, int]]] = {True: [], False: []}
        self._draws: np.ndarray | None = None
        self._vocabulary: list[bytes] | Pipeline | None = None
        self._lengths: np.ndarray | Callable[[dict[str, Any]], int] | None = None
        self._batch_maps: list[Callable[[Batch], Any]] = []
        self._given: World | None = None
        self._run: Run | None = None
        self._told = Told()
        # What another process handed on, and whether accelerate divides what comes out.
        self._inherited: World | None = None
        self._divided = False

    # What is read, and when.

    def shuffle(self, seed: int = 0, order: str = "full") -> Pipeline:
        """A new random order every epoch, by default a full one over all files.

        The same seed gives the same orders on every machine and for any number of ranks. Other orders are
        ``"page:BYTES"``, ``"queue:EXAMPLES"``, ``"block:BLOCKS"``, ``"opportunistic:LOADS"`` and ``"sequential"``.
        """
        return self._with(terms={"seed": int(seed), "order": order})

    def keep(self, *, lengths: tuple[int | None, int | None] | None = None, classes: Sequence[str | int] = ()) -> Pipeline:
        """Only records of these lengths (both ends included, ``None`` for no end) and classes."""
        config: dict[str, Any] = {}
        if lengths is not None:
            low, high = ("" if end is None else int(end) for end in lengths)
            config["keep_lengths"] = f"{low}..{high}"
        if len(classes):
            config["keep_classes"] = [str(name) for name in classes]
        return self._with(config=config)

    def mix(self, shares: Sequence[float]) -> Pipeline:
        """Examples of each file in these shares, exact to within one example a file."""
        return self._with(config={"mix": [float(share) for share in shares]})

    def echo(self, spelling: str) -> Pipeline:
        """Repeats (data echoing): ``"read:E"``, ``"before:E"`` or ``"after:E"`` augmentation, ``"batch:E"``, or
        ``"auto"``, which repeats only where the loop would wait."""
        return self._with(config={"echo": spelling})

    def sample(
        self,
        *,
        ids: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        balanced: bool = False,
        examples: int | None = None,
    ) -> Pipeline:
        """Chooses the records of an epoch, instead of each record once.

        ``ids`` are the records of every epoch, with repeats if there are any, shuffled where the pipeline shuffles.
        ``weights`` has one number a record; examples are drawn by it with replacement, as PyTorch's
        ``WeightedRandomSampler`` draws. ``balanced=True`` uses every class equally often. ``examples`` is the length of an
        epoch. States, ranks and threads stay exact: what is drawn depends only on seed, epoch and position.
        """
        if sum((ids is not None, weights is not None, balanced)) != 1:
            raise ConfigurationError("give one of `ids`, `weights` and `balanced`")
        config: dict[str, Any] = {"sample": "balanced"} if balanced else {}
        if examples is not None:
            config["epoch_examples"] = int(examples)
        made = self._with(config=config)
        if ids is not None:
            numbers = np.asarray(ids)
            if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer) or (numbers < 0).any():
                raise ConfigurationError("`ids` must be whole numbers from 0 in one dimension")
            made._draws = np.ascontiguousarray(numbers, np.uint64)
        elif weights is not None:
            numbers = np.ascontiguousarray(weights, np.float64)
            if numbers.ndim != 1:
                raise ConfigurationError("`weights` must be numbers in one dimension, one a record")
            made._draws = numbers
        return made

    # What happens to a record.

    def decode(
        self,
        kind: str,
        *,
        vocabulary: Words | None = None,
        exif: str = "ignore",
        max_megapixels: int | None = None,
    ) -> Pipeline:
        """How records become samples: ``"jpg"``, ``"png"``, ``"webp"`` or ``"image"``, ``"words"`` or ``"bytes"`` as
        indices of a vocabulary, ``"pairs"``, or ``"member:EXT"`` of a tar sample.

        ``vocabulary`` defines the indices of words: a file written by ``pelton vocabulary``, a list of words, or
        another pipeline, such as that of the training data; by default all words of this data. Words of a list get
        the indices from 4 on, after ``<pad>``, ``<unk>``, ``<bos>`` and ``<eos>``, which the list may begin with.

        Pictures of more than ``max_megapixels`` million pixels (100 where it is not given) are bad records.
        """
        made = self._with(config={"decode": kind, "exif": exif, "max_megapixels": max_megapixels})
        made._config.pop("vocabulary", None)
        made._vocabulary = None
        if isinstance(vocabulary, (str, os.PathLike)):
            made._config["vocabulary"] = file_name(vocabulary)
        elif vocabulary is not None:
            made._vocabulary = vocabulary if isinstance(vocabulary, Pipeline) else word_list(vocabulary)
        return made

    def augment(self, steps: str) -> Pipeline:
        """Augmentation of pictures, drawn again for every appearance, such as ``"rrc:224,flip,normalise"``."""
        return self._with(augment=steps.split(","))

    def resize(self, height: int, width: int | None = None) -> Pipeline:
        """To ``height`` × ``width``, or so that the shorter side is ``height``."""
        return self.augment(f"resize:{height}" if width is None else f"resize:{height}x{width}")

    def crop(self, side: int) -> Pipeline:
        """The square in the middle."""
        return self.augment(f"crop:{side}")

    def random_crop(self, side: int, padding: int = 0) -> Pipeline:
        """A square at a random position, after padding by this many pixels."""
        return self.augment(f"randomcrop:{side}:{padding}" if padding else f"randomcrop:{side}")

    def random_resized_crop(self, side: int, area: tuple[float, float] = (0.08, 1.0)) -> Pipeline:
        """A random crop with an area between these shares, resized to a square, as in torchvision."""
        return self.augment(f"rrc:{side}:{area[0]}-{area[1]}")

    def flip(self, chance: float = 0.5) -> Pipeline:
        """A horizontal flip with this probability."""
        return self.augment(f"flip:{chance}")

    def normalise(self, means: Sequence[float] | None = None, deviations: Sequence[float] | None = None) -> Pipeline:
        """To floats, by means and deviations of values from 0 to 1; ImageNet's unless they are given."""
        if means is None or deviations is None:
            return self.augment("normalise")
        spelled = ["/".join(str(float(value)) for value in values) for values in (means, deviations)]
        return self.augment(f"normalise:{spelled[0]}:{spelled[1]}")

    def planar(self) -> Pipeline:
        """Pictures as channels × height × width."""
        return self._with(config={"planar": True})

    def map(self, function: Function, *, before_augmentation: bool = False, processes: int | None = None) -> Pipeline:
        """Calls a function on samples: it gets a dict of the fields of one example, as arrays or bytes, with its
        "label" and "record", and returns a dict of the fields for the batch.

        It runs after decoding and augmentation for every appearance, or before augmentation once a read. The native
        threads call it, one at a time because of Python's lock. A function that has a parameter ``rng`` gets a
        ``numpy.random.Generator`` that follows from seed, epoch and record. Exceptions leave the loop as
        `BadRecordError` with the record's position, and the function's exception as the cause; ``on_bad_record``
        applies to them too. Numbers and arrays are stacked, bytes and text concatenated; use ``batch(collate="pad")``
        or ``"ragged"`` for arrays of unequal shape. The label is unchanged unless the function returns a "label".

        ``processes`` is how many worker processes call it instead, for functions that hold Python's lock; what comes
        out is the same. They start with the first loop, import the function (so it must be picklable, and a program
        needs ``if __name__ == "__main__":``) and end with the pipeline. Neighbouring functions with the same
        ``processes`` share them. Each has its own copy of what the function keeps between calls.
        """
        made = self._with()
        mapped = (function, checked(function, processes))
        made._maps = {**self._maps, before_augmentation: [*self._maps[before_augmentation], mapped]}
        return made

    def map_batches(self, function: Callable[[Batch], Any]) -> Pipeline:
        """Calls a function on finished batches, in the loop's thread; the loop yields what it returns."""
        made = self._with()
        made._batch_maps = [*self._batch_maps, function]
        return made

    def on_bad_record(self, policy: str) -> Pipeline:
        """What to do with bad records: ``"fail"``, ``"skip[:LIMIT]"`` or ``"replace[:LIMIT]"``. The number of steps
        is the same for all of these, so that ranks stay in step."""
        return self._with(config={"bad_examples": policy})

    # How batches are put together.

    def batch(self, examples: int, *, drop_last: bool = False, collate: str = "auto") -> Pipeline:
        """Batches of this many examples, over all ranks together. ``collate`` is ``"auto"``, ``"stack"``, ``"pad"`` or
        ``"ragged"``."""
        if int(examples) < 1:
            raise ConfigurationError(f"a batch needs at least 1 example, not {examples}")
        return self._with(terms={"batch": int(examples)}, config={"drop_last": drop_last, "collate": collate})

    def buckets(
        self,
        policy: str = "auto",
        *,
        boundaries: Sequence[int] | None = None,
        length: ArrayLike | str | Callable[[dict[str, Any]], int] | None = None,
    ) -> Pipeline:
        """Batches of similar lengths: ``"auto"``, ``"optimal:BUCKETS"``, ``"tokens:MAX"``, ``"pack:ROW_LENGTH"`` or
        ``"none"``; or the boundaries of the buckets. No example is dropped, and every epoch is shuffled again.

        Lengths are tokens where text is decoded, otherwise bytes, unless ``length`` gives them: an array with one a
        record, the name of a field, or a function of the stored fields of a sample. A field or function needs a pass
        over the data when the pipeline is first used.
        """
        if boundaries is not None:
            policy = "static:" + ",".join(str(int(end)) for end in boundaries)
        field = {"lengths": f"field:{length}"} if isinstance(length, str) else {}
        made = self._with(config={"buckets": policy, **field})
        if length is not None and not field:
            made._lengths = length if callable(length) else checked_lengths(length)
        return made

    # How it runs.

    def memory(self, size: int | str) -> Pipeline:
        """Memory for look-ahead, echoed examples and batches together: ``"512MiB"``, ``"2GB"`` or bytes. By default
        1 GiB, or a quarter of what the machine or container has, over its ranks, if that is less."""
        return self._with(terms={"memory_bytes": parse_bytes(size)})

    def threads(self, threads: int, *, read: int | None = None) -> Pipeline:
        """Threads that decode and augment (as many as there are processors), and threads that read (2, or 8 for data
        on a server)."""
        made = self._with(terms={"threads": int(threads)})
        return made if read is None else made._with(config={"read_threads": int(read)})

    def access(self, path: str) -> Pipeline:
        """How records are read: ``"auto"``, ``"direct"``, ``"window"`` or ``"scatter"``. The order stays the same."""
        return self._with(terms={"access": path})

    def shard(self, rank: int, world_size: int) -> Pipeline:
        """This process takes the share of ``rank`` of every batch. By default it is the rank of
        ``torch.distributed`` if that is initialised when a loop starts, else the rank in the launcher's environment
        (torchrun, Ray Train, Open MPI, MPICH, a step of Slurm)."""
        if not 0 <= rank < world_size:
            raise ConfigurationError(f"there is no rank {rank} of {world_size}; ranks are 0 to {world_size - 1}")
        made = self._with()
        made._given = World(int(rank), int(world_size), "shard()")
        return made

    # For other libraries.

    def torch(self, device: Any = None) -> Pipeline:
        """Batches of PyTorch tensors, which share the memory of the arrays; copied through pinned memory to
        ``device`` if one is given."""
        from .torch import to_torch

        return self.map_batches(to_torch(device))

    def jax(self, device: Any = None) -> Pipeline:
        """Batches of JAX arrays."""
        from .jax import to_jax

        return self.map_batches(to_jax(device))

    def tf(self) -> Any:
        """The batches as a ``tf.data.Dataset``; each iteration of it is an epoch."""
        from .tf import to_dataset

        return to_dataset(self)

    def dataset(self, epoch: int | None = None) -> Dataset:
        """The same samples by index, for a ``torch.utils.data.DataLoader`` or a custom sampler."""
        return Dataset(self, epoch)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """PyTorch's loaders ask whether this is an ``IterableDataset``; it is, once they are imported."""
        data = sys.modules.get("torch.utils.data")
        if data is None or not hasattr(data, "IterableDataset"):
            return Pipeline
        # Before workers are started.
        self._told.share()
        # accelerate asks before it divides batches itself, or has rank 0 read all; in newer PyTorch through `abc`.
        asks = sys._getframe(1)
        if asks.f_globals.get("__name__") == "abc" and asks.f_back is not None:
            asks = asks.f_back
        if asks.f_globals.get("__name__") == "accelerate.data_loader":
            self._divided = True
        return _iterable_dataset(data.IterableDataset)

    # Running it.

    def peek(self, record: int) -> dict[str, Any]:
        """One record after decoding and augmentation, for inspection."""
        return self.dataset(epoch=0)[record]

    def __getitem__(self, record: Any) -> Any:
        raise TypeError(
            f"a pipeline is iterated, not indexed; use .peek({record!r}) to look at one record, or .dataset() for samplers and "
            "loaders that index records"
        )

    def __iter__(self) -> Loop:
        return Loop(self._running(), self._world)

    def progress(self, every: float = 0.5) -> Iterator[Any]:
        """Runs an epoch with progress on standard error, in terminals and notebooks, and the verdict at its end."""
        run, batches = self._running(), len(self)
        began = told = time.monotonic()
        examples = 0
        for number, batch in enumerate(self, start=1):
            examples += run.last_examples
            yield batch
            now = time.monotonic()
            if now - told >= every or number == batches:
                told = now
                rate = examples / (now - began)
                print(f"\rbatch {number} of {batches}, {rate:,.0f} examples/s ", end="", file=sys.stderr, flush=True)
        print(f"\n{self.verdict()}", file=sys.stderr)

    def __len__(self) -> int:
        """Number of batches of the current or next epoch; of samples of this rank where there are no batches."""
        run = self._running()
        epoch = run.current_epoch()
        steps = run.native.steps(epoch)
        if run.batched or steps == 0:
            return steps
        rank, size, _ = self._world()
        lengths = [len(run.native.step_ids(epoch, step)) for step in (0, steps - 1)]
        first, last = ((rank + 1) * length // size - rank * length // size for length in lengths)
        return (steps - 1) * first + last

    @property
    def records(self) -> int:
        """Number of records of the data."""
        return len(self._running().source)

    @property
    def classes(self) -> list[Any]:
        """The classes in the order of their indices: names, or what ``classes`` of `load` lists; otherwise empty
        where labels are numbers."""
        return class_names(self._running().source, bool(self._terms.get("by_class")))

    @property
    def vocabulary(self) -> list[str] | None:
        """Words in the order of their indices, where text is decoded."""
        return self._running().native.vocabulary

    @property
    def fields(self) -> list[tuple[str, str, list[int | None]]]:
        """Name, type and dimensions of the fields of a record as it is stored."""
        return self._running().source.fields

    @property
    def notes(self) -> list[str]:
        """Notes on how the data was opened, and which rank this process is."""
        world = self._world()
        return self._running().source.notes + ([f"reads the share of {world}"] if world.size > 1 else [])

    @property
    def randomness(self) -> dict[str, float]:
        """How random the order is, 0 to 1: the randomness level of DeepIO, and the exact one."""
        level, exact = self._running().native.randomness
        return {"rl": level, "rl_exact": exact}

    def step_ids(self, epoch: int, step: int) -> np.ndarray:
        """Record ids of a step over all ranks, computed without reading anything."""
        return np.asarray(self._running().native.step_ids(epoch, step), dtype=np.int64)

    def locate(self, record: int) -> tuple[str, int]:
        """File and byte offset of a record."""
        return self._running().source.locate(record)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration runs this epoch, or the rest of it if a state of this epoch was loaded before. A
        running loop is not changed."""
        self._running().set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position of the loop, after everything yielded so far. Small, the same on every rank, and valid for
        any number of ranks. If several loops are running, each has its own: ``iterator.state_dict()``."""
        return self._running().state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration resumes exactly after the last batch that was yielded when the state was taken. A
        running loop is not changed."""
        self._running().resume(state)

    def meters(self) -> dict[str, Any]:
        """Counters since the loader started: examples, bytes, seconds waited, and the work of every stage."""
        return self._running().meters()[0]

    def verdict(self) -> str:
        """One sentence: was the loop input-bound, at which stage, and what would help?"""
        return self._running().meters()[1]

    def close(self) -> None:
        """Ends the threads; the pipeline can be iterated again."""
        if self._run is not None:
            self._run.close()
            self._run = None

    def __repr__(self) -> str:
        settings = {**self._terms, **self._full_config()}
        return f"pelton.Pipeline({self._data['paths']}, {settings})"

    def __reduce__(self) -> tuple[Any, ...]:
        world = self._inherited if self._divided else handed_on() or self._inherited
        return _restored, ({**self.__dict__, "_run": None, "_inherited": world},)

    def _world(self) -> World:
        if self._divided:
            return ALONE
        return self._given or find_world(self._inherited)

    def _with(
        self,
        *,
        config: Mapping[str, Any] | None = None,
        terms: Mapping[str, Any] | None = None,
        augment: Sequence[str] = (),
    ) -> Pipeline:
        made = copy.copy(self)
        made._told, made._divided = Told(), False
        made._config = {**self._config, **(config or {})}
        made._terms = {**self._terms, **(terms or {})}
        made._augment = [*self._augment, *augment]
        made._run = None
        return made

    def _full_config(self) -> dict[str, Any]:
        augment = {"augment": ",".join(self._augment)} if self._augment else {}
        return {**self._config, **augment}

    def _running(self) -> Run:
        with _opening:
            if self._run is None or self._run.process != os.getpid():
                self._run = self._opened()
            return self._run

    def _opened(self) -> Run:
        before, behind = self._maps[True], self._maps[False]
        if not self._augment:
            before, behind = [], [*before, *behind]
        workers = sum(count for maps in (before, behind) for count, _ in grouped(maps))
        terms = {
            "batch": None,
            "memory_bytes": _pelton.memory_budget(1 << 30, ranks_here()),
            # A thread waits for each worker process.
            "threads": len(os.sched_getaffinity(0)) + workers,
            "access": "auto",
            **self._terms,
        }
        source = _pelton.Source(json.dumps(self._data))
        warn_of(source.notes)
        warn_of_other_classes(self._data, source)
        lengths = self._lengths
        if callable(lengths):
            lengths = lengths_by(lengths, self)
        words = given_words(self._vocabulary)
        native = _pelton.Pipeline(source, json.dumps(self._full_config()), json.dumps(terms), self._draws, lengths, words)
        warn_of_other_words(self._data, self._config, native, words is not None)
        pools: list[Processes] = []
        for maps in (before, behind):
            if maps:
                whole = source.whole_labels or bool(terms.get("by_class"))
                caller = caller_of(maps, whole, pools, relabelled=maps is behind and len(before) > 0)
                native = native.with_functions(caller, maps is before)
        batched = "batch" in self._terms or "buckets" in self._config
        return Run(source, native, self._batch_maps, batched, self._told, pools)


# Two threads open a pipeline once. A forked process has a lock of its own: its parent's may be taken.
_opening = threading.RLock()


def _renew_lock() -> None:
    global _opening
    _opening = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _restored(attributes: dict[str, Any]) -> Pipeline:
    made = object.__new__(Pipeline)
    made.__dict__.update(attributes)
    return made


@functools.cache
def _iterable_dataset(base: type) -> type:
    """What a pipeline is where PyTorch is: a `Pipeline` and an ``IterableDataset``."""
    return type("Pipeline", (Pipeline, base), {"__module__": __name__})


def checked_lengths(lengths: ArrayLike) -> np.ndarray:
    """Lengths as the native part takes them."""
    numbers = np.asarray(lengths)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer) or (numbers < 0).any() or (numbers >= 2**32).any():
        raise ConfigurationError("lengths must be whole numbers below 2^32 in one dimension, one a record")
    return np.ascontiguousarray(numbers, np.uint32)


def lengths_by(length: Callable[[dict[str, Any]], int], pipeline: Pipeline) -> np.ndarray:
    """The length of every record by a function, in one pass over what is stored."""
    stored = Pipeline(pipeline._data).shard(0, 1)
    found = [int(length(sample)) for sample in stored]
    return checked_lengths(np.asarray(found, np.int64))


def warn_of(notes: list[str]) -> None:
    """Tells what is left out of the data, or not as one might expect, once for the same data."""
    if notes:
        more = len(notes) - MOST_NOTES
        shown = [*notes[:MOST_NOTES], *([f"and {more} more, see `notes`"] if more > 0 else [])]
        warnings.warn("\n".join(shown), stacklevel=5)

