"""What --access auto picks on each of the four shapes, next to every path measured cold at memory 1/8.

    python3 bench/peers/access_choice.py [SPEC…]
"""

import sys

import peers

SPECS = ["demo:webspam:10000", "demo:epsilon:20000", "demo:kdd:1000000", "demo:higgs:1000000"]
ROUNDS = 2
EPOCHS = "3"


def main():
    columns = "case,access_asked,access,round,used_bytes_per_s,read_amplification,wall_s,cpu_s,verdict".split(",")
    results = peers.Results("access_choice", columns, f"memory 1/8, {EPOCHS} epochs, direct I/O, file dropped from the page cache")
    for spec in sys.argv[1:] or SPECS:
        path = peers.demo_files(spec)[0]
        seconds = {}
        for number in range(ROUNDS):
            for asked in ["auto", "window", "scatter", "direct"]:
                if asked == "direct" and number and spec.split(":")[1] in ("higgs", "kdd"):
                    continue  # one read a row takes minutes and is never near the best
                options = f"--order full --batch 512 --access {asked} --memory 1/8 --io direct --cold --epochs {EPOCHS}"
                if "webspam" in spec:
                    options = options.replace("512", "64")
                figures = peers.pelton("bench", path, *options.split())
                seconds.setdefault(asked, []).append(figures["wall_s"])
                results.add(case=spec[5:], access_asked=asked, round=number, used_bytes_per_s=figures["bytes_per_s"], **{
                    key: figures[key] for key in columns if key in figures
                })
        middle = {asked: peers.median(runs) for asked, runs in seconds.items()}
        best = min((wall, asked) for asked, wall in middle.items() if asked != "auto")
        results.add(case=spec[5:], access_asked=f"auto over best ({best[1]})", wall_s=middle["auto"] / best[0])


main()
