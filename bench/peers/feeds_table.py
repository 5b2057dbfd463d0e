"""The table and the chart of feeds.py, from its raw rows: medians over the rounds.

    python3 bench/peers/feeds_table.py [bench/results/peers.csv [docs/feeds.svg]]

Prints Markdown, a table a workload, and writes the chart.
"""

import csv
import html
import pathlib
import statistics
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
NAMES = {
    "pelton": "Pelton", "pelton-torch": "Pelton, tensors", "pelton-none": "Pelton, no buckets", "torch-2": "PyTorch, 2 workers",
    "torch-0": "PyTorch, no workers", "grain": "Grain, ArrayRecord", "litdata": "LitData", "streaming": "MosaicML Streaming",
    "webdataset": "WebDataset", "spdl": "SPDL", "tfdata": "tf.data", "hf": "HF datasets", "dali": "DALI (CPU)",
    "floor-numpy": "floor: NumPy index, disk", "floor-tmpfs": "floor: NumPy index, tmpfs", "floor-pread": "floor: pread in C",
    "floor-map": "floor: memcpy in C", "floor-wrapper": "floor: hand-over of PyTorch's workers", "floor-decode": "floor: torchvision, 1 thread",
}  # fmt: skip
TITLES = {
    "records": "Records of 3072 bytes", "tiny": "Records of 17 bytes", "tar": "Tar samples of 110 KB", "photos": "Photos, decoded to 224²",
    "tfrecord": "TFRecords of 120 bytes, parsed", "text": "Lines in batches of about one length", "cloud": "Tar samples over HTTP, 20 ms",
    "records-cold": "Records of 3072 bytes, cold", "tar-cold": "Tar samples of 110 KB, cold",
}  # fmt: skip
GLOBAL = 0.9995  # exact levels beyond are of a global shuffle
ROW, WIDTH, NAME, PANEL, GAP = 17, 880, 150, 425, 26


def medians(path):
    """Of each workload and side: the median of every figure, or the last note."""
    rows = [line for line in pathlib.Path(path).read_text().splitlines() if not line.startswith("#")]
    found = {}
    for row in csv.DictReader(rows):
        found.setdefault(row["workload"], {}).setdefault(row["side"], []).append(row)
    return {workload: {side: merged(rows) for side, rows in sides.items()} for workload, sides in found.items()}


def merged(rows):
    out = {"note": rows[-1]["note"]}
    for key in rows[0]:
        try:
            out[key] = statistics.median(float(row[key]) for row in rows if row[key])
        except (ValueError, statistics.StatisticsError):
            continue
    return out


def number(value, digits=3):
    """Three digits, without exponents."""
    if value is None:
        return ""
    if value >= 1000:
        size = 10 ** max(0, len(str(int(value))) - digits)
        return f"{round(value / size) * size:,.0f}".replace(",", " ")
    return f"{value:.{digits}g}"


def level(value):
    return "" if value is None else "1" if value >= GLOBAL else f"{value:.2f}"


def table(workload, sides):
    ours = sides.get("pelton", {}).get("examples_per_s")
    has_padding = any("padded" in row for row in sides.values())
    head = ["", "examples/s", "Pelton is", "CPU µs each", "first batch, s", "after imports, s", "memory, MiB", "copying, s", "RL*", "classes"]
    head += ["padding"] if has_padding else []
    lines = [f"**{TITLES.get(workload, workload)}**", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    order = sorted(sides.items(), key=lambda pair: (pair[0].startswith("floor"), -pair[1].get("examples_per_s", 0)))
    for side, row in order:
        rate = row.get("examples_per_s")
        if rate is None:
            lines.append(f"| {NAMES.get(side, side)} | {row['note']} |" + " |" * (len(head) - 2))
            continue
        cells = [NAMES.get(side, side), number(rate), f"{ours / rate:.2f}×" if ours else "", number(row["cpu_us_per_example"])]
        floor = side.startswith("floor")
        cells += ["", ""] if floor else [f"{row['first_batch_s']:.2f}", f"{row['first_after_imports_s']:.2f}"]
        cells += [number(row["peak_own_bytes"] / 2**20), f"{row['convert_s']:.1f}" if "convert_s" in row else ""]
        cells += ["" if floor else level(row.get("rl_exact")), number(row.get("classes"))]
        cells += [f"{100 * row['padded']:.1f} %" if "padded" in row else ""] if has_padding else []
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def panel(workload, sides, left, top):
    """Bars of one workload; the height it takes and its elements."""
    bars = [(side, row) for side, row in sides.items() if row.get("examples_per_s") and not side.startswith("floor")]
    bars.sort(key=lambda pair: -pair[1]["examples_per_s"])
    most = bars[0][1]["examples_per_s"] if bars else 1
    out = [f'<text class="title" x="{left}" y="{top + 12}">{html.escape(TITLES.get(workload, workload))}</text>']
    for at, (side, row) in enumerate(bars, 1):
        y = top + 4 + at * ROW
        long = max(1, (PANEL - NAME - 70) * row["examples_per_s"] / most)
        kind = "ours" if side.startswith("pelton") else "full" if row.get("rl_exact", 0) >= GLOBAL else "part"
        out.append(f'<text class="name" x="{left + NAME - 6}" y="{y + 11}">{html.escape(NAMES.get(side, side))}</text>')
        out.append(f'<rect class="{kind}" x="{left + NAME}" y="{y + 1}" width="{long:.1f}" height="{ROW - 4}" rx="2"/>')
        out.append(f'<text class="value" x="{left + NAME + long + 5:.1f}" y="{y + 11}">{number(row["examples_per_s"])}</text>')
    return ROW * (len(bars) + 1) + GAP, out


STYLE = """text{font:11px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:12px}.name{text-anchor:end}
.ours{fill:#1f6feb}.full{fill:#8c959f}.part{fill:#d0d7de}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.full{fill:#8b949e}.part{fill:#484f58}.ours{fill:#58a6ff}}"""


def chart(found):
    out, heights = [], [24, 24]
    for at, (workload, sides) in enumerate(found.items()):
        column = at % 2
        height, elements = panel(workload, sides, column * (PANEL + 20), heights[column])
        heights[column] += height
        out += elements
        if column:
            heights = [max(heights)] * 2
    legend = "Examples a second, two cores. Blue: Pelton. Dark: others that shuffle all data. Light: others that shuffle within a buffer or chunk."
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {max(heights)}" role="img" aria-label="{legend}">'
    return "\n".join([head, f"<style>{STYLE}</style>", f'<text x="0" y="12">{legend}</text>', *out, "</svg>", ""])


def main():
    paths = sys.argv[1:] + [REPOSITORY / "bench/results/peers.csv", REPOSITORY / "docs/feeds.svg"][len(sys.argv[1:]) :]
    found = medians(paths[0])
    for workload, sides in found.items():
        print(table(workload, sides))
    pathlib.Path(paths[1]).write_text(chart(found))


main()
