"""Memory and end of `pelton serve` under clients with the largest legal requests.

    python3 bench/serve_limits.py PELTON RUN WIDTH ROWS K [--clients 200] [--seconds 6] [--padded]

RUN is a run folder of a net that takes vectors of WIDTH numbers. Every client sends ROWS vectors and asks for K classes of
each, again and again; --padded fills bodies with blanks to 8 MiB. Prints the memory of the idle server, its peak, the
statuses, connections that broke before the end, and the seconds from SIGTERM to the end of the process.
"""

import argparse
import collections
import json
import re
import signal
import socket
import subprocess
import threading
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pelton")
    parser.add_argument("run")
    for name in ("width", "rows", "k"):
        parser.add_argument(name, type=int)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--padded", action="store_true")
    return parser.parse_args()


def memory_of(process, name):
    with open(f"/proc/{process.pid}/status") as status:
        return int(re.search(rf"{name}:\s+(\d+)", status.read()).group(1)) / 1024


def ask(stream, request):
    """Status, length of the answer, and whether the connection stays."""
    stream.write(request)
    stream.flush()
    status = int(stream.readline().split()[1])
    length, stays = 0, True
    while line := stream.readline().strip().lower():
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        stays = stays and line != b"connection: close"
    return status, len(stream.read(length)), stays


def client(address, request, end, seen, largest):
    stream = None
    while time.monotonic() < end:
        try:
            if stream is None:
                stream = socket.create_connection(address, timeout=30).makefile("rwb")
            status, length, stays = ask(stream, request)
            seen[status] += 1
            largest[0] = max(largest[0], length)
            if not stays:
                stream = None
            if status != 200:
                time.sleep(0.2)
        except (OSError, IndexError):
            # When the server ends, so do its connections.
            if time.monotonic() < end - 0.5:
                seen["broken"] += 1
            stream = None
            time.sleep(0.1)


def main():
    given = arguments()
    process = subprocess.Popen([given.pelton, "serve", given.run, "--port", "0"], stdout=subprocess.PIPE, text=True)
    host, port = process.stdout.readline().strip().removeprefix("listening on http://").split(":")
    time.sleep(0.5)
    idle = memory_of(process, "VmRSS")
    body = json.dumps({"features": [[0.12345] * given.width] * given.rows, "k": given.k}).encode()
    if given.padded:
        body = body.ljust(8 << 20)
    head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    end = time.monotonic() + given.seconds
    seen, largest = collections.Counter(), [0]
    work = ((host, int(port)), head + body, end, seen, largest)
    for _ in range(given.clients):
        threading.Thread(target=client, args=work, daemon=True).start()
    time.sleep(given.seconds - 0.4)
    peak = memory_of(process, "VmHWM")
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait()
    took = time.monotonic() - began
    print(
        f"{given.clients} clients, bodies of {len(body)} bytes, answers of {largest[0]}: idle {idle:.1f} MiB, "
        f"peak {peak:.1f} MiB ({peak / idle:.2f} times), {dict(seen)}; ended {took:.2f} s after SIGTERM"
    )


if __name__ == "__main__":
    main()
