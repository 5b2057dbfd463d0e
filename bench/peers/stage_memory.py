"""Peak resident memory of pipelines with stages beside what it may be: the budget and 100 MiB. Echo with a
consumer of 20 ms a batch where its factor follows the waiting.

    python3 bench/peers/stage_memory.py [SAMPLES]
"""

import subprocess
import sys

import peers
import samples

BUDGETS = ["64MiB", "256MiB", "1GiB"]
OTHER = 100 << 20
COLUMNS = "case,budget,memory_bytes,peak_rss_bytes,above_budget_mib,within,wall_s,examples,note".split(",")


def cases(count):
    photos = samples.clothing_tar(count)
    images = [photos, "--decode", "jpg", "--augment", "rrc:224,flip", "--batch", 64, "--threads", 2]
    words = [*sorted((peers.DATA / "ptb").glob("*.txt")), "--decode", "words", "--batch", 32]
    small = [samples.cifar(650_000), "--format", "cifar10", "--batch", 64]
    large = [samples.pictures(18_000)[0], "--batch", 64]
    tar, text = samples.tiny_tar(1_000_000), samples.tiny_text(1_000_000)
    return {
        "photos": images,
        "photos as floats": [*images[:4], "rrc:224,flip,normalise", *images[5:]],
        "photos, echo before:2": [*images, "--echo", "before:2"],
        "photos, echo after:2": [*images, "--echo", "after:2"],
        "photos, echo batch:2": [*images, "--echo", "batch:2"],
        "photos, echo auto, 20 ms a batch": [*images, "--echo", "auto", "--compute-ms", 20],
        "photos, echo before:2, batches of 512": [*images, "--batch", 512, "--echo", "before:2"],
        "photos decoded, ragged": [photos, "--decode", "jpg", "--batch", 64, "--collate", "ragged", "--threads", 2],
        "photos not decoded, ragged": [photos, "--batch", 64, "--collate", "ragged"],
        "words": [*words, "--collate", "pad"],
        "words, buckets auto": [*words, "--buckets", "auto"],
        "words, buckets optimal:8": [*words, "--buckets", "optimal:8"],
        "words, buckets tokens:2000": [*words, "--buckets", "tokens:2000"],
        "words, buckets pack:128": [*words, "--buckets", "pack:128"],
        "words, buckets auto, echo before:2": [*words, "--buckets", "auto", "--echo", "before:2"],
        "3073 bytes, stack": [*small, "--collate", "stack"],
        "110592 bytes, stack": [*large, "--collate", "stack"],
        "110592 bytes, stack, cold": [*large, "--collate", "stack", "--cold"],
        "110592 bytes, direct": [*large, "--collate", "stack", "--io", "direct"],
        "a million in tar": [tar, "--batch", 64, "--collate", "ragged"],
        "a million lines": [text, "--batch", 64, "--collate", "ragged"],
        "a million lines, words": [text, "--batch", 64, "--decode", "words", "--collate", "pad"],
        "a million lines, buckets auto": [text, "--batch", 64, "--decode", "words", "--buckets", "auto"],
        "a million lines, echo after:2": [text, "--batch", 64, "--decode", "words", "--collate", "pad", "--echo", "after:2"],
    }


def once(arguments):
    """Flags of which a later one replaces an earlier one."""
    flags = [str(part) for part in arguments]
    for name in ["--batch"]:
        while flags.count(name) > 1:
            at = flags.index(name)
            del flags[at : at + 2]
    return flags


def main():
    count = int((sys.argv[1:] or ["4000"])[0])
    results = peers.Results("stage_memory", COLUMNS, "allowed: the budget and 100 MiB")
    outside = 0
    for case, arguments in cases(count).items():
        for budget in BUDGETS:
            command = [str(peers.PELTON), "bench", *once(arguments), "--memory", budget, "--json", "--cache-dir", str(peers.CACHE)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=peers.WORK)
            if done.returncode:
                lines = [line for line in done.stderr.strip().splitlines() if line.startswith("pelton")]
                results.add(case=case, budget=budget, note=f"rc {done.returncode}: {(lines or [done.stderr[-200:]])[-1][:300]}")
                continue
            figures = peers.json.loads(done.stdout)
            above = figures["peak_rss_bytes"] - figures["memory_bytes"]
            within = above <= OTHER
            outside += not within
            results.add(
                case=case, budget=budget, above_budget_mib=above / (1 << 20), within=within,
                note=figures["verdict"] if within else " ".join(command[1:]),
                **{key: figures[key] for key in ["memory_bytes", "peak_rss_bytes", "wall_s", "examples"]},
            )
    results.note(f"{outside} of {len(BUDGETS) * len(cases(count))} runs above what is allowed")


main()
