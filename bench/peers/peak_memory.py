"""Peak resident memory of training beside what it may be: budget + α (4 bytes a row) + w (4 bytes a
feature) + location table + 64 MiB, for every order on every access path, at memory 1/8 of the data.

    python3 bench/peers/peak_memory.py
"""

import subprocess

import peers

ORDERS = ["full", "sequential", "page:4096", "queue:10000", "queue:10000:shuffled", "block:40", "block:40:permute"]
PATHS = ["direct", "window", "scatter", "auto"]
OTHER = 64 << 20


def main():
    columns = "case,order,access,memory,skip_cache,peak_rss_bytes,allowed_bytes,share,wall_s,note".split(",")
    results = peers.Results("peak_memory", columns, "2 epochs, 1 inner pass; w is one vector, averages and snapshots are in the budget")
    for spec in ["demo:higgs:500000", "demo:kdd:200000", "demo:epsilon:20000"]:
        path = peers.demo_files(spec)[0]
        table = peers.pelton("index", path)["index_bytes"]
        cases = [(order, access, []) for order in ORDERS for access in PATHS]
        cases += [("full", access, ["--skip", "--cache-fraction", "0.5"]) for access in ["direct", "window", "auto"]]
        for order, access, more in cases:
            command = [peers.PELTON, "train", "linear", path, "--order", order, "--access", access, "--memory", "1/8"]
            command += ["--epochs", "2", "--inner-passes", "1", "--overwrite", "--out", peers.WORK / "runs/peak", "--json", *more]
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=peers.WORK)
            row = dict(case=spec[5:], order=order, access=access, skip_cache=bool(more))
            if done.returncode:
                results.add(**row, note=done.stderr.strip().splitlines()[-1][:160])
                continue
            figures = peers.json.loads(done.stdout)
            # Long dense rows are kept as codes, with two tables of 4 bytes a row.
            codes = 8 * figures["records"] if "epsilon" in spec else 0
            allowed = figures["memory_bytes"] + 4 * figures["records"] + 4 * figures["features"] + table + codes + OTHER
            peak = figures["peak_rss_bytes"]
            results.add(
                **row, memory=figures["memory_bytes"], peak_rss_bytes=peak, allowed_bytes=allowed,
                share=peak / allowed, wall_s=figures["wall_s"], note=figures["access"],
            )


main()
