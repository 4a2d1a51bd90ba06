"""One rank: find out which rank this is, meet the others, then become the user's program. Copied
into every run directory.

A launcher starts it once per rank, on a node that may have nothing but an old Python: it uses the
standard library only, runs on Python >= 3.6, and imports nothing of rampup. It reads the argv to run
from config.json, so no user value ever passes through a shell.
"""

import argparse
import fcntl
import hashlib
import hmac
import importlib.util
import json
import os
import re
import selectors
import signal
import socket
import struct
import sys
import time
import zlib
from typing import Any, Dict, List, Optional

PORT_TAKEN = 98
"""Exit code: rank 0 could not bind its ports; the launcher tries the next block."""
NOT_READY = 97
"""Exit code: this rank, or the world around it, is not as it must be. Its message says why."""
AGAIN = 85
"""Exit code of a user's program: start me again."""
NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes of a shell for a program that can't be started."""
PORT_BLOCKS, PORTS_IN_BLOCK, FIRST_PORT = 1124, 16, 12000
"""Below 32768, where the kernel starts to hand out ports by itself."""
OF_RANKS = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "GLOO_SOCKET_IFNAME",
)
"""Variables that a command gets only where its user has asked for ranks."""
SIOCGIFADDR = 0x8915
LOOPBACK = "127.0.0.1"
KEY_FILE = "ranks.key"
"""In the run directory, for its owner alone: ranks prove with it that they are of this run."""
CONTACT = "contact.py"
"""In the run directory: looks whether the ranks talk to each other."""
SHORTEST_KEY, MOST_BYTES = 32, 4096
"""Of the key, and of the line with which a rank joins."""
JOIN_WITHIN_S, STRANGERS = 10.0, 64
"""How long, and how many at once, may be connected without having joined."""
SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
SHEBANG = re.compile(r"#!.*\b(%s)\b" % "|".join(SHELLS))
LARGEST_SCRIPT = 1000000
WATCHER_ENDS_WITHIN_S = 20
LOOK_EVERY_S, OTHERS_LOOK_EVERY_S = 1.0, 5.0
"""So often a rank looks whether somebody wants it to stop: there may be thousands of others."""


class NotReadyError(Exception):
    """The message says what is wrong, the hint one thing that helps."""

    def __init__(self, message: str, hint: str, code: int = NOT_READY) -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code


# which rank is this -----------------------------------------------------------------------------------------


