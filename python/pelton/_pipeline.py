"""What happens to records on their way to batches, written as a chain of calls."""

from __future__ import annotations

import copy
import json
import operator
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from . import _pelton
from ._batch import Batch
from ._checks import channels, checked_lengths, checked_weights, parse_bytes, share, sides, typed, whole
from ._choice import Filter, LengthOf, Part, Skip, Take, check_by_index, check_has_lengths, check_listed, chosen, lengths_by
from ._classes import class_names, given_words, warn_of, warn_of_other_classes, warn_of_other_words, word_list
from ._collation import Collated, ToTensors, Tuples, bound, collation
from ._columns import DESCRIBED, PACKED, WithColumns, described, free, has_planes, ragged, taken
from ._dataset import Dataset
from ._items import Items
from ._names import file_name
from ._processes import Processes, caller_of, checked, grouped
from ._run import Loop, Run, with_progress
from ._stage import Calls, Chain, Function, here, opening
from ._steps import Augment, Buckets, Cache, Decode, Include, Map, MapBatches, Sample, Shard, Step, Steps, Windows
from ._workers import Told, iterable_dataset
from ._world import ALONE, World, find_world, handed_on, ranks_here

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset as Base

    from ._classes import Words
else:
    # With PyTorch it is also an `IterableDataset` (`__class__`).
    Base = Generic

# A loop yields dicts of samples, batches, or the results of functions on them.
T = TypeVar("T")
U = TypeVar("U")

ConfigurationError = _pelton.ConfigurationError


