"""Whether the ranks of a run talk to each other. Copied into every run directory.

A `Watch` runs beside the program of one rank, in rank.py or in the guardian. It looks now and then
at the sockets and the shared memory of the rank's processes, and writes what it saw to
contact-<rank>.json. `judge` compares what all ranks wrote; rundir/contact.py asks it for readers.
Standard library only, Python >= 3.6. It changes nothing, and where it can't see it says so.
"""

import contextlib
import json
import os
import re
import signal
import socket
import struct
import threading
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

FILE = "contact-%d.json"
"""In the folder of an attempt, one for each rank; written by the watch of that rank."""
ENOUGH_CPU_S = 5.0
"""A rank that has computed for less has not trained."""
NOTICE_CPU_S = 300.0
"""When every rank has computed for so long and none has talked, people hear of it."""
FIRST_LOOK_S, SLOWER, RAREST_LOOK_S = 0.3, 1.2, 10.0
MOST_NAMES = 300
"""Of one kind in the file of one rank."""
LISTENS, CLOSED, ANY_PORT = "0A", "06", 0
WEB_PORTS = (22, 53, 80, 443, 3128, 8080)
"""Two ranks that are connected to the same port of this kind have not met there."""
SHARED_MEMORY = re.compile(rb"^\S+ rw-s \S+ (\S+) (\d+) +(.*)$", re.MULTILINE)
MPI_LIBRARY = re.compile(rb"/libmpi[a-z_]*\.so")
NO_CONTACT = (b"/dev/nvidia", b"/dev/dri", b"/dev/kfd", b"/anon_inode")
LOCK_FILES = (b"lock.mdb", b"-shm")
"""Of LMDB and of SQLite: both ranks read the same data."""
FABRICS = ("/dev/infiniband/", "/dev/cxi", "/dev/hfi1", "/dev/kgni", "/dev/xpmem", "/dev/knem")
"""Networks that need no sockets."""
MET, APART, UNKNOWN = "met", "apart", "unknown"

Address = Tuple[str, int]
Row = Tuple[Address, Address, str, str]


