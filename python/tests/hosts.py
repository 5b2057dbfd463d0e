"""Hosts on one machine: namespaces with a network, names, folders and shared memory of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

PELTON = os.environ.get("PELTON", "pelton")
# Where each host has its own folder.
DISK = Path("/tmp/pelton-disk")


def reason_for_none() -> str | None:
    """Why this machine cannot have hosts, if it cannot."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "SKIPPED: hosts need root and Linux"
    for program in ("ip", "tc", "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"SKIPPED: hosts need the program {program}; install iproute2 and util-linux"
    name = f"ptry{os.getpid()}"
    tried = (
        f"ip netns add {name} && ip -n {name} link add br0 type bridge && ip -n {name} link add veth0 type veth peer name veth1 && "
        f"ip netns exec {name} tc qdisc add dev veth0 root tbf rate 1gbit burst 128kb latency 50ms && "
        "unshare -n -m -u -i --propagation private sh -c 'hostname h0 && mount -t tmpfs tmpfs /dev/shm && mount -t sysfs sysfs /sys'"
    )
    ended = subprocess.run(["sh", "-c", tried], capture_output=True, text=True)
    quietly("ip", "netns", "del", name, check=False)
    return f"SKIPPED: no namespaces here: {ended.stderr.strip()}" if ended.returncode else None


def quietly(*line: object, check: bool = True) -> None:
    subprocess.run([str(word) for word in line], check=check, capture_output=True, text=True)


class Hosts:
    """``h0``, ``h1`` and so on, connected by a switch; each ``/tmp/pelton-disk`` is of its host alone."""

    def __init__(self, count: int, base: Path) -> None:
        self.count, self.base = count, base
        self.switch = f"psw{os.getpid()}"
        self.started: list[Process] = []
        self._alive: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Hosts:
        DISK.mkdir(exist_ok=True)
        quietly("ip", "netns", "add", self.switch)
        quietly("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        quietly("ip", "-n", self.switch, "link", "set", "br0", "up")
        names = "127.0.0.1 localhost\n" + "".join(f"10.88.0.1{i} h{i}\n" for i in range(self.count))
        (self.base / "hosts").write_text(names)
        for i in range(self.count):
            self.disk(i).mkdir()
            (self.base / f"home{i}").mkdir()
            script = f"""
                hostname h{i}
                mount --bind {self.disk(i)} {DISK}
                mount --bind {self.base}/hosts /etc/hosts
                mount -t tmpfs tmpfs /dev/shm
                mount -t sysfs sysfs /sys
                ip link set lo up
                echo ready
                exec sleep 86400
            """
            unshare = ["unshare", "-n", "-m", "-u", "-i", "--propagation", "private", "sh", "-ec", script]
            alive = subprocess.Popen(unshare, stdout=subprocess.PIPE)
            self._alive.append(alive)
            assert alive.stdout is not None and alive.stdout.readline() == b"ready\n"
            quietly("ip", "link", "add", f"p{i}", "netns", self.switch, "type", "veth", "peer", "name", "veth0", "netns", alive.pid)
            quietly("ip", "-n", self.switch, "link", "set", f"p{i}", "master", "br0", "up")
            quietly(*self._enter(i), "ip", "addr", "add", f"10.88.0.1{i}/24", "dev", "veth0")
            quietly(*self._enter(i), "ip", "link", "set", "veth0", "up")
        # A remote shell for launchers: options, host, words.
        shell = "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nhost=$1; shift\ncase $host in\n"
        for i in range(self.count):
            enter = " ".join(str(word) for word in self._enter(i))
            shell += f'h{i}|10.88.0.1{i}) exec {enter} env HOME={self.base}/home{i} sh -c "cd {DISK}; $*";;\n'
        (self.base / "rsh").write_text(shell + "esac\n")
        (self.base / "rsh").chmod(0o755)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for process in self.started:
            process.end()
        for alive in self._alive:
            alive.kill()
            alive.wait()
        quietly("ip", "netns", "del", self.switch, check=False)

    def disk(self, host: int) -> Path:
        """A host's folder, as this process sees it."""
        return self.base / f"h{host}"

    def process(self, host: int) -> int:
        """A process that lives there."""
        return self._alive[host].pid

    def _enter(self, host: int) -> list[object]:
        return ["nsenter", "-t", self._alive[host].pid, "-m", "-u", "-n", "-i", "--"]

    def start(self, host: int, *line: object, **variables: object) -> Process:
        """A program on a host, in its own folder."""
        words = [str(word) for word in (*self._enter(host), "env", "-C", DISK, *line)]
        log = self.base / f"log{len(self.started)}"
        home = {"HOME": str(self.base / f"home{host}"), "PYTHONUNBUFFERED": "1"}
        env = {**os.environ, **home, **{name: str(value) for name, value in variables.items()}}
        with log.open("wb") as file:
            process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, start_new_session=True)
        self.started.append(Process(process, log))
        return self.started[-1]

    def start_ranks(self, *line: object, each: int = 1, **variables: object) -> list[Process]:
        """``each`` ranks of a program on every host, by the variables that torchrun and Kubernetes set."""
        world = {"WORLD_SIZE": self.count * each, "MASTER_ADDR": "h0", "MASTER_PORT": 29400, **variables}
        ranks = range(self.count * each)
        return [self.start(r // each, *line, RANK=r, LOCAL_RANK=r % each, LOCAL_WORLD_SIZE=each, **world) for r in ranks]

    def cut(self, host: int) -> None:
        """Takes a host's link down."""
        quietly("ip", "-n", self.switch, "link", "set", f"p{host}", "down")

    def join(self, host: int) -> None:
        """Takes it up again."""
        quietly("ip", "-n", self.switch, "link", "set", f"p{host}", "up")

    def limit(self, rate: str) -> None:
        """Limits what each host sends, such as to ``1gbit``."""
        for i in range(self.count):
            shape = ["tc", "qdisc", "replace", "dev", "veth0", "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms"]
            quietly(*self._enter(i), *shape)

    def small_disk(self, host: int, size: str) -> None:
        """The host's folder ``small`` holds no more than ``size``, from now on."""
        small = self.disk(host) / "small"
        new = not small.exists()
        small.mkdir(exist_ok=True)
        how = ["-t", "tmpfs", "-o", f"size={size}"] if new else ["-o", f"remount,size={size}"]
        quietly(*self._enter(host), "mount", *how, "tmpfs", DISK / "small")


class Process:
    """A program on a host."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 90) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {seconds} s: {self.output}") from None

    def wait_for(self, part: str, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while part not in self.output:
            assert self.process.poll() is None and time.monotonic() < until, f"no {part!r}: {self.output}"
            time.sleep(0.05)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
