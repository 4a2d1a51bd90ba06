"""One rank: learn who it is, meet the others, then become the user's program. Copied into every run
directory.

Started once per rank by a launcher, on a node that may have nothing but an old Python: standard
library only, Python >= 3.6, imports nothing of rampup. The argv to run is read from config.json, so
no user value ever passes through a shell.
"""

import argparse
import fcntl
import hashlib
import json
import os
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
"""Exit code: this rank, or the world around it, is not as it must be. Its words tell."""
AGAIN = 85
"""Exit code of a user's program: start me again."""
PORT_BLOCKS, PORTS_IN_BLOCK, FIRST_PORT = 1124, 16, 12000
"""Below 32768, where the kernel starts to hand out ports by itself."""
SIOCGIFADDR = 0x8915


class NotReadyError(Exception):
    """What is wrong, and one thing that helps."""

    def __init__(self, message: str, hint: str, code: int = NOT_READY) -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code


# who am I -----------------------------------------------------------------------------------------


def place() -> Dict[str, int]:
    """Who the environment says that this is: torchrun's and Open MPI's own words, or those of
    Slurm's task."""
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


def parse(argv: List[str]) -> argparse.Namespace:
    """What the launcher says; what it leaves out is in the environment of the task."""
    slurm, found = os.environ, place()
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
        "--stop-at", default="", help="when to stop in good order, in seconds since 1970"
    )
    parser.add_argument(
        "--stay",
        action="store_true",
        help="wait for the program, and leave word when it ends with 85",
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
    return parser.parse_args(argv)


def read_config(options: argparse.Namespace) -> Dict[str, Any]:
    """config.json, when this node sees the same run directory as the node where the job began."""
    path = os.path.join(options.run_dir, "run.json")
    deadline = time.time() + options.files_within
    while options.run_hash:
        found = hash_of(path)
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


def hash_of(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def check_size(options: argparse.Namespace, config: Dict[str, Any]) -> None:
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


def port_of(identity: str, retry: int) -> int:
    """The first port of the block that belongs to this attempt, the same on every node without
    asking anyone."""
    block = (zlib.crc32(identity.encode("utf-8", "surrogateescape")) + retry) % PORT_BLOCKS
    return FIRST_PORT + PORTS_IN_BLOCK * block


def threads_of(asked: int, granted: int, local_world: int) -> int:
    """Threads of one rank: CPUs that were asked for, what the user exported, CPUs that were
    granted, a fair share."""
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


def interface_to(address: str) -> str:
    """The network interface that leads there. gloo looks its own host name up otherwise, which may
    not exist."""
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


def context_of(options: argparse.Namespace, config: Dict[str, Any]) -> Dict[str, str]:
    """The variables of torchrun, and TF_CONFIG: a script written for either runs unchanged."""
    port = port_of("%s/%d" % (options.run_dir, options.attempt), options.port_retry)
    threads = str(
        threads_of(
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
    interface = interface_to(options.master_addr) if sys.platform.startswith("linux") else ""
    if interface and "GLOO_SOCKET_IFNAME" not in os.environ:
        context["GLOO_SOCKET_IFNAME"] = interface
    return {name: str(value) for name, value in context.items()}


def tensorflow_config(addresses: List[str], rank: int, port: int) -> str:
    """TF_CONFIG: one worker per rank, each with a port of this attempt's block; empty if the block
    is too small."""
    before = [addresses[:index].count(address) for index, address in enumerate(addresses)]
    if max(before) + 1 >= PORTS_IN_BLOCK - 1:
        return ""
    workers = ["%s:%d" % (address, port + 1 + others) for address, others in zip(addresses, before)]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


# meeting the others -------------------------------------------------------------------------------


def meet(options: argparse.Namespace, port: int, config_hash: str) -> List[str]:
    """Every rank is here, knows the same settings and reaches rank 0; returns their addresses, in
    order.

    Rank 0 collects one line from each other rank and answers all of them, so a missing or odd rank
    is named within seconds, before a framework would wait for minutes.
    """
    run = "%s/%d" % (os.path.basename(options.run_dir), options.attempt)
    me = {
        "run": run,
        "rank": options.rank,
        "node": options.node,
        "hash": config_hash,
        "size": options.world_size,
    }
    me["hosts"], me["per_node"] = options.hosts, options.local_world_size
    if options.world_size == 1:
        return [options.master_addr]
    place = (options.master_addr, port + PORTS_IN_BLOCK - 1)
    deadline = time.time() + options.meet_within
    verdict = collect(place, me, deadline) if options.rank == 0 else report_to(place, me, deadline)
    if "problem" in verdict:
        raise NotReadyError(verdict["problem"], verdict["hint"])
    return verdict["addresses"]  # type: ignore[no-any-return]


def collect(place: Any, me: Dict[str, Any], deadline: float) -> Dict[str, Any]:
    """Rank 0's part."""
    here = {0: (place[0], me, None)}  # type: Dict[int, Any]
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("", place[1]))
        except OSError:  # free a moment ago
            raise NotReadyError(
                "port %d is taken" % place[1], "the next block is tried", PORT_TAKEN
            )
        server.listen(me["size"])
        while len(here) < me["size"] and time.time() < deadline:
            server.settimeout(max(0.1, deadline - time.time()))
            try:
                caller, address = server.accept()
                caller.settimeout(5)
                other = json.loads(caller.makefile("r").readline())
                if (
                    other["run"] == me["run"]
                    and other["size"] > other["rank"] >= 0
                    and "hash" in other
                ):
                    here[other["rank"]] = (address[0], other, caller)
            except (OSError, ValueError, TypeError, KeyError):
                # nobody came in time, or a stranger knocked
                continue
    verdict = judge(me, here)
    for _, _, caller in here.values():
        if caller is not None:
            try:
                caller.sendall((json.dumps(verdict) + "\n").encode())
            except OSError:  # it is gone; the launcher will see its exit code
                continue
    return verdict


def judge(me: Dict[str, Any], here: Dict[int, Any]) -> Dict[str, Any]:
    missing = [rank for rank in range(me["size"]) if rank not in here]
    if missing:
        others = ", ".join("%d on %s" % (rank, here[rank][1]["node"]) for rank in sorted(here))
        absent = ", ".join(named(rank, me) for rank in missing)
        return {
            "problem": "rank %s did not come; here are: %s" % (absent, others),
            "hint": "see the log of the missing rank; its node must reach %s" % me["node"],
        }
    odd = [
        other
        for _, other, _ in here.values()
        if other["hash"] != me["hash"] or other["size"] != me["size"]
    ]
    if odd:
        return {
            "problem": "rank %d on node %s has other settings than rank 0"
            % (odd[0]["rank"], odd[0]["node"]),
            "hint": "config.json of the run differs between nodes: is the run directory on shared storage?",
        }
    return {"addresses": [here[rank][0] for rank in range(me["size"])]}


def named(rank: int, me: Dict[str, Any]) -> str:
    """A rank that is not here, with the node where it must be, if that is known."""
    hosts = me["hosts"].split(",") if me["hosts"] else []
    node = rank // me["per_node"]
    return "%d on %s" % (rank, hosts[node]) if node < len(hosts) else str(rank)


def report_to(place: Any, me: Dict[str, Any], deadline: float) -> Dict[str, Any]:
    """The part of every other rank: try until rank 0 listens."""
    why = ""
    while time.time() < deadline:
        try:
            with socket.create_connection(place, timeout=2) as server:
                server.sendall((json.dumps(me) + "\n").encode())
                server.settimeout(max(1.0, deadline + 5 - time.time()))
                answer = server.makefile("r").readline()
                if answer:
                    return json.loads(answer)  # type: ignore[no-any-return]
                why = "it hung up"
        except (OSError, ValueError) as error:
            why = str(error)
        time.sleep(0.05)
    return {
        "problem": "rank %d on node %s can't reach rank 0 at %s:%d: %s"
        % (me["rank"], me["node"], *place, why),
        "hint": "nodes must reach each other on ports %d to %d"
        % (FIRST_PORT, FIRST_PORT + PORT_BLOCKS * PORTS_IN_BLOCK),
    }


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
    """The program and its environment, when everything is as it must be."""
    config = read_config(options)
    check_size(options, config)
    context = context_of(options, config)
    port, last = int(context["MASTER_PORT"]), PORTS_IN_BLOCK - 1
    needed = [port, port + last] if options.rank == 0 and options.world_size > 1 else []
    if "TORCHELASTIC_RUN_ID" in os.environ:  # its agent listens on the first one already
        needed = needed[1:]
    if options.world_size > 1 and options.local_rank + 1 < last:
        needed.append(port + 1 + options.local_rank)  # TensorFlow's
    taken = [number for number in needed if not port_is_free(number)]
    if taken:
        raise NotReadyError("port %d is taken" % taken[0], "the next block is tried", PORT_TAKEN)
    config_hash = hash_of(os.path.join(options.run_dir, "config.json")) or ""
    addresses = meet(options, port, config_hash)
    tensorflow = tensorflow_config(addresses, options.rank, port) if options.world_size > 1 else ""
    if tensorflow:
        context["TF_CONFIG"] = tensorflow
    if config.get("cwd"):
        os.chdir(config["cwd"])
    return container_of(config) + config["argv"], dict(os.environ, **context)


def leave(error: Exception, options: argparse.Namespace) -> None:
    """Say why, where people look and where readers look, and end."""
    message = getattr(error, "message", "") or "rank %d on node %s: %s" % (
        options.rank,
        options.node,
        error,
    )
    hint = getattr(error, "hint", "")
    code = getattr(error, "code", NOT_READY)
    sys.stderr.write("rampup: %s\nhint: %s\n" % (message, hint))
    if code == PORT_TAKEN:
        # srun ends with the highest code of all tasks, so the launcher is told by a file
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
            # the run directory is what is missing; the words above are in Slurm's own log
            pass
    sys.stderr.flush()
    os._exit(code)


def become(argv: List[str], env: Dict[str, str]) -> None:
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        sys.stderr.write("rampup: can't start %s: %s\n" % (argv[0], error.strerror))
        sys.stderr.flush()
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def container_of(config: Dict[str, Any]) -> List[str]:
    """The words before the program, when that is inside an image; the job knows which program opens
    it."""
    words = config.get("environment", {}).get("container") or []
    inside = "TORCHELASTIC_RUN_ID" in os.environ  # the agent is in there already, and we with it
    return (
        [os.environ.get("RAMPUP_CONTAINER", words[0]), *words[1:]] if words and not inside else []
    )


def agent_of(options: argparse.Namespace) -> List[str]:
    """The agent of this node. It starts rank.py again for each rank, with what this one was
    told."""
    config = read_config(options)
    program, container = config["argv"][0], container_of(config)
    own = "python" if container else sys.executable  # an image has its own
    port = port_of("%s/%d" % (options.run_dir, options.attempt), options.port_retry)
    if options.rank == 0 and not port_is_free(port):
        raise NotReadyError("port %d is taken" % port, "the next block is tried", PORT_TAKEN)
    rest = [word for word in sys.argv[1:] if not word.startswith("--agent")]
    return [
        *container,
        program if os.path.basename(program).startswith("python") else own,  # who has torch
        *(
            "-m",
            "torch.distributed.run",
            "--nnodes=%d" % options.world_size,
            "--nproc-per-node=%d" % options.agent,
        ),
        *(
            "--node-rank=%d" % options.rank,
            "--master-addr=" + options.master_addr,
            "--master-port=%d" % port,
        ),
        *("--max-restarts=0", "--no-python", own, "-I", "-S", os.path.abspath(__file__)),
        *rest,
    ]


def stay_for(argv: List[str], env: Dict[str, str], options: argparse.Namespace) -> None:
    """Run a user's program as a child. Where its 85 would make srun kill the others in their save,
    leave word in a file instead and end well. Slurm's signals go to all processes of a step, so the
    child has them too; torchrun and Open MPI signal only what they have started."""
    alone = "TORCHELASTIC_RUN_ID" in env or "OMPI_COMM_WORLD_RANK" in env
    child = os.fork()
    if child == 0:
        die_with_parent()
        become(argv, env)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, (lambda got, frame: os.kill(child, got)) if alone else signal.SIG_IGN)
    status = os.waitpid(child, 0)[1]
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    if code == AGAIN:
        try:
            # where the program has said why, that stays
            with open(attempt_file(options, "again"), "x") as file:
                file.write("asked\n")
        except FileExistsError:
            pass
        code = 0
    os._exit(code)


def die_with_parent() -> None:
    """Open MPI kills what it has started, not what that has started. Linux only:
    PR_SET_PDEATHSIG."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    options = parse(sys.argv[1:])
    # Slurm's warning: only for a program that asks for it
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        if options.agent:
            become(agent_of(options), dict(os.environ, OMP_NUM_THREADS=str(options.cpus or 1)))
        argv, env = prepare(options)
        log_to_file(attempt_file(options, "rank-%d.log" % options.rank))
    except (NotReadyError, OSError, ValueError) as error:
        leave(error, options)
    if options.stay:
        stay_for(argv, env, options)
    become(argv, env)


if __name__ == "__main__":
    main()
