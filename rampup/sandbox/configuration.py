"""The configuration files of a sandbox, as text: slurm.conf and its companions, MariaDB, the profile.

sandbox.py calls these functions and writes the files. They are pure: values in, text out. slurm.conf
says why each unusual line is there, because curious users read it. Never touches a file.
"""

import json
import os
from typing import Any

from rampup.sandbox.layout import Layout, Options, node_names
from rampup.sandbox.machine import Machine

PARTITION = "normal"
DEBUG_PARTITION = "debug"
ACCOUNT = "rampup"
GPU_TYPE = "pretend"
REQUEUE_WAIT_S = 10
"""How long a requeued job waits; Slurm's own default is 120 s."""


def render_slurm_conf(layout: Layout, options: Options, machine: Machine) -> str:
    return "\n".join(
        [
            f"# A Slurm of {options.nodes} nodes on one machine, made by `rampup sandbox up`.",
            f"ClusterName={layout.name}",
            f"SlurmctldHost={machine.host}({machine.address})",
            f"SlurmctldPort={machine.controller_port}",
            f"SlurmUser={machine.user}",
            f"SlurmdUser={machine.user}",
            "",
            "# Its own munged: the machine's is not needed. cred_expire is also how long a requeued job waits;",
            "# at most sites that is 120 s.",
            "AuthType=auth/munge",
            f"AuthInfo=socket={layout.munge_socket},cred_expire={REQUEUE_WAIT_S}",
            "",
            *loopback_lines(machine),
            f"StateSaveLocation={layout.saved_state}",
            f"SlurmdSpoolDir={layout.spool}/%n",
            f"TmpFS={layout.tmp}/%n",
            f"SlurmctldPidFile={layout.run}/slurmctld.pid",
            f"SlurmdPidFile={layout.run}/%n.pid",
            f"SlurmctldLogFile={layout.log('slurmctld')}",
            f"SlurmdLogFile={layout.logs}/%n.log",
            "",
            "# Jobs start at once, not with the next round of the scheduler.",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU_Memory",
            "PriorityType=priority/multifactor",
            "PriorityWeightPartition=1000",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            f"JobRequeue={int(options.requeue)}",
            f"MaxArraySize={options.max_array_size}",
            "MailProg=/bin/true",
            "",
            "# No control groups: they need root. So CPUs, memory and GPUs are counted, not enforced.",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "JobAcctGatherType=jobacct_gather/linux",
            "JobAcctGatherFrequency=2",
            "KillWait=5",
            "MinJobAge=300",
            f"SlurmdTimeout={options.node_timeout_s}",
            "ReturnToService=2",
            "",
            *accounting_lines(layout, options, machine),
            "",
            *node_lines(options, machine),
            "",
            *partition_lines(options),
            "",
            *further_lines(options),
        ]
    )


def loopback_lines(machine: Machine) -> list[str]:
    """Return what keeps the daemons from listening in the network. Slurm can only take the address
    that the host's name stands for."""
    if machine.own_address is None:
        return [
            "# The host's name stands for an address in a network: Slurm listens at all of them.",
            "",
        ]
    return [
        "# Only this machine can reach the daemons.",
        "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        "",
    ]


def accounting_lines(layout: Layout, options: Options, machine: Machine) -> list[str]:
    if not options.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={machine.address}",
        f"AccountingStoragePort={machine.database_port}",
        f"AccountingStoragePass={layout.munge_socket}",
        "AccountingStorageTRES=gres/gpu",
        "AccountingStorageEnforce=associations,limits,qos",
    ]