class Watch:
    """Looks at the processes below `root` until `finish`, or until the rank has met another."""

    def __init__(
        self,
        root: int,
        folder: str,
        rank: int,
        size: int,
        node: str,
        first_port: int,
        ports: int,
        log: str = "",
    ) -> None:
        self.root, self.folder, self.rank, self.size = root, folder, rank, size
        self.own_ports = set(range(first_port, first_port + ports - 1))
        """Those of this attempt."""
        self.meeting_port = first_port + ports - 1
        """Where rank.py has let the ranks meet, before the program began."""
        is_of_agent = "TORCHELASTIC_RUN_ID" in os.environ
        self.agent_ports = {first_port} if is_of_agent else set()  # type: Set[int]
        """Where the agents of torchrun meet, whatever the ranks do."""
        self.mpi_ports = find_mpi_ports()
        self.log, self.noticed, self.counted = log, False, 0
        self.notice_cpu_s = float(os.environ.get("RAMPUP_APART_AFTER_S") or NOTICE_CPU_S)
        self.links = set()  # type: Set[Tuple[Address, Address]]
        self.to_itself = set()  # type: Set[Tuple[Address, Address]]
        self.listens = set()  # type: Set[int]
        self.shared = set()  # type: Set[str]
        self.seen = {
            "rank": rank,
            "node": node,
            "looks": 0,
            "cpu_s": 0.0,
            "met": "",
            "blind": False,
            "doubt": "",
            "mpi": False,
            "enough_s": min(ENOUGH_CPU_S, self.notice_cpu_s),
            "notice_s": self.notice_cpu_s,
        }  # type: Dict[str, Any]
        self.news = {}  # type: Dict[str, Any]
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look_until_ended, daemon=True)

    def start(self) -> "Watch":
        """Begin to look, in a thread that takes no signals: they are for the one that waits."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 32)))
        try:
            self.thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def finish(self, cpu_s: float) -> None:
        """Look for the last time, when the program has ended; it had so many seconds of CPU."""
        self.ended.set()
        self.thread.join(RAREST_LOOK_S)
        self.seen["cpu_s"] = round(max(cpu_s, self.seen["cpu_s"]), 1)
        self.try_to_look()

    def look_until_ended(self) -> None:
        wait_s = FIRST_LOOK_S
        while not self.ended.wait(wait_s) and not self.seen["met"]:
            self.try_to_look()
            if self.rank == 0 and not self.noticed:
                self.notice()
            wait_s = min(RAREST_LOOK_S, wait_s * SLOWER)

    def try_to_look(self) -> None:
        """Look; what can't be seen is written down, and the program never hears of it."""
        try:
            if not self.seen["met"]:
                self.look()
        except (OSError, ValueError, IndexError) as error:
            self.seen.update(blind=True, doubt=str(error))
        with contextlib.suppress(OSError):  # a full disk: then nobody knows, and nothing is said
            self.write()

    def look(self) -> None:
        pids = find_tree(self.root)
        inodes, tables = set(), {}  # type: Tuple[Set[str], Dict[int, int]]
        for pid in pids:
            try:
                inodes.update(self.read_files(pid))
                self.read_memory(pid)
                tables.setdefault(os.stat("/proc/%d/ns/net" % pid).st_ino, pid)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            except PermissionError:
                self.seen["blind"] = True
        if not pids:  # what they left is in our own table
            tables[0] = os.getpid()
        for pid in tables.values():
            self.read_sockets(pid, inodes)
        self.seen["looks"] += 1
        self.seen["cpu_s"] = max(self.seen["cpu_s"], round(sum(map(read_cpu_s, pids)), 1))

    def read_files(self, pid: int) -> List[str]:
        """Return the inodes of the sockets of a process; notice a network that needs none."""
        found, folder = [], "/proc/%d/fd" % pid
        for name in os.listdir(folder):
            try:
                target = os.readlink(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                found.append(target[8:-1])
            elif target.startswith(FABRICS):
                self.seen["doubt"] = target
        return found

    def read_memory(self, pid: int) -> None:
        """Note the memory that a process shares and may write, and whether it has MPI."""
        with open("/proc/%d/maps" % pid, "rb") as file:
            text = file.read()
        for device, inode, name in SHARED_MEMORY.findall(text):
            if inode != b"0" and not name.startswith(NO_CONTACT) and not name.endswith(LOCK_FILES):
                self.shared.add("%s:%s" % (device.decode(), inode.decode()))
        if MPI_LIBRARY.search(text):
            self.seen["mpi"] = True

    def read_sockets(self, pid: int, inodes: Set[str]) -> None:
        """Judge the sockets of a process's network. A connection that was closed a moment ago has
        no owner any more, but the ports of this attempt belong to nobody else."""
        rows = list(read_table("/proc/%d/net/tcp" % pid)) + list(
            read_table("/proc/%d/net/tcp6" % pid)
        )
        mine = {(here, there) for here, there, _, inode in rows if inode in inodes}
        for here, there, state, inode in rows:
            if self.meeting_port in (here[1], there[1]):
                continue
            if state == LISTENS:
                if inode in inodes:
                    self.listens.add(here[1])
                continue
            if inode in inodes and (there, here) in mine:
                self.to_itself.update(((here, there), (there, here)))
            elif (here, there) in self.to_itself:
                continue
            elif {here[1], there[1]} & (
                self.own_ports if inode in inodes else self.own_ports - self.agent_ports
            ):
                self.seen["met"] = "port %d" % min({here[1], there[1]} & self.own_ports)
            elif state == CLOSED and {here[1], there[1]} & self.agent_ports:
                self.seen["doubt"] = "a connection to the agents of torchrun"
            elif inode in inodes and there[1] in self.mpi_ports:
                self.seen["met"] = "MPI"
            elif inode in inodes:
                self.links.add((here, there))
        for here, there, _, inode in read_table("/proc/%d/net/udp" % pid):
            if inode in inodes and there[1] == ANY_PORT and here[1] != ANY_PORT:
                self.seen["doubt"] = "UDP port %d" % here[1]

    def write(self) -> None:
        """Replace the file of this rank, when there is something new to say."""
        now = dict(
            self.seen,
            links=sorted(self.links)[:MOST_NAMES],
            listens=sorted(self.listens)[:MOST_NAMES],
            shared=sorted(self.shared)[:MOST_NAMES],
        )
        if max(len(self.links), len(self.listens), len(self.shared)) > MOST_NAMES:
            now["doubt"] = "more connections than are kept"
        # the time alone is written when it begins to count
        passed = [now["cpu_s"] >= limit for limit in (now["enough_s"], now["notice_s"])]
        news = dict(now, cpu_s=passed, looks=now["looks"] > 0)
        if news == self.news and not self.ended.is_set():
            return
        path = os.path.join(self.folder, FILE % self.rank)
        hidden = os.path.join(self.folder, "." + FILE % self.rank)
        with open(hidden, "w") as file:
            json.dump(now, file)
        os.replace(hidden, path)
        self.news = news

    def notice(self) -> None:
        """Say in the log of rank 0, once, that the ranks have computed for long and never met."""
        if self.seen["cpu_s"] < self.notice_cpu_s:
            return
        while self.counted < self.size:  # each is read again only until it has computed enough
            record = parse_record(self.read(self.counted))
            if record is None or record["cpu_s"] < self.notice_cpu_s:
                return
            self.counted += 1
        records = read_records(self.read, self.size)
        if judge(records, self.size) == APART:
            words = "note: the %d ranks have never talked to each other: each trains alone"
            with open(self.log, "a") as file:
                file.write("rampup: %s; rampup why says more\n" % (words % self.size))
        self.noticed = True

    def read(self, rank: int) -> str:
        try:
            with open(os.path.join(self.folder, FILE % rank)) as file:
                return file.read()
        except OSError:
            return ""


# what the kernel shows ----------------------------------------------------------------------------


def find_tree(root: int) -> List[int]:
    """Return all processes below a process."""
    found, left = [], [root]  # type: Tuple[List[int], List[int]]
    while left:
        pid = left.pop()
        try:
            threads = os.listdir("/proc/%d/task" % pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        for thread in threads:
            try:
                with open("/proc/%d/task/%s/children" % (pid, thread)) as file:
                    below = [int(word) for word in file.read().split()]
            except (FileNotFoundError, ProcessLookupError):
                if pid == root and thread == str(root):
                    raise  # a kernel that shows no children; other threads may have ended
                continue
            found.extend(below)
            left.extend(below)
    return found


def read_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of the children that it has waited for."""
    try:
        with open("/proc/%d/stat" % pid, errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def read_table(path: str) -> Iterable[Row]:
    """Yield this end, the other end, the state and the inode of each socket."""
    try:
        with open(path) as file:
            lines = file.read().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError):  # no IPv6, or the process has ended
        return
    for line in lines:
        fields = line.split()
        yield read_address(fields[1]), read_address(fields[2]), fields[3], fields[9]


def read_address(text: str) -> Address:
    """Return the address and the port of `0100007F:1F90`: words in the order of the machine."""
    words, _, port = text.partition(":")
    packed = b"".join(
        struct.pack("=I", int(words[start : start + 8], 16)) for start in range(0, len(words), 8)
    )
    if len(packed) == 16 and packed.startswith(b"\0" * 10 + b"\xff\xff"):
        packed = packed[12:]
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed), int(port, 16)


def find_mpi_ports() -> Set[int]:
    """Return the ports where the launcher waits for ranks that begin with MPI."""
    found = set()
    for name, value in os.environ.items():
        port = re.search(r":(\d+)$", value) if name.startswith("PMIX_SERVER_URI") else None
        if port:
            found.add(int(port.group(1)))
    return found


# what the ranks have seen -------------------------------------------------------------------------


def read_records(read: Callable[[int], str], size: int) -> List[Dict[str, Any]]:
    """Return what the ranks wrote, up to the first that wrote nothing or that has met another.
    `read` returns the text of a rank's file."""
    found = []
    for rank in range(size):
        record = parse_record(read(rank))
        if record is None:
            break
        found.append(record)
        if record["met"]:
            break
    return found


def parse_record(text: str) -> Optional[Dict[str, Any]]:
    """Return what a rank wrote; None for a text that is empty, torn or foreign."""
    try:
        record = json.loads(text)
        record["links"] = [tuple(map(read_end, link)) for link in record["links"]]
        numbers = ("cpu_s", "enough_s", "notice_s")
        record.update({name: float(record[name]) for name in numbers})
        record.update({name: str(record[name]) for name in ("node", "met", "doubt")})
        record.update({name: set(record[name]) for name in ("listens", "shared")})
        record.update({name: record[name] is True for name in ("blind", "mpi")})
        record["looks"] = int(record["looks"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return record  # type: ignore[no-any-return]


def read_end(end: List[Any]) -> Address:
    address, port = end
    return str(address), int(port)


def judge(records: List[Dict[str, Any]], size: int) -> str:
    """Say whether any two ranks have met. Where one rank could not be seen, or where something else
    may have carried their words, nobody knows."""
    if any(record["met"] for record in records):
        return MET
    active = [record for record in records if record["links"] or record["shared"]]
    pairs = [(one, other) for one in active for other in records if other is not one]
    found = {judge_pair(one, other) for one, other in pairs}
    if MET in found:
        return MET
    is_seen = all(r["looks"] > 0 and not r["blind"] and not r["doubt"] for r in records)
    return APART if len(records) == size and is_seen and found <= {APART} else UNKNOWN


def judge_pair(one: Dict[str, Any], other: Dict[str, Any]) -> str:
    """Say whether two ranks have met: they hold both ends of a connection, or the same memory."""
    same_node = one["node"] == other["node"]
    theirs = {place_link(link, other["node"]) for link in other["links"]}
    if any(
        (there, here) in theirs
        for here, there in (place_link(each, one["node"]) for each in one["links"])
    ):
        return MET
    if same_node and one["shared"] & other["shared"]:
        return MET
    calls = [
        (each, hearer["listens"])
        for caller, hearer in ((one, other), (other, one))
        for each in caller["links"]
    ]
    if any(there[1] in ports for (_, there), ports in calls):
        return UNKNOWN
    ends = [{place(there, each["node"]) for _, there in each["links"]} for each in (one, other)]
    common = [port for _, port in ends[0] & ends[1] if port not in WEB_PORTS]
    return UNKNOWN if common else APART


def place_link(link: Tuple[Address, Address], node: str) -> Tuple[Address, Address]:
    return place(link[0], node), place(link[1], node)


def place(address: Address, node: str) -> Address:
    """Return an address that means the same for every node."""
    host, port = address
    return (
        ("%s of %s" % (host, node), port) if host.startswith("127.") or host == "::1" else address
    )