def rank_from_environment() -> Dict[str, int]:
    """Read which rank this is from the variables of torchrun, of Open MPI, or of Slurm's task."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]
    elif "OMPI_COMM_WORLD_RANK" in os.environ:
        names = ["OMPI_COMM_WORLD_" + name for name in ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE")]
    else:
        names = ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", ""]
    rank, local_rank, size, here = (
        int(os.environ.get(name, low)) for name, low in zip(names, (0, 0, 1, 0))
    )
    here = here or max(1, size // int(os.environ.get("SLURM_NNODES", 1)))
    return {"rank": rank, "local_rank": local_rank, "size": size, "here": here}


def parse_options(argv: List[str]) -> argparse.Namespace:
    """Read the launcher's options; what it leaves out is in the environment of the task."""
    slurm, found = os.environ, rank_from_environment()
    parser = argparse.ArgumentParser(prog="rank.py")
    parser.add_argument("run_dir")
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--rank", type=int, default=found["rank"])
    parser.add_argument("--local-rank", type=int, default=found["local_rank"])
    parser.add_argument("--world-size", type=int, default=found["size"])
    parser.add_argument("--local-world-size", type=int, default=found["here"])
    parser.add_argument("--node-rank", type=int, default=found["rank"] // found["here"])
    parser.add_argument(
        "--agent", type=int, default=0, help="become an agent of torchrun, for so many ranks"
    )
    parser.add_argument("--node", default=slurm.get("SLURMD_NODENAME") or socket.gethostname())
    parser.add_argument("--master-addr", default="127.0.0.1")
    parser.add_argument("--hosts", default="", help="names of the nodes, in order, with commas")
    parser.add_argument("--port-retry", type=int, default=0)
    parser.add_argument(
        "--cpus", type=int, default=0, help="CPUs of this rank, where the launcher knows them"
    )
    parser.add_argument("--started", default=str(time.time()))
    parser.add_argument(
        "--stop-at", default="", help="when to stop gracefully, in seconds since 1970"
    )
    parser.add_argument(
        "--stay",
        action="store_true",
        help="wait for the program, and record it when it ends with 85",
    )
    parser.add_argument(
        "--describe-progress",
        action="store_true",
        help="print a sum of what the paths of --progress hold, and end",
    )
    parser.add_argument("--run-hash", default="", help="sha256 of run.json where the job began")
    parser.add_argument(
        "--files-within",
        type=float,
        default=30.0,
        help="seconds for a shared file system to catch up",
    )
    parser.add_argument(
        "--meet-within", type=float, default=45.0, help="seconds for all ranks to come together"
    )
    options = parser.parse_args(argv)
    if options.world_size == options.local_world_size:
        # no other node needs to reach this one, and its own name may stand for another address
        options.master_addr = LOOPBACK
    return options


def read_config(options: argparse.Namespace) -> Dict[str, Any]:
    """Return config.json, once this node sees the same run directory as the node where the job
    began."""
    path = os.path.join(options.run_dir, "run.json")
    deadline = time.time() + options.files_within
    while options.run_hash:
        found = file_hash(path)
        if found == options.run_hash:
            break
        if time.time() > deadline:
            what = "can't read" if found is None else "sees another"
            raise NotReadyError(
                "node %s %s %s" % (options.node, what, path),
                "put runs on storage that all nodes share: set RAMPUP_RUNS",
            )
        time.sleep(0.2)
    with open(os.path.join(options.run_dir, "config.json")) as file:
        return json.load(file)  # type: ignore[no-any-return]


def file_hash(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def check_world_size(options: argparse.Namespace, config: Dict[str, Any]) -> None:
    resources = config["resources"]
    per_node = resources["tasks_per_node"]
    asked = resources.get("nodes", 1) * per_node
    if options.world_size != asked:
        raise NotReadyError(
            "%d tasks were started, the run has %d ranks" % (options.world_size, asked),
            "the job script must say #SBATCH --nodes=%d and --ntasks-per-node=%d"
            % (asked // per_node, per_node),
        )


# the context --------------------------------------------------------------------------------------


def first_port(identity: str, retry: int) -> int:
    """Return the first port of the block that belongs to this attempt. Every node computes the same
    one, without asking."""
    block = (zlib.crc32(identity.encode("utf-8", "surrogateescape")) + retry) % PORT_BLOCKS
    return FIRST_PORT + PORTS_IN_BLOCK * block


def count_threads(asked: int, granted: int, local_world: int) -> int:
    """Return the threads of one rank: the CPUs that were asked for, what the user exported, the CPUs
    that were granted, or a fair share."""
    if asked:
        return asked
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        return int(os.environ["OMP_NUM_THREADS"])
    if granted:
        return granted
    try:
        there = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        there = os.cpu_count() or 1
    return max(1, there // local_world)


def find_interface(address: str) -> str:
    """Return the network interface that leads to an address. Otherwise gloo looks up its own host
    name, which may not exist."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing: the kernel only chooses the way
            mine = probe.getsockname()[0]
            for _, name in socket.if_nameindex():
                try:
                    found = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                except OSError:  # an interface without an address
                    continue
                if socket.inet_ntoa(found[20:24]) == mine:
                    return name
        except OSError:  # no such host: the ranks will say so when they meet
            pass
    return ""


def build_context(options: argparse.Namespace, config: Dict[str, Any]) -> Dict[str, str]:
    """Return the variables of torchrun and of rampup: a script written for torchrun runs
    unchanged."""
    port = first_port("%s/%d" % (options.run_dir, options.attempt), options.port_retry)
    threads = str(
        count_threads(
            config["resources"].get("cpus_per_task") or 0, options.cpus, options.local_world_size
        )
    )
    context = {
        "RANK": options.rank,
        "LOCAL_RANK": options.local_rank,
        "WORLD_SIZE": options.world_size,
        "LOCAL_WORLD_SIZE": options.local_world_size,
        "GROUP_RANK": options.node_rank,
        "MASTER_ADDR": options.master_addr,
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "PYTHONUNBUFFERED": "1",  # a log that is read while the run lives
        "RAMPUP_RUN_DIR": options.run_dir,
        "RAMPUP_ATTEMPT": options.attempt,
        "RAMPUP_STARTED": options.started,
        "RAMPUP_NODE": options.node,
        "RAMPUP_STOP_AT": options.stop_at,
    }
    interface = find_interface(options.master_addr) if sys.platform.startswith("linux") else ""
    if interface and "GLOO_SOCKET_IFNAME" not in os.environ:
        context["GLOO_SOCKET_IFNAME"] = interface
    return {name: str(value) for name, value in context.items()}


def build_tf_config(addresses: List[str], rank: int, port: int) -> str:
    """Return TF_CONFIG: one worker per rank, each with a port of this attempt's block; empty if the
    block is too small."""
    before = [addresses[:index].count(address) for index, address in enumerate(addresses)]
    if max(before) + 1 >= PORTS_IN_BLOCK - 1:
        return ""
    workers = ["%s:%d" % (address, port + 1 + others) for address, others in zip(addresses, before)]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


# meeting the others -------------------------------------------------------------------------------


def rendezvous(options: argparse.Namespace, port: int, config_hash: str) -> List[str]:
    """Make sure that every rank is there, has the same settings and reaches rank 0; return their
    addresses, in order.

    Rank 0 collects one line from each other rank and answers all of them, so a missing or odd rank
    is named within seconds, before a framework would wait for minutes. Both sides prove that they
    know the key of the run, so whatever else connects changes nothing.
    """
    me = {
        "run": "%s/%d" % (os.path.basename(options.run_dir), options.attempt),
        "rank": options.rank,
        "node": options.node,
        "hash": config_hash,
        "size": options.world_size,
    }
    if options.world_size == 1:
        return [options.master_addr]
    meeting_point = (options.master_addr, port + PORTS_IN_BLOCK - 1)
    key, deadline = read_key(options), time.time() + options.meet_within
    if options.rank == 0:
        verdict = RollCall(options, me, key, deadline).hold(meeting_point)
    else:
        verdict = report_to_first_rank(meeting_point, me, key, deadline)
    if "problem" in verdict:
        raise NotReadyError(verdict["problem"], verdict["hint"])
    return verdict["addresses"]  # type: ignore[no-any-return]


def read_key(options: argparse.Namespace) -> bytes:
    path, hint = os.path.join(options.run_dir, KEY_FILE), "rampup resume makes a new one"
    try:
        with open(path, "rb") as file:
            key = file.read(MOST_BYTES).strip()
    except OSError as error:
        message = "node %s can't read %s: %s" % (options.node, path, error.strerror)
        raise NotReadyError(message, hint)
    if len(key) < SHORTEST_KEY:
        raise NotReadyError("%s is not a key: it is too short" % path, hint)
    return key


def sign(key: bytes, kind: str, nonce: str, text: str) -> str:
    return hmac.new(key, "\0".join((kind, nonce, text)).encode(), hashlib.sha256).hexdigest()


def write_signed(key: bytes, kind: str, nonce: str, facts: Dict[str, Any]) -> bytes:
    """Return a line with facts, for whoever chose the nonce, and the proof that we know the key."""
    text = json.dumps(facts)
    return ("%s %s\n" % (sign(key, kind, nonce, text), text)).encode()


def read_signed(key: bytes, kind: str, nonce: str, line: bytes) -> Dict[str, Any]:
    """Return the facts of a line; ValueError for one that was not written with the key."""
    signature, _, text = line.decode("ascii").rstrip("\n").partition(" ")
    if not hmac.compare_digest(signature, sign(key, kind, nonce, text)):
        raise ValueError("it does not know the key of this run")
    return json.loads(text)  # type: ignore[no-any-return]


class Caller:
    """A connection to rank 0. It is a stranger until it has joined as one of the ranks."""

    def __init__(self, link: socket.socket, address: str) -> None:
        self.link, self.address, self.since = link, address, time.time()
        self.nonce, self.line = os.urandom(16).hex(), b""
        self.facts = {}  # type: Dict[str, Any]


class RollCall:
    """Rank 0's part: all callers in one loop, until every rank is here or the time is over."""

    def __init__(
        self, options: argparse.Namespace, me: Dict[str, Any], key: bytes, deadline: float
    ) -> None:
        self.options, self.me, self.key, self.deadline = options, me, key, deadline
        self.strangers = []  # type: List[Caller]
        self.joined = {}  # type: Dict[int, Caller]
        self.selector = selectors.DefaultSelector()

    def hold(self, meeting_point: Any) -> Dict[str, Any]:
        """Collect one line from every other rank, and answer all of them."""
        with self.selector, socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            host = LOOPBACK if meeting_point[0] == LOOPBACK else ""
            try:
                server.bind((host, meeting_point[1]))
            except OSError:  # free a moment ago
                raise NotReadyError(
                    "port %d is taken" % meeting_point[1], "the next block is tried", PORT_TAKEN
                )
            server.listen(self.me["size"] + STRANGERS)
            server.setblocking(False)
            self.selector.register(server, selectors.EVENT_READ)
            while len(self.joined) < self.me["size"] - 1 and time.time() < self.deadline:
                self.listen(server)
            verdict = self.judge(meeting_point[0])
            for caller in self.joined.values():
                self.answer(caller, verdict)
            for caller in self.strangers:
                caller.link.close()
        return verdict

    def listen(self, server: socket.socket) -> None:
        """Take what callers say, for a moment at most."""
        for ready, _ in self.selector.select(min(1.0, max(0.01, self.deadline - time.time()))):
            if ready.fileobj is server:
                self.admit(server)
            elif ready.data.link.fileno() >= 0:  # not one that was dropped a moment ago
                self.hear(ready.data)
        late = time.time() - JOIN_WITHIN_S
        for caller in [caller for caller in self.strangers if caller.since < late]:
            self.drop(caller)

    def admit(self, server: socket.socket) -> None:
        if len(self.strangers) >= self.me["size"] + STRANGERS:
            self.drop(self.strangers[0])
        try:
            link, address = server.accept()
        except OSError:  # it has gone again, or there are too many open files
            if self.strangers:
                self.drop(self.strangers[0])
            time.sleep(0.01)
            return
        caller = Caller(link, address[0])
        self.strangers.append(caller)
        self.selector.register(link, selectors.EVENT_READ, caller)
        try:
            link.setblocking(False)
            link.sendall(caller.nonce.encode() + b"\n")
        except OSError:
            self.drop(caller)

    def hear(self, caller: Caller) -> None:
        """Read on. A rank joins with one whole line; any other line ends the call."""
        try:
            part = caller.link.recv(MOST_BYTES)
        except OSError:
            part = b""
        caller.line += part
        if (
            not part
            or caller.facts
            or len(caller.line) > MOST_BYTES
            or (part.endswith(b"\n") and not self.join(caller))
        ):
            self.drop(caller)

    def join(self, caller: Caller) -> bool:
        """Accept a caller as one of the ranks; the first who proves to be one stays it."""
        try:
            facts = read_signed(self.key, "join", caller.nonce, caller.line)
            known = facts["run"] == self.me["run"] and 0 < facts["rank"] < self.me["size"]
            if not known or facts["rank"] in self.joined:
                return False
            caller.facts = {name: facts[name] for name in (*self.me, "nonce")}
        except (ValueError, TypeError, KeyError):
            return False
        self.strangers.remove(caller)
        self.joined[facts["rank"]] = caller
        count_file = attempt_file(self.options, "joined")
        write_count(count_file, len(self.joined) + 1, self.me["size"])
        return True

    def drop(self, caller: Caller) -> None:
        """End a call. A rank that hung up may come again."""
        self.selector.unregister(caller.link)
        caller.link.close()
        if caller in self.strangers:
            self.strangers.remove(caller)
        else:
            del self.joined[caller.facts["rank"]]

    def judge(self, address: str) -> Dict[str, Any]:
        here = {0: (address, self.me)}
        here.update((rank, (one.address, one.facts)) for rank, one in self.joined.items())
        return check_ranks(self.options, self.me, here)

    def answer(self, caller: Caller, verdict: Dict[str, Any]) -> None:
        line = write_signed(self.key, "verdict", caller.facts["nonce"], verdict)
        try:
            caller.link.settimeout(max(1.0, self.deadline - time.time()))
            caller.link.sendall(line)
        except OSError:  # it is gone; the launcher will see its exit code
            pass
        caller.link.close()


def write_count(path: str, count: int, size: int) -> None:
    """Write down how many ranks have joined, for whoever waits: about twenty times."""
    if count * 20 // size == (count - 1) * 20 // size:
        return
    try:
        with open(path, "w") as file:
            file.write("%d\n" % count)
    except OSError:  # the start does not depend on it
        pass


def check_ranks(
    options: argparse.Namespace, me: Dict[str, Any], here: Dict[int, Any]
) -> Dict[str, Any]:
    """Return the addresses of all ranks, or the problem: a rank is missing or has other
    settings."""
    missing = [rank for rank in range(me["size"]) if rank not in here]
    if missing:
        others = ", ".join("%d on %s" % (rank, here[rank][1]["node"]) for rank in sorted(here))
        absent = ", ".join(describe_missing(rank, options) for rank in missing)
        return {
            "problem": "rank %s never connected; connected: %s" % (absent, others),
            "hint": "see the log of the missing rank; its node must reach %s" % me["node"],
        }
    mine = (me["hash"], me["size"])
    odd = [other for _, other in here.values() if (other["hash"], other["size"]) != mine]
    if odd:
        return {
            "problem": "rank %d on node %s has different settings from rank 0"
            % (odd[0]["rank"], odd[0]["node"]),
            "hint": "config.json of the run differs between nodes: is the run directory on shared storage?",
        }
    return {"addresses": [here[rank][0] for rank in range(me["size"])]}


def describe_missing(rank: int, options: argparse.Namespace) -> str:
    """Return the number of a missing rank, with the node where it must be, if that is known."""
    hosts = options.hosts.split(",") if options.hosts else []
    node = rank // options.local_world_size
    return "%d on %s" % (rank, hosts[node]) if node < len(hosts) else str(rank)


def report_to_first_rank(
    meeting_point: Any, me: Dict[str, Any], key: bytes, deadline: float
) -> Dict[str, Any]:
    """The part of every other rank: try until rank 0 answers."""
    why, nonce = "", os.urandom(16).hex()
    longest = MOST_BYTES * (1 + me["size"])
    while time.time() < deadline:
        try:
            with socket.create_connection(meeting_point, timeout=2) as server:
                greeting = read_line(server, MOST_BYTES, time.time() + JOIN_WITHIN_S)
                line = write_signed(key, "join", greeting.decode().strip(), dict(me, nonce=nonce))
                server.sendall(line)
                answer = read_line(server, longest, deadline + 5)
                return read_signed(key, "verdict", nonce, answer)
        except (OSError, ValueError) as error:
            why = str(error)
        time.sleep(0.05)
    return {
        "problem": "rank %d on node %s can't reach rank 0 at %s:%d: %s"
        % (me["rank"], me["node"], *meeting_point, why),
        "hint": "nodes must reach each other on ports %d to %d"
        % (FIRST_PORT, FIRST_PORT + PORT_BLOCKS * PORTS_IN_BLOCK),
    }


def read_line(link: socket.socket, most: int, deadline: float) -> bytes:
    """Return one line, which may come in parts; an error when it is too long or too late."""
    line = b""
    while not line.endswith(b"\n"):
        link.settimeout(max(0.1, deadline - time.time()))
        part = link.recv(most - len(line)) if len(line) < most else b""
        if not part:
            raise OSError("it hung up" if len(line) < most else "it does not stop talking")
        line += part
        if time.time() > deadline:
            raise OSError("it is too slow")
    return line


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


# the program --------------------------------------------------------------------------------------


def attempt_file(options: argparse.Namespace, name: str) -> str:
    return os.path.join(options.run_dir, "attempts", str(options.attempt), name)


def log_to_file(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def prepare(options: argparse.Namespace) -> Any:
    """Return the program and its environment, if everything is as it must be."""
    config = read_config(options)
    check_world_size(options, config)
    context = build_context(options, config)
    port, last = int(context["MASTER_PORT"]), PORTS_IN_BLOCK - 1
    needed = [port, port + last] if options.rank == 0 and options.world_size > 1 else []
    if "TORCHELASTIC_RUN_ID" in os.environ:  # its agent listens on the first one already
        needed = needed[1:]
    at_home = config.get("as_at_home") is True
    is_asked_for = config.get("kind") == "command" and not at_home
    for_tensorflow = options.world_size > 1 or is_asked_for
    if for_tensorflow and options.local_rank + 1 < last:
        needed.append(port + 1 + options.local_rank)  # TensorFlow's
    taken = [number for number in needed if not port_is_free(number)]
    if taken:
        raise NotReadyError("port %d is taken" % taken[0], "the next block is tried", PORT_TAKEN)
    config_hash = file_hash(os.path.join(options.run_dir, "config.json")) or ""
    addresses = rendezvous(options, port, config_hash)
    tensorflow = build_tf_config(addresses, options.rank, port) if for_tensorflow else ""
    if tensorflow:
        context["TF_CONFIG"] = tensorflow
    if at_home:  # programs take RANK for a sign that torchrun started them
        context = {name: value for name, value in context.items() if name not in OF_RANKS}
    if config.get("cwd"):
        os.chdir(config["cwd"])
    argv = container_command(config) + config["argv"] + words_on_resume(options, config)
    return argv, dict(os.environ, **context)


def find_progress(config: Dict[str, Any]) -> List[str]:
    """Return the files that the paths of --progress name, as seen from the working directory."""
    import glob  # most programs name none

    paths = config.get("program", {}).get("progress", [])
    found = [os.path.join(config.get("cwd") or ".", path) for path in paths]
    return sorted({name for path in found for name in glob.glob(path, recursive=True)})


def describe_progress(config: Dict[str, Any]) -> str:
    """Return a sum that changes with any of those files."""
    seen = hashlib.sha256()
    for name in find_progress(config):
        try:
            facts = os.stat(name)
        except OSError:  # replaced at this moment
            continue
        line = "%s\0%d\0%d\n" % (name, facts.st_size, int(facts.st_mtime * 1000))
        seen.update(line.encode("utf-8", "surrogateescape"))
    return seen.hexdigest()


def words_on_resume(options: argparse.Namespace, config: Dict[str, Any]) -> List[str]:
    """Return the words of --on-resume for an attempt that has something to resume from."""
    program = config.get("program", {})
    if options.attempt == 1 or not program.get("on_resume"):
        return []
    if program.get("progress") and not find_progress(config):
        return []
    import shlex

    return shlex.split(program["on_resume"])


def fail(error: Exception, options: argparse.Namespace) -> None:
    """Report the error, in the log for people and in a file for readers, and end."""
    message = getattr(error, "message", "") or "rank %d on node %s: %s" % (
        options.rank,
        options.node,
        error,
    )
    hint = getattr(error, "hint", "")
    code = getattr(error, "code", NOT_READY)
    sys.stderr.write("rampup: %s\nhint: %s\n" % (message, hint))
    if code == PORT_TAKEN:
        # srun ends with the highest code of all tasks, so the launcher looks for a file
        open(attempt_file(options, "port-taken"), "w").close()
    else:
        facts = {
            "t": time.time(),
            "rank": options.rank,
            "type": "NotReady",
            "message": message,
            "hint": hint,
        }
        try:
            with open(attempt_file(options, "error-%d.json" % options.rank), "w") as file:
                json.dump(facts, file)
        except OSError:
            # the run directory is what is missing; the message above is in Slurm's own log
            pass
    sys.stderr.flush()
    os._exit(code)


def exec_program(argv: List[str], env: Dict[str, str]) -> None:
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and exec hands that on
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if traps_usr2(argv):  # a shell can't trap a signal that was ignored when it began
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        sys.stderr.write("rampup: can't start %s: %s\n" % (argv[0], error.strerror))
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def traps_usr2(argv: List[str]) -> bool:
    """Return whether the program is a shell, or a script of one, whose text names SIGUSR2."""
    shell = os.path.basename(argv[0]) in SHELLS
    text = "".join(argv[1:]) if shell else ""
    for word in argv if shell else argv[:1]:
        try:
            if os.path.isfile(word) and os.path.getsize(word) <= LARGEST_SCRIPT:
                with open(word, "rb") as file:
                    found = file.read().decode("utf-8", "replace")
                if shell or SHEBANG.match(found):
                    text += found
        except (OSError, ValueError):
            continue
    return "USR2" in text


def container_command(config: Dict[str, Any]) -> List[str]:
    """Return the command that opens the image, where the program is inside of one. The job knows
    which container program this node has."""
    words = config.get("environment", {}).get("container") or []
    inside = "TORCHELASTIC_RUN_ID" in os.environ  # the agent is in there already, and we with it
    if inside or not words:
        return []
    return [os.environ.get("RAMPUP_CONTAINER", words[0]), *words[1:]]


def agent_command(options: argparse.Namespace) -> List[str]:
    """Return the command of torchrun's agent for this node. The agent starts rank.py again for each
    rank, with the options of this one."""
    config = read_config(options)
    program, container = config["argv"][0], container_command(config)
    own = "python" if container else sys.executable  # an image has its own
    port = first_port("%s/%d" % (options.run_dir, options.attempt), options.port_retry)
    if options.rank == 0 and not port_is_free(port):
        raise NotReadyError("port %d is taken" % port, "the next block is tried", PORT_TAKEN)
    # the one with torch
    python = program if os.path.basename(program).startswith("python") else own
    torchrun = [python, "-m", "torch.distributed.run", "--no-python", "--max-restarts=0"]
    torchrun += ["--nnodes=%d" % options.world_size, "--nproc-per-node=%d" % options.agent]
    torchrun += ["--node-rank=%d" % options.rank, "--master-addr=" + options.master_addr]
    torchrun += ["--master-port=%d" % port]
    rest = [word for word in sys.argv[1:] if not word.startswith("--agent")]
    return container + torchrun + [own, "-I", "-S", os.path.abspath(__file__)] + rest


def start_watcher(options: argparse.Namespace, env: Dict[str, str]) -> Any:
    """Start the process that reads the metrics of a command and samples this node; None where there
    is nothing to start. It is a part of rampup: a node without it has no metrics, and the run."""
    python = read_config(options).get("watcher")
    if not python or options.local_rank != 0 or "RAMPUP_SUPERVISED" in os.environ:
        return None
    import subprocess  # not on ranks that have none

    words = [python, "-P", "-m", "rampup.runtime.watch", options.run_dir]
    words += ["--attempt=%d" % options.attempt, "--node=" + options.node]
    words += ["--started=" + options.started] + (["--metrics"] if options.rank == 0 else [])
    try:
        watcher = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=sys.stderr)
    except OSError as error:  # as in a container, which has another Python
        sys.stderr.write("rampup: no metrics of this command: %s: %s\n" % (python, error.strerror))
        return None
    env["RAMPUP_SUPERVISED"] = "1"
    return watcher


def end_watcher(watcher: Any) -> None:
    """Let it take its last look, and wait for it."""
    if watcher is None:
        return
    watcher.stdin.close()
    for _ in range(WATCHER_ENDS_WITHIN_S * 100):
        if watcher.poll() is not None:
            return
        time.sleep(0.01)
    watcher.kill()


def run_and_wait(
    argv: List[str], env: Dict[str, str], options: argparse.Namespace, watcher: Any
) -> None:
    """Run a user's program as a child, and end with its exit code.

    Its code 85 would make srun kill the other ranks while they save, so it becomes a file and the
    code 0. Slurm's signals go to all processes of a step, so the child gets them too; torchrun and
    Open MPI signal only the process that they have started.
    """
    alone = "TORCHELASTIC_RUN_ID" in env or "OMPI_COMM_WORLD_RANK" in env
    name = read_config(options).get("program", {}).get("stop_signal")
    child = os.fork()
    if child == 0:
        die_with_parent()
        if name == "USR2":
            signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        exec_program(argv, env)
    watch = watch_contact(options)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, (lambda got, frame: os.kill(child, got)) if alone else signal.SIG_IGN)
    stop = None
    if name:
        stop = StopSignal(getattr(signal, "SIG" + name), child, options)
        # the supervisor of this machine signals nobody but us
        stop.arm(alone or "RAMPUP_SUPERVISED" in os.environ)
    status = os.waitpid(child, 0)[1]
    if watch is not None:
        watch.finish(sum(os.times()[2:4]))
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    reason = stop.disarm() if stop else ""
    end_watcher(watcher)
    if code == AGAIN or reason:  # whatever its code is after the signal, it has not completed
        try:
            # a reason that the program itself has written stays
            with open(attempt_file(options, "again"), "x") as file:
                file.write((reason or "asked") + "\n")
        except FileExistsError:
            pass
        code = 0
    os._exit(code)


def watch_contact(options: argparse.Namespace) -> Any:
    """Begin to look whether this rank ever talks to another; None where nobody wants to know."""
    program = os.path.join(options.run_dir, CONTACT)
    independent = read_config(options)["resources"].get("independent")
    if options.world_size == 1 or independent or not os.path.exists(program):
        return None
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("contact", program)
    if spec is None or spec.loader is None:  # it has the name of a Python file
        return None
    module = importlib.util.module_from_spec(spec)  # type: Any
    spec.loader.exec_module(module)
    return module.Watch(
        os.getpid(),
        attempt_file(options, ""),
        options.rank,
        options.world_size,
        options.node,
        first_port("%s/%d" % (options.run_dir, options.attempt), options.port_retry),
        PORTS_IN_BLOCK,
        attempt_file(options, "rank-%d.log" % options.rank),
    ).start()


class StopSignal:
    """The signal of --stop-signal: the program gets it once, before the time limit, with SIGTERM, or
    when `rampup cancel --save` asks."""

    def __init__(self, number: int, child: int, options: argparse.Namespace) -> None:
        self.number, self.child, self.options = number, child, options
        self.stop_at = float(options.stop_at) if options.stop_at else None
        self.reason = ""

    def arm(self, alone: bool) -> None:
        """Wait for a reason. Where we are not `alone`, a SIGTERM reaches the program without us."""
        if self.options.rank == 0:
            open(attempt_file(self.options, "listens"), "w").close()
        direct = self.number == signal.SIGTERM and not alone
        signal.signal(signal.SIGTERM, lambda got, frame: self.send("preempt", direct))
        signal.signal(signal.SIGALRM, lambda got, frame: self.look())
        self.look()

    def look(self) -> None:
        """Look for a reason, and again after a while."""
        now = time.time()
        if self.stop_at is not None and now >= self.stop_at:
            self.send("timeout")
        elif os.path.exists(attempt_file(self.options, "stop")):
            self.send("stop")
        if not self.reason:
            wait = LOOK_EVERY_S if self.options.rank == 0 else OTHERS_LOOK_EVERY_S
            if self.stop_at is not None:
                wait = min(wait, self.stop_at - now)
            signal.setitimer(signal.ITIMER_REAL, max(0.01, wait))

    def send(self, reason: str, has_it: bool = False) -> None:
        if self.reason:
            return
        self.reason = reason
        if not has_it:
            os.kill(self.child, self.number)

    def disarm(self) -> str:
        """The program has ended: return why it was asked to; nothing counts from now on."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return self.reason


def die_with_parent() -> None:
    """End this process with its parent: Open MPI kills only the processes that it has started
    itself. Linux only: PR_SET_PDEATHSIG."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    options = parse_options(sys.argv[1:])
    # Slurm's warning: only for a program that asks for it
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    if options.describe_progress:
        print(describe_progress(read_config(options)))
        return
    try:
        if options.agent:
            exec_program(
                agent_command(options), dict(os.environ, OMP_NUM_THREADS=str(options.cpus or 1))
            )
        argv, env = prepare(options)
        watcher = start_watcher(options, env) if options.stay else None
        log_to_file(attempt_file(options, "rank-%d.log" % options.rank))
    except (NotReadyError, OSError, ValueError) as error:
        fail(error, options)
    if options.stay:
        run_and_wait(argv, env, options, watcher)
    exec_program(argv, env)


if __name__ == "__main__":
    main()
