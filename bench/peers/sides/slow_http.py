"""Serves a folder over HTTP/1.1 on the loopback, with byte ranges and a latency before each answer as object stores have.
What it answers is also enough for reading objects of a bucket of that name by the protocol of S3. Prints its address.

    python3 bench/peers/sides/slow_http.py FOLDER LATENCY_MS
"""

import http.server
import os
import re
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = os.path.normpath(self.path.partition("?")[0]).lstrip("/").removeprefix("bucket/")
        path = os.path.join(sys.argv[1], name)
        time.sleep(float(sys.argv[2]) / 1000)
        if not os.path.isfile(path):
            self.send_error(404)
            return
        size = os.path.getsize(path)
        begin, end = 0, size
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked and asked[1]:
            begin, end = int(asked[1]), min(size, int(asked[2]) + 1 if asked[2] else size)
        elif asked:
            begin = max(0, size - int(asked[2]))
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{size}-{os.stat(path).st_mtime_ns}"')
        self.send_header("Last-Modified", self.date_time_string(os.path.getmtime(path)))
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        if path.endswith(".json"):  # else clients that read an index and then fork share the connection
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "GET":
            self.wfile.flush()
            with open(path, "rb") as file:
                while begin < end:
                    begin += os.sendfile(self.connection.fileno(), file.fileno(), begin, end - begin)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
