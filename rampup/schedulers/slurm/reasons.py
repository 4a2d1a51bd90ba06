"""Slurm's reasons in words that a person who is not an expert understands."""

import time

from rampup.schedulers.slurm.query import Job

REASONS = {
    "None": "it was just submitted",
    "Priority": "other jobs have a higher priority",
    "Resources": "the nodes that it needs are busy",
    "Dependency": "it waits for another job",
    "BeginTime": "it may not start before a set time",
    "JobHeldUser": "it is held by you: scontrol release JOB",
    "JobHeldAdmin": "it is held by an administrator",
    "PartitionTimeLimit": "it asks for more time than the partition grants: --time",
    "PartitionNodeLimit": "it asks for more nodes than the partition has: --nodes",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is closed",
    "ReqNodeNotAvail": "a node that it needs is down or reserved (maintenance?)",
    "Reservation": "its reservation has not begun",
    "QOSMaxJobsPerUserLimit": "you have as many jobs as the QOS allows",
    "QOSMaxCpuPerUserLimit": "you use as many CPUs as the QOS allows",
    "QOSGrpCpuLimit": "the QOS has used up its CPUs",
    "AssocGrpCpuLimit": "your account has used up its CPUs",
    "AssocMaxJobsLimit": "you have as many jobs as your account allows",
    "AssocGrpBillingMinutes": "your account has used up its budget",
    "AssocGrpCPUMinutesLimit": "your account has used up its budget",
    "InvalidAccount": "the account is not known: --account",
    "InvalidQOS": "the QOS is not known: --qos",
    "BadConstraints": "no node fits what it asks for",
    "NodeDown": "a node that it needs is down",
    "Nodes required for job are DOWN": "the nodes that it needs are down or reserved (maintenance?)",
}


def reason_in_words(job: Job) -> str:
    plain = REASONS.get(job.reason.split(",")[0].strip("() "), job.reason)
    words = f"it waits: {plain}" + (f" ({job.reason})" if job.reason not in (plain, "None") else "")
    try:
        seconds = time.mktime(time.strptime(job.start, "%Y-%m-%dT%H:%M:%S")) - time.time()
    except ValueError:  # N/A: Slurm has no guess
        return words
    return f"{words}; it may start in {max(0, seconds) / 60:.0f} min" if seconds > 60 else words
