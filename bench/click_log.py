"""A click log as Criteo's: 13 numbers and 26 categories a row, as CSV and in Vowpal Wabbit's format.

python bench/click_log.py ROWS FOLDER      writes train.csv, train.vw, test.csv and test.vw (a tenth of the rows)

Categories have 10 to 1 000 000 values, drawn with the frequencies of a power law, and each value has an effect of its own
on the odds of a click; a quarter of the rows are clicks. Values are hashes in hexadecimal, as Criteo's are.
"""

import pathlib
import sys

import numpy as np

NUMBERS, SIZES = 13, np.geomspace(10, 1_000_000, 26).astype(int)
AT_A_TIME = 100_000


def main() -> None:
    rows, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    random = np.random.default_rng(0)
    effects = [random.normal(0, 0.25, size) for size in SIZES]
    slopes = random.normal(0, 0.2, NUMBERS)
    for name, count in [("train", rows), ("test", rows // 10)]:
        with open(folder / f"{name}.csv", "w") as csv, open(folder / f"{name}.vw", "w") as vw:
            header = ["click"] + [f"I{i + 1}" for i in range(NUMBERS)] + [f"C{i + 1}" for i in range(len(SIZES))]
            csv.write(",".join(header) + "\n")
            for start in range(0, count, AT_A_TIME):
                write(random, min(AT_A_TIME, count - start), effects, slopes, csv, vw)


def write(random, count, effects, slopes, csv, vw) -> None:
    numbers = np.round(np.log1p(random.pareto(1.0, (count, NUMBERS)) * 3), 3)
    places = [np.minimum((size ** random.random(count) - 1).astype(int), size - 1) for size in SIZES]
    odds = numbers @ slopes + sum(effect[place] for effect, place in zip(effects, places)) - 1.5
    clicks = random.random(count) < 1 / (1 + np.exp(-odds))
    texts = [[f"{(p * 2654435761 + 97 * i) & 0xFFFFFFFF:08x}" for p in place.tolist()] for i, place in enumerate(places)]
    for row, click in enumerate(clicks.tolist()):
        values = [f"{value:g}" for value in numbers[row]]
        cells = [text[row] for text in texts]
        csv.write(f"{int(click)},{','.join(values)},{','.join(cells)}\n")
        named = " ".join(f"I{i + 1}:{value}" for i, value in enumerate(values))
        keyed = " ".join(f"C{i + 1}={cell}" for i, cell in enumerate(cells))
        vw.write(f"{1 if click else -1} |n {named} |c {keyed}\n")


main()