@typed
class Pipeline(Base[T]):  # type: ignore[misc, unused-ignore]
    """Records on their way to batches. Every method returns a new pipeline; iterating one runs an epoch.

    ``for batch in pipeline`` is one epoch, and the next ``for`` is the next epoch, in another order where the pipeline
    shuffles. ``len(pipeline)`` is the number of batches of an epoch. A pipeline without ``.batch()`` or
    ``.buckets()`` yields samples, one by one, as dicts.

    Loops are independent: a second loop started within a first runs the next epoch, with its own loader and memory.

    It is an ``IterableDataset`` for PyTorch: ``DataLoader(pipeline, batch_size=None, num_workers=2)`` divides the batches
    among its workers, and ``DataLoader(pipeline, batch_size=32)`` takes samples.
    """

    def __init__(self, data: dict[str, Any], steps: Steps | None = None) -> None:
        self._data, self._steps = data, steps or Steps()
        self._items: Items | None = None
        self._columns: dict[str, Any] = {}
        self._run: Run | None = None
        self._told = Told()
        # State from another process, and whether accelerate divides the output.
        self._inherited: World | None = None
        self._divided = False

    # Selecting and ordering records.

    def windows(
        self, length: int, *, stride: int | None = None, targets: bool = True, dtype: Any = None
    ) -> Pipeline[T]:
        """Token ids in one array, cut into windows of ``length`` ids, which are the records: a bare array such as nanoGPT's
        ``.bin``, with its ``dtype`` (``"uint16"``, ``"uint32"`` …), a ``.npy`` of one dimension, or the ``.bin`` of
        Megatron-LM next to its ``.idx``. Call it on what ``pelton.load`` returns.

        Batches have ``input`` and ``target``, the ids one further, ``[batch, length]``; without ``targets`` ``tokens``; all
        int64. Functions of `map` get ``tokens`` as they are stored, with ``length + 1`` ids if there are targets. A window
        begins every ``stride`` ids, by default ``length``: then every id is a target once an epoch, but the first and those
        after the last whole window (a note counts them if they are more than a hundredth). Windows cross the ends of documents.
        """
        length, stride = whole("length", length, 1), whole("stride", length if stride is None else stride, 1)
        if self._items is not None or self._data.get("format") or any(step.call != "load" for step in self._steps.steps):
            raise ConfigurationError("call .windows() first, on what pelton.load(path) returns without `format`")
        kinds = {"uint8": "u8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32", "int64": "i64"}
        name = None
        if dtype is not None:
            with suppress(TypeError):
                name = np.dtype(dtype).name
            if name not in kinds:
                raise ConfigurationError(f"`dtype` is {dtype!r}; ids are {', '.join(kinds)}")
        format = f"windows:{length + bool(targets)}:{stride}" + ("" if name is None else f":{kinds[name]}")
        made = self._then(Windows("windows", targets=bool(targets)))
        made._data = {**self._data, "format": format}
        return made

    def shuffle(self, buffer_size: None = None, *, seed: int = 0, order: str = "full") -> Pipeline[T]:
        """A new random order every epoch, by default a full one over all files, so there is no ``buffer_size`` to give.

        The same seed gives the same orders on every machine and for any number of ranks. Other orders are
        ``"page:BYTES"``, ``"queue:EXAMPLES"``, ``"block:BLOCKS"``, ``"opportunistic:LOADS"`` and ``"sequential"``.
        """
        if buffer_size is not None:
            raise ConfigurationError(
                f"`buffer_size` is {buffer_size!r}: the order is random over all records, without a buffer; leave the number out, or write "
                f"seed={buffer_size!r}"
            )
        return self._then(Step("shuffle", terms={"seed": whole("seed", seed), "order": order}))

    def keep(self, *, lengths: tuple[int | None, int | None] | None = None, classes: Sequence[str | int] = ()) -> Pipeline[T]:
        """Only records of these lengths (both ends included, ``None`` for no end) and classes."""
        config: dict[str, Any] = {}
        if lengths is not None:
            low, high = ("" if end is None else int(end) for end in lengths)
            config["keep_lengths"] = f"{low}..{high}"
        if isinstance(classes, (str, int)):
            classes = [classes]
        if len(classes):
            config["keep_classes"] = [str(name) for name in classes]
        return self._then(Step("keep", config))

    def filter(self, function: Callable[[dict[str, Any]], Any]) -> Pipeline[T]:
        """Only records for which a function of the sample returns true. It is called once a record, in one pass over the
        data when the pipeline is first used: on stored fields before ``.decode()``, on decoded ones after it, never on
        augmented ones. It gets what functions of `map` get."""
        names = ("decode", "exif", "max_megapixels", "vocabulary", "bad_examples")
        config = {name: value for name, value in self._steps.config.items() if name in names}
        return self._then(Filter("filter", function=function, decoding=config))

    def take(self, records: int) -> Pipeline[T]:
        """The first so many records in the order of the data; call it before `shuffle`."""
        return self._then(Take("take", records=whole("records", records, 1)))

    def skip(self, records: int) -> Pipeline[T]:
        """All records but the first so many in the order of the data; call it before `shuffle`."""
        return self._then(Skip("skip", records=whole("records", records)))

    def split(self, share_of_first: float, *, seed: int = 0) -> tuple[Pipeline[T], Pipeline[T]]:
        """Two parts, the first with ``share_of_first`` of the records, such as 0.9 for training and the rest for validation.

        A record belongs to the part that a hash of its file's name and its number in the file says, so no record changes
        parts when files are added or grow, and the parts have about these shares. ``seed`` makes another division.
        """
        at, seed = share("share_of_first", share_of_first), whole("seed", seed)
        if not 0 < at < 1:
            raise ConfigurationError(f"`share_of_first` is {at}; give a number between 0 and 1")
        return self._then(Part("split", to=at, seed=seed)), self._then(Part("split", start=at, seed=seed))

    def mix(self, shares: Sequence[float]) -> Pipeline[T]:
        """Examples of each file in these shares, which they have at any point to within one example (four where three files or
        more have unequal shares). `pelton.mix` is for pipelines."""
        if not isinstance(shares, (list, tuple, np.ndarray)):
            raise ConfigurationError(f"`shares` is {shares!r}; give a list with one number for each file, in their order")
        return self._then(Step("mix", {"mix": [share("shares", one, 1e30) for one in shares]}))

    def echo(self, times: float | str) -> Pipeline[T]:
        """Repeats (data echoing): a number is how many ``times`` each example comes, augmented each time. ``"read:E"``,
        ``"before:E"`` (as a number) or ``"after:E"`` say where to repeat, ``"batch:E"`` repeats batches, and ``"auto"``
        repeats only where the loop would wait.

        A window of 1024 examples (of batches with ``"batch:E"``), at most a tenth of an epoch, is repeated at a time, or as
        many as ``"before:E:WINDOW"`` says. With ``"auto"`` the number of batches follows from how long the loop waits, so
        ``len()`` raises ``TypeError``, as of iterables without a length.
        """
        if not isinstance(times, str):
            times = f"before:{share('times', times, 1000):g}"
        return self._then(Step("echo", {"echo": times}))

    def sample(
        self,
        *,
        ids: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        balanced: bool = False,
        examples: int | None = None,
    ) -> Pipeline[T]:
        """Chooses the records of an epoch, instead of each record once.

        ``ids`` are the records of every epoch, with repeats if there are any, shuffled where the pipeline shuffles; one
        that `filter` or another choice leaves out is an error.
        ``weights`` has one number a record; examples are drawn by it with replacement, as PyTorch's
        ``WeightedRandomSampler`` draws. ``balanced=True`` uses every class equally often. ``examples`` is the length of an
        epoch. States, ranks and threads stay exact: what is drawn depends only on seed, epoch and position.
        """
        if sum((ids is not None, weights is not None, balanced)) != 1:
            raise ConfigurationError("give one of `ids`, `weights` and `balanced`")
        if examples is not None and operator.index(examples) < 1:
            raise ConfigurationError("`examples` must be above 0: an epoch of none has no batches")
        draws = None if weights is None else checked_weights(weights)
        if ids is not None:
            numbers = np.asarray(ids)
            if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer) or (numbers < 0).any():
                raise ConfigurationError("`ids` must be whole numbers from 0 in one dimension")
            draws = np.ascontiguousarray(numbers, np.uint64)
        config = {"sample": "balanced" if balanced else None, "epoch_examples": None if examples is None else operator.index(examples)}
        return self._then(Sample("sample", config, draws=draws))

    # Stages on a record.

    def decode(
        self,
        kind: str,
        *,
        vocabulary: Words | None = None,
        exif: str = "ignore",
        max_megapixels: int | None = None,
    ) -> Pipeline[T]:
        """How records become samples, by ``kind``: ``"image"``, or ``"jpg"`` or another ending of pictures, ``"words"`` or
        ``"bytes"`` as indices of a vocabulary, ``"pairs"``, or ``"member:EXT"`` of a tar sample.

        ``vocabulary`` defines the indices of words: a file written by ``pelton vocabulary``, a list of words, or
        another pipeline, such as that of the training data; by default all words of this data. Words of a list get
        the indices from 4 on, after ``<pad>``, ``<unk>``, ``<bos>`` and ``<eos>``, which the list may begin with.

        ``exif="apply"`` turns pictures upright as phones mean them; otherwise they are as stored, as in torchvision.
        Pictures of more than ``max_megapixels`` million pixels (100 where it is not given) are bad records.
        """
        config = {"decode": kind, "exif": exif, "max_megapixels": max_megapixels, "vocabulary": None}
        if isinstance(vocabulary, (str, os.PathLike)):
            config["vocabulary"], vocabulary = file_name(vocabulary), None
        elif vocabulary is not None and not isinstance(vocabulary, Pipeline):
            vocabulary = word_list(vocabulary)
        return self._then(Decode("decode", config, vocabulary=vocabulary))

    def augment(self, steps: str) -> Pipeline[T]:
        """Augmentation of pictures, drawn again for every appearance: stages with commas between them, such as
        ``"rrc:224,flip,normalise"``. ``pelton bench --help`` explains all of them, with their parameters.
        """
        return self._then(Augment("augment", steps=steps.split(",")))

    def resize(self, size: int | tuple[int, int], width: int | None = None) -> Pipeline[T]:
        """To ``(height, width)``, or so that the shorter side is ``size``; ``width`` makes ``size`` the height."""
        return self.augment(f"resize:{sides('size', size if width is None else (size, width))}")

    def crop(self, size: int | tuple[int, int]) -> Pipeline[T]:
        """The part of this ``size`` in the middle: a square, or ``(height, width)``."""
        return self.augment(f"crop:{sides('size', size)}")

    center_crop = crop

    def random_crop(self, size: int | tuple[int, int], padding: int = 0) -> Pipeline[T]:
        """A part of this ``size`` at a random position, after ``padding`` by this many pixels."""
        padding = whole("padding", padding)
        return self.augment(f"randomcrop:{sides('size', size)}" + (f":{padding}" if padding else ""))

    def random_resized_crop(
        self,
        size: int | tuple[int, int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> Pipeline[T]:
        """A random crop whose area is between the shares ``scale`` and whose ``ratio`` of width to height is between these,
        resized to ``size``, as in torchvision."""
        least, most = (share("scale", bound) for bound in scale)
        narrow, broad = (share("ratio", bound, 100.0) for bound in ratio)
        if [round(narrow, 2), round(broad, 2)] == [0.75, 1.33]:
            narrow, broad = 3 / 4, 4 / 3
        return self.augment(f"rrc:{sides('size', size)}:{least}-{most}:{narrow}-{broad}")

    def flip(self, p: float = 0.5) -> Pipeline[T]:
        """A horizontal flip with probability ``p``."""
        return self.augment(f"flip:{share('p', p)}")

    def vertical_flip(self, p: float = 0.5) -> Pipeline[T]:
        """A flip of top and bottom with probability ``p``."""
        return self.augment(f"vflip:{share('p', p)}")

    def color_jitter(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0) -> Pipeline[T]:
        """Changes, in random order, by factors from 1 ± ``brightness``, ``contrast`` and ``saturation``, and by ± ``hue`` of the circle."""
        most = {"brightness": (brightness, 100), "contrast": (contrast, 100), "saturation": (saturation, 100), "hue": (hue, 0.5)}
        return self.augment("jitter:" + ":".join(str(share(name, *given)) for name, given in most.items()))

    def gaussian_blur(self, kernel_size: int, sigma: tuple[float, float] = (0.1, 2.0), p: float = 1.0) -> Pipeline[T]:
        """A blur by a Gaussian kernel of ``kernel_size`` (odd) with a random deviation from ``sigma``, with probability ``p``."""
        least, most = (share("sigma", bound, 100.0) for bound in sigma)
        return self.augment(f"blur:{whole('kernel_size', kernel_size, 1)}:{least}-{most}:{share('p', p)}")

    def rand_augment(self, num_ops: int = 2, magnitude: int = 9) -> Pipeline[T]:
        """RandAugment: ``num_ops`` random changes of strength ``magnitude`` (0 to 30), as in torchvision."""
        return self.augment(",".join([f"randaugment:{whole('magnitude', magnitude)}"] * whole("num_ops", num_ops, 1)))

    def trivial_augment(self) -> Pipeline[T]:
        """One random change of random strength: TrivialAugmentWide, as in torchvision."""
        return self.augment("trivialaugment")

    def normalise(self, mean: Sequence[float] | float | None = None, std: Sequence[float] | float | None = None) -> Pipeline[T]:
        """To floats: ``(value / 255 - mean) / std``, for each channel; ImageNet's ``mean`` and ``std`` unless given."""
        if mean is None and std is None:
            return self.augment("normalise")
        if mean is None or std is None:
            raise ConfigurationError("give both `mean` and `std`, or neither")
        return self.augment(f"normalise:{channels('mean', mean, 1.0)}:{channels('std', std, 255.0)}")

    normalize = normalise

    def planar(self) -> Pipeline[T]:
        """Pictures as channels × height × width."""
        return self._then(Step("planar", {"planar": True}))

    def map(
        self, function: Function, *, batched: int | None = None, before_augmentation: bool = False, processes: int | None = None
    ) -> Pipeline[T]:
        """Calls a function on samples: it gets a dict of the fields of one example, as arrays or bytes, with its
        "label" and "record", and returns a dict of the fields for the batch.

        It runs after decoding and augmentation for every appearance, or with ``before_augmentation`` once a read. The native
        threads call it, one at a time where Python has its lock. A function that has a parameter ``rng`` gets a
        ``numpy.random.Generator`` that follows from seed, epoch and record. Exceptions leave the loop as
        `BadRecordError` with the record's position, and the function's exception as the cause; ``on_bad_record``
        applies to them too. Numbers and arrays are stacked, bytes and text concatenated; use ``batch(collate="pad")``
        or ``"ragged"`` for arrays of unequal shape. The label is unchanged unless the function returns a "label".

        With ``batched`` the function gets columns of at most so many records at once, fewer at ends, and returns columns with
        an entry for each: arrays where numbers have one type and shape, lists of bytes and others. Which records come together
        depends on threads, so that a function must treat each by itself; ``rng`` is then a sequence of generators, one a record,
        and what it draws from PyTorch follows from the first of them. One that raises is called again on each record alone.

        ``processes`` is how many worker processes call it instead, for functions that hold Python's lock; what comes
        out is the same. They start with the first loop, import the function (so it must be picklable, and a program
        needs ``if __name__ == "__main__":``) and end with the pipeline. Neighbouring functions with the same
        ``processes`` share them. Each has its own copy of what the function keeps between calls.
        """
        count = 0 if batched is None else whole("batched", batched, 1)
        mapped = Map("map", {}, {}, function, checked(function, processes), count, bool(before_augmentation))
        return self._then(mapped)

    def cache(self, memory: int | str) -> Pipeline[T]:
        """Keeps samples in memory as they are at this call, decoded and after functions before it, and copies them in later
        epochs and loops. It takes at most ``memory``, such as ``"4GiB"``, of the process in addition to that of ``.memory()``;
        samples that find no room are made again each epoch. A later ``.augment()`` draws again for every appearance.
        """
        return self._then(Cache("cache", bytes=parse_bytes(memory)))

    def map_batches(self, function: Callable[[Any], U]) -> Pipeline[U]:
        """Calls a function on finished batches, in the loop's thread; the loop yields what it returns."""
        return self._then(MapBatches("map_batches", function=function))

    def on_bad_record(self, policy: str) -> Pipeline[T]:
        """What to do with bad records: ``"fail"``, ``"skip[:LIMIT]"`` or ``"replace[:LIMIT]"``. The number of steps
        is the same for all of these, so that ranks stay in step."""
        return self._then(Step("on_bad_record", {"bad_examples": policy}))

    # Batching.

    @overload
    def batch(
        self,
        examples: int,
        *,
        last: str = "even",
        collate: str | Mapping[str, str] = "auto",
        pad: float | Mapping[str, float] = 0,
        multiple: int = 1,
    ) -> Pipeline[Batch]: ...

    @overload
    def batch(self, examples: int, *, last: str = "even", collate: Callable[[list[dict[str, Any]]], U]) -> Pipeline[U]: ...

    def batch(
        self,
        examples: int,
        *,
        last: str = "even",
        collate: str | Mapping[str, str] | Callable[[list[dict[str, Any]]], Any] = "auto",
        pad: float | Mapping[str, float] = 0,
        multiple: int = 1,
    ) -> Pipeline[Any]:
        """Batches of this many ``examples``, over all ranks together.

        ``last`` says what becomes of examples at the end of an epoch, or of a bucket, that fill no batch. With ``"even"`` the
        last two batches share what is left, so 6 001 examples in batches of 600 end with 301 and 300; with ``"short"`` they
        are a smaller batch, with ``"drop"`` they are left out. A loop does not start if a batch has fewer examples than there
        are ranks.

        ``collate`` is ``"auto"``, ``"stack"``, ``"pad"`` (along the first dimension, to the longest) or ``"ragged"`` for all
        fields, a dict with one of these for some, or a function that gets the list of a batch's samples, and whose result
        the loop yields. ``pad`` is the number to pad with, or a dict of them by field, and padded lengths are a
        ``multiple`` of this number.
        """
        terms = {"batch": whole("examples", examples, 1)}
        if callable(collate):
            if pad or multiple != 1:
                raise ConfigurationError("`collate` is a function, so it pads as it likes; leave `pad` and `multiple` out")
            return self._then(Step("batch", {"last": last, "collate": "ragged"}, terms)).map_batches(Collated(collate))
        spelled = collation(collate, pad, whole("multiple", multiple, 1))
        return self._then(Step("batch", {"last": last, "collate": spelled}, terms))

    def buckets(
        self,
        policy: str = "auto",
        *,
        boundaries: Sequence[int] | None = None,
        length: ArrayLike | str | Callable[[dict[str, Any]], int] | None = None,
    ) -> Pipeline[Batch]:
        """Batches of similar lengths, by ``policy``: ``"auto"``, ``"optimal:BUCKETS"``, ``"tokens:MAX"``, ``"pack:ROW_LENGTH"`` or
        ``"none"``; or the ``boundaries`` of the buckets. No example is dropped, and every epoch is shuffled again.

        Lengths are tokens where text is decoded, and bytes of records without fields, unless ``length`` gives them: an array
        with one a record, the name of a field, or a function of the stored fields of a sample. Other data needs it, and so
        does what functions of `map` make, which is padded unless ``.batch(collate=…)`` says otherwise. A field or function
        needs a pass over the data when the pipeline is first used.

        Of packed samples, one-dimensional numbers are in the rows. Other fields are carried: one value a sample, in the order
        of the rows, ``batch["x_row_samples"]`` of them a row.
        """
        if boundaries is not None:
            policy = "static:" + ",".join(str(int(end)) for end in boundaries)
        config = {"buckets": policy}
        if isinstance(length, str):
            return self._then(Buckets("buckets", {**config, "lengths": f"field:{length}"}))
        if length is None:
            return self._then(Buckets("buckets", config))
        lengths = length if callable(length) else checked_lengths(length)
        return self._then(Buckets("buckets", {**config, "lengths": None}, lengths=lengths))

    # Execution.

    def memory(self, size: int | str) -> Pipeline[T]:
        """Memory for look-ahead, echoed examples and batches together: ``"512MiB"``, ``"2GB"`` or bytes. By default
        1 GiB, or a quarter of what the machine or container has, over its ranks, if that is less."""
        return self._then(Step("memory", terms={"memory_bytes": parse_bytes(size)}))

    def threads(self, threads: int, *, read: int | None = None) -> Pipeline[T]:
        """Threads that decode and augment (as many as there are processors), and threads that read (2, or 8 for data
        on a server)."""
        config = {} if read is None else {"read_threads": whole("read", read, 1)}
        return self._then(Step("threads", config, {"threads": whole("threads", threads, 1)}))

    def access(self, path: str) -> Pipeline[T]:
        """How records are read: ``"auto"``, ``"direct"``, ``"window"`` or ``"scatter"``. The order stays the same."""
        return self._then(Step("access", terms={"access": path}))

    def peers(
        self,
        memory: int | str | None = None,
        *,
        mode: str = "ordered",
        unit_bytes: int | str = "1MiB",
        near: bool = False,
    ) -> Pipeline[T]:
        """Reads the data through the memory of all ranks (DeepIO): each rank loads a part of it once, and the others read
        that part from its memory, over MPI under ``mpiexec`` and ``srun``, otherwise over TCP. One rank keeps the data in its
        own memory. All ranks begin their loops together.

        ``memory`` is that of all ranks together, a size or a share of the data such as ``"1/4"``; by default it holds all of
        it. Where it does not, ``mode="ordered"`` keeps the order and reads the rest from the files, one by one;
        ``"opportunistic"`` draws from what is in memory, load by load (``"opportunistic:LOADS"`` an epoch), and reads
        ``unit_bytes`` at once. ``near`` gives an example to the rank that holds it: the batches of all ranks together stay
        the same, their parts do not.
        """
        share_of = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", str("1/1" if memory is None else memory))
        part = float(share_of[1]) / float(share_of[2]) if share_of and int(share_of[2]) else None
        if share_of and not (part and part <= 1):
            raise ConfigurationError(f"`memory` is {memory!r}; give a share of the data from above 0 to 1/1, or a size")
        config = {
            "memory_bytes": 0 if part else parse_bytes(memory or 0),
            "memory_share": part,
            "mode": mode,
            "unit_bytes": parse_bytes(unit_bytes),
            "near": bool(near),
        }
        return self._then(Step("peers", terms={"peers": config}))

    def shard(self, rank: int, world_size: int) -> Pipeline[T]:
        """This process takes the share of ``rank``, of ``world_size`` ranks, of every batch. By default it is the rank of
        ``torch.distributed`` if that is initialised when a loop starts, else the rank in the launcher's environment
        (torchrun, Ray Train, Open MPI, MPICH, a step of Slurm)."""
        if not 0 <= rank < world_size:
            raise ConfigurationError(f"there is no rank {rank} of {world_size}; ranks are 0 to {world_size - 1}")
        return self._then(Shard("shard", world=World(int(rank), int(world_size), "shard()")))

    # For other libraries.

    def include(self, *fields: str) -> Pipeline[T]:
        """Adds fields that say which records a batch has: ``"ids"``, ``"epoch"`` and ``"step"`` as int64 [examples], and
        ``"path"``, the file of each, as text. They are fields like any other, so no library loses them. (The names of tar
        samples come with ``.decode("image=jpg,key=__key__")``.)

        Of packed rows, ``"segment_ids"`` int32 [rows, length] numbers the samples of a row from 1 and is 0 in padding,
        ``"position_ids"`` counts from 0 in each sample, and ``"cu_seqlens"`` int32 has the bounds of samples and padding in all
        rows one after another, as attention over variable lengths takes them."""
        for field in fields:
            if field not in DESCRIBED + PACKED:
                raise ConfigurationError(f"there is no field {field!r} to include; use {', '.join(DESCRIBED + PACKED)}")
        return self._then(Include("include", fields=fields))

    def torch(
        self, device: Any = None, *, channels_first: bool = True, layout: str | Mapping[str, str] = "auto"
    ) -> Pipeline[Batch]:
        """Batches of PyTorch tensors, which share the memory of the arrays; copied through pinned memory to
        ``device`` if one is given.

        Pictures are ``[examples, channels, height, width]`` as nets take them, in memory as they were, which PyTorch calls
        ``channels_last``; ``channels_first=False`` leaves dimensions as they are. They stay uint8 unless the pipeline
        normalises. Indices of words become int64.

        ``layout`` says how arrays named ``image…`` or ``mask…`` are stored, ``"hwc"`` or ``"chw"``, for all or in a dict by field.
        ``"auto"`` takes a last dimension of 1, 3 or 4 for the channels; a first one where the last is none of these, with a
        warning unless a function of `map` may have made it; and refuses others.
        """
        from .torch import to_torch

        return self.map_batches(ToTensors(to_torch(device), channels_first, layout))

    def tuples(self, *fields: str) -> Pipeline[tuple[Any, ...]]:
        """Batches as tuples of these fields, for loops such as ``for images, labels in batches``."""
        if not fields:
            raise ConfigurationError('name the fields of the tuples, as in .tuples("image", "label")')
        return self.map_batches(Tuples(fields))

    def jax(self, device: Any = None) -> Pipeline[Batch]:
        """Batches of JAX arrays."""
        from .jax import to_jax

        return self.map_batches(to_jax(device))

    def tf(self) -> Any:
        """The batches as a ``tf.data.Dataset``; each iteration of it is an epoch."""
        from .tf import to_dataset

        return to_dataset(self)

    def dataset(self, epoch: int | None = None) -> Dataset:
        """The same samples by index, for a ``torch.utils.data.DataLoader`` or a custom sampler."""
        check_by_index(self)
        return Dataset(self, epoch)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """PyTorch's loaders ask whether this is an ``IterableDataset``; it is, once they are imported."""
        data = sys.modules.get("torch.utils.data")
        if data is None or not hasattr(data, "IterableDataset"):
            return Pipeline
        self._told.share()  # before workers are started
        # accelerate asks before it divides batches itself, or has rank 0 read all; in newer PyTorch through `abc`.
        asks = sys._getframe(1)
        if asks.f_globals.get("__name__") == "abc" and asks.f_back is not None:
            asks = asks.f_back
        # Its `skip_first_batches` takes loaders of either kind.
        if asks.f_globals.get("__name__") == "accelerate.data_loader" and asks.f_code.co_name != "skip_first_batches":
            self._divided = True
        return iterable_dataset(Pipeline, data.IterableDataset)

    @property
    def sampler(self) -> Any:
        """None: accelerate's ``skip_first_batches``, by which Trainers resume, asks for it."""
        raise AttributeError(
            "a pipeline has no `sampler` to skip batches with: load its state with .load_state_dict(), for a Trainer also with "
            "ignore_data_skip=True, as examples/hf_trainer.py does"
        )

    # Running it.

    def peek(self, record: int) -> dict[str, Any]:
        """One record of the data after decoding and augmentation, for inspection."""
        return Dataset(self, 0).peek(record)

    def __getitem__(self, record: Any) -> Any:
        raise TypeError(
            f"a pipeline is iterated, not indexed; use .peek({record!r}) to look at one record, or .dataset() for samplers and "
            "loaders that index records"
        )

    def __iter__(self) -> Loop[T]:
        return Loop(self._running(), self._world)

    def progress(self, every: float = 0.5) -> Iterator[T]:
        """Runs an epoch with progress on standard error, in terminals and notebooks, and the verdict at its end."""
        return with_progress(self, None if self._repeats_by_waiting() else len(self), self._running(), every)

    def __len__(self) -> int:
        """Number of batches of the current or next epoch; of samples of this rank where there are no batches."""
        run = self._running()
        epoch = run.current_epoch()
        steps = run.native.steps(epoch)
        if self._repeats_by_waiting():
            raise TypeError(
                f"the length of an epoch is not known with echo('auto'), which adds repeats to its {steps} batches where the loop "
                "waits; give schedules a number of steps, or repeat each example equally often, as with echo(2)"
            )
        if run.batched or steps == 0:
            return steps
        rank, size, _ = self._world()
        return run.native.share_len(epoch, rank, size)

    @property
    def records(self) -> int:
        """Number of records of the data that `filter`, `take`, `skip` and `split` leave."""
        ids = self._chosen_ids()
        return len(self._running().source) if ids is None else len(ids)

    @property
    def classes(self) -> list[Any]:
        """The classes in the order of their indices: names, or what ``classes`` of `load` lists; otherwise empty
        where labels are numbers."""
        return class_names(self._running().source, bool(self._steps.terms.get("by_class")))

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
        """Record ids of a ``step`` of an ``epoch`` over all ranks, computed without reading anything."""
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
        settings = {**self._steps.terms, **self._full_config()}
        return _pelton.without_secrets(f"pelton.Pipeline({self._data['paths']}, {settings})")

    def __reduce__(self) -> tuple[Any, ...]:
        world = self._inherited if self._divided else handed_on() or self._inherited
        return _restored, ({**self.__dict__, "_run": None, "_inherited": world},)

    def _world(self) -> World:
        if self._divided:
            return ALONE
        return self._steps.world or find_world(self._inherited)

    def _then(self, step: Step) -> Pipeline[Any]:
        made: Pipeline[Any] = copy.copy(self)
        made._told, made._divided, made._run = Told(), False, None
        made._steps = self._steps.then(step)
        return made

    def _decoded(self, config: Mapping[str, Any]) -> Pipeline[Any]:
        """All records in order with these settings alone, read by this process."""
        terms = {name: value for name, value in self._steps.terms.items() if name in ("threads", "by_class")}
        decode = Decode("decode", config, terms, vocabulary=self._steps.vocabulary)
        made: Pipeline[Any] = Pipeline(self._data, Steps((decode,))).shard(0, 1)
        made._items, made._columns = self._items, self._columns
        return made

    def _repeats_by_waiting(self) -> bool:
        return str(self._steps.config.get("echo")).startswith("auto")

    def _chosen_ids(self) -> np.ndarray | None:
        """Ids of the records that take part; ``None`` where all do."""
        return self._running().kept

    def _batch_columns(self) -> dict[str, Any]:
        """Columns that functions and augmentation have not seen."""
        return {} if self._steps.has("map") or self._stages_columns() else self._columns

    def _stages_columns(self) -> bool:
        """Whether columns have boxes or arrays that may be pictures, which augmentation moves or refuses, or a rule of collation."""
        moved = bool(self._steps.augment) and any("box" in name or has_planes(column) for name, column in self._columns.items())
        return moved or any(f",{name}=" in self._steps.config.get("collate", "") for name in self._columns)

    def _filled(self, batch: Batch) -> Batch:
        for name, column in self._batch_columns().items():
            batch[name] = taken(free(name, batch, column), batch.ids)
        if self._steps.has("windows") and "tokens" in batch:
            tokens = np.asarray(batch["tokens"], np.int64)
            if self._steps.has_targets:
                del batch["tokens"]
                batch["input"], batch["target"] = tokens[:, :-1], tokens[:, 1:]
            else:
                batch["tokens"] = tokens
        included = self._steps.included
        return described(batch, included, self._running()) if included else batch

    def _identity(self) -> bytes:
        """Tells the records and what is done with them from others."""
        state = self._running().beginning(0)
        return json.dumps([state, repr(self)], sort_keys=True, default=str).encode()

    def _full_config(self) -> dict[str, Any]:
        steps, config = self._steps, self._steps.config
        augment = {"augment": steps.augment} if steps.augment else {}
        rules = config.get("collate", "auto")
        pads = "buckets" in config and steps.has("map") and rules == "auto"
        if rules.startswith("auto"):
            added = {} if self._batch_columns() else dict.fromkeys(ragged(self._columns), "ragged")
            if self._items is not None and not (steps.augment or steps.has("map")):
                added.update(dict.fromkeys(self._items.stacked, "stack"))
            rules = ",".join([rules, *(f"{name}={rule}" for name, rule in added.items() if f",{name}=" not in rules)])
        return {**config, **augment, "collate": "pad" if pads else rules}

    def _running(self) -> Run:
        while (run := self._opened_here()) is None:
            self._open_once()
        return run

    def _opened_here(self) -> Run | None:
        """What this process has opened: a forked process opens the data again."""
        run = self._run
        return run if run is not None and run.process == os.getpid() else None

    def _open_once(self) -> None:
        """Opens it, or waits for the thread that does. A thread whose functions another opening waits for opens it in any case."""
        if any(self is other for other in here.opening):
            raise ConfigurationError(
                "a function that .filter() or .buckets(length=…) calls uses the pipeline that is opened by calling it; give it "
                "another pipeline, or what it needs of this one"
            )
        event, key = threading.Event(), (os.getpid(), id(self))
        first = _opening.setdefault(key, event)
        if first is not event and not here.opening:
            first.wait()
            return
        try:
            made = None if self._opened_here() else self._opened()
            # Another thread may have been faster.
            if not self._opened_here():
                self._run = made
        finally:
            if first is event:
                del _opening[key]
                event.set()

    def _opened(self) -> Run:
        check_has_lengths(self)
        steps = self._steps
        before, behind = steps.functions(True), steps.functions(False)
        added: list[Calls] = []
        if self._columns and (before or behind or self._stages_columns()):
            added.append(WithColumns(self._columns))
        first = bool(before) or self._stages_columns()
        caches = steps.of(Cache)
        if not steps.augment and not caches:
            before, behind, first = [], [*before, *behind], False
        workers = sum(count for maps in (before, behind) for count, _, _ in grouped(maps))
        terms = {
            "batch": None,
            "memory_bytes": _pelton.memory_budget(1 << 30, ranks_here()),
            # A thread waits for each worker process.
            "threads": len(os.sched_getaffinity(0)) + workers,
            "access": "auto",
            **steps.terms,
        }
        if "peers" in terms:
            terms["ranks"] = self._world().size
            if self._items is not None:
                raise ConfigurationError("items are made by this program, so .peers() has nothing to read; leave it out")
        chains: list[Chain] = []
        if self._items is None:
            source = _pelton.Source(json.dumps(self._data))
        else:
            refused = [name for name in ("sample", "keep_classes") if steps.config.get(name) and steps.draws is None]
            if refused:
                raise ConfigurationError("classes of items are not known beforehand; choose records with .filter() or .sample(weights=…)")
            if steps.config.get("planar") and not steps.augment:
                raise ConfigurationError("items are as a program made them, so .planar() does nothing; .torch() has channels first")
            chains.append(Chain([self._items]))
            with opening(self):
                known = self._items.known
            source = _pelton.Source(json.dumps(self._data), chains[0], known, self._items.rows())
        warn_of(source.notes)
        warn_of_other_classes(self._data, source)
        lengths, config = steps.lengths, self._full_config()
        if self._items is not None and "lengths" in config:
            lengths = LengthOf(config.pop("lengths").removeprefix("field:"))
        words = given_words(steps.vocabulary)
        with opening(self):
            if callable(lengths):
                lengths = lengths_by(lengths, self, len(source))
            kept = chosen(self, source)
        check_listed(steps, kept)
        native = _pelton.Pipeline(source, json.dumps(config), json.dumps(terms), steps.draws, lengths, words, kept)
        warn_of_other_words(self._data, steps.config, native, words is not None)
        batch_maps = [bound(function, self, native) for function in steps.batch_functions]
        pools: list[Processes] = []
        whole = source.whole_labels or bool(terms.get("by_class"))
        for maps, is_first in ((before, True), (behind, False)):
            with_columns = added if is_first is first else []
            if maps or with_columns:
                caller = caller_of(maps, pools, with_columns)
                chains.append(caller)
                at_read = is_first and bool(steps.augment)
                native = native.with_functions(caller, at_read, whole if self._items is None else None)
            if caches and is_first:
                native = native.with_kept(caches[0].bytes, bool(steps.augment))
        ids = None if kept is None else np.flatnonzero(kept)
        fill = self._filled if self._batch_columns() or steps.included or steps.has("windows") else None
        run = Run(source, native, ids, fill, batch_maps, steps.batched, self._told, pools, chains)
        run.peers = "peers" in terms
        return run


# The pipelines that are being opened, by process and id.
_opening: dict[tuple[int, int], threading.Event] = {}


def _restored(attributes: dict[str, Any]) -> Pipeline[Any]:
    made = object.__new__(Pipeline)
    made.__dict__.update(attributes)
    return made