def node_lines(options: Options, machine: Machine) -> list[str]:
    memory_mb = max(1, machine.memory_mb // options.nodes)
    ports = ",".join(str(port) for port in machine.node_ports)
    gpus = f" Gres=gpu:{GPU_TYPE}:{options.gpus_per_node}" if options.gpus_per_node else ""
    return [
        "# All nodes are this machine. config_overrides: they may claim more CPUs than it has.",
        "SlurmdParameters=config_overrides",
        "GresTypes=gpu",
        f"DefMemPerCPU={max(1, memory_mb // options.cpus_per_node)}",
        f"NodeName=node[1-{options.nodes}] NodeHostname=localhost NodeAddr={machine.address} Port=[{ports}]"
        f" CPUs={options.cpus_per_node} Sockets=1 CoresPerSocket={options.cpus_per_node} ThreadsPerCore=1"
        f" RealMemory={memory_mb} State=UNKNOWN{gpus}",
    ]


def partition_lines(options: Options) -> list[str]:
    """Return the partitions; PriorityTier decides which one preempts, so only `urgent` has another."""
    preempted = f"PriorityTier=1 GraceTime={options.grace_time_s}"
    return [
        "# A job in urgent takes the nodes of jobs in the others, which go back into the queue.",
        "PartitionName=DEFAULT Nodes=ALL State=UP",
        f"PartitionName={PARTITION} Default=YES MaxTime=1-00:00:00 PriorityJobFactor=10 {preempted}",
        f"PartitionName={DEBUG_PARTITION} MaxTime=00:30:00 PriorityJobFactor=100 {preempted}",
        f"PartitionName=long MaxTime=7-00:00:00 PriorityJobFactor=1 {preempted}",
        "PartitionName=urgent MaxTime=1-00:00:00 PriorityJobFactor=1000 PriorityTier=100 PreemptMode=OFF",
    ]


def further_lines(options: Options) -> list[str]:
    """Return the user's lines: a site's partitions, features, even nodes that exist only on paper."""
    return ["# from --slurm-conf", *options.further.splitlines(), ""] if options.further else []


def render_gres_conf(layout: Layout, options: Options) -> str:
    """Render the pretend GPUs: links to /dev/null, because Slurm wants a device and mknod root."""
    if not options.gpus_per_node:
        return "# no GPUs\n"
    return "".join(
        f"NodeName={node} Name=gpu Type={GPU_TYPE} File={layout.gpus}/gpu[0-{options.gpus_per_node - 1}]\n"
        for node in node_names(options)
    )


def render_slurmdbd_conf(layout: Layout, machine: Machine) -> str:
    return "\n".join(
        [
            f"SlurmUser={machine.user}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={layout.munge_socket}",
            f"DbdHost={machine.host}",
            f"DbdAddr={machine.address}",
            f"DbdPort={machine.database_port}",
            f"LogFile={layout.log('slurmdbd')}",
            f"PidFile={layout.run}/slurmdbd.pid",
            *(["CommunicationParameters=NoInAddrAny"] if machine.own_address else []),
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            "StorageUser=root",
            "StorageLoc=slurm_acct_db",
            "",
        ]
    )


def render_mariadb_conf(layout: Layout, machine: Machine) -> str:
    """Render a small database that never waits for the disk: after a crash it is removed anyway."""
    return "\n".join(
        [
            "[mariadbd]",
            f"datadir={layout.database}",
            "# not /tmp: a server that starts removes the temporary tables of all others there",
            f"tmpdir={layout.database_tmp}",
            f"socket={layout.mariadb_socket}",
            f"pid-file={layout.run}/mariadb.pid",
            f"user={machine.user}",
            "skip-networking",
            "innodb-buffer-pool-size=32M",
            "innodb-log-file-size=4M",
            "innodb-autoextend-increment=1",
            "innodb-flush-log-at-trx-commit=0",
            "innodb-doublewrite=0",
            "loose-innodb-flush-method=nosync",
            "loose-innodb-log-file-buffering=1",
            "loose-innodb-use-native-aio=0",
            "loose-sync-frm=0",
            "aria-log-file-size=8M",
            "",
        ]
    )


def render_profile(layout: Layout, options: Options) -> str:
    """Render the cluster profile that `rampup run --on NAME` reads."""
    keys: dict[str, Any] = {
        "about": f"a sandbox: a real Slurm of {options.nodes} nodes on this machine",
        "scheduler": "slurm",
        "launcher": "srun",
        "slurm_conf": str(layout.slurm_conf),
        "shared": ["/"],
        "partition": PARTITION,
        "debug_partition": DEBUG_PARTITION,
        "account": ACCOUNT if options.accounting else None,
        "gpu_directive": "gpus-per-node",
        "max_nodes": options.nodes,
        "max_tasks_per_node": options.cpus_per_node,
        "requeue": options.requeue,
    }
    # A JSON string, number, boolean or list of strings is also TOML.
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in keys.items() if value is not None]
    variables = open_mpi_environment().items()
    lines += ["\n[variables]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in variables)]
    return "".join(lines)


def open_mpi_environment() -> dict[str, str]:
    """Return the variables that Open MPI needs here.

    It takes the nodes of one machine for neighbours in one memory, and hangs. A rank that waits
    keeps a core busy, and here nodes share the cores. And it refuses root, twice.
    """
    root = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") if os.getuid() == 0 else ()
    return {
        "OMPI_MCA_btl": "tcp,self",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        **dict.fromkeys(root, "1"),
    }
