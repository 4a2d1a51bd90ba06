"""A job as Slurm tells of it: what its state means, why it waits, in words that a person who is not
an expert understands."""

import time

from rampup.schedulers.base import End, Job

GOING_ON = (
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESIZING",
    "SUSPENDED",
    "STOPPED",
)
ACTIVE = ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT")
CAUSES = {
    "TIMEOUT": "the time limit was reached",
    "NODE_FAIL": "a node of the job failed",
    "OUT_OF_MEMORY": "the job used more memory than it asked for (--mem)",
    "PREEMPTED": "a job with a higher priority took its nodes",
    "BOOT_FAIL": "a node did not boot",
    "DEADLINE": "its deadline passed",
}
"""States of a job that Slurm ended."""
ENDS: dict[str, End] = {"COMPLETED": "completed", "CANCELLED": "cancelled", "TIMEOUT": "timeout"}
"""All others are failures."""
ENDED_ITSELF = ("FAILED", "COMPLETED", "COMPLETING")
REASONS = {
    "None": "just submitted",
    "Priority": "other jobs have a higher priority",
    "Resources": "the nodes that it needs are busy",
    "Dependency": "waiting for another job",
    "BeginTime": "may not start before a set time",
    "JobHeldUser": "held by you: scontrol release JOB",
    "JobHeldAdmin": "held by an administrator",
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


class SlurmJob(Job, frozen=True):
    @property
    def running(self) -> bool:
        return self.state in ACTIVE

    @property
    def ended(self) -> bool:
        return self.state not in GOING_ON + ACTIVE

    @property
    def end(self) -> End:
        return ENDS.get(self.state, "failed")

    @property
    def cause(self) -> str:
        return CAUSES.get(self.state, "")

    @property
    def ended_itself(self) -> bool:
        return self.state in ENDED_ITSELF

    @property
    def waits_for(self) -> str:
        return describe_wait(self)


def describe_wait(job: Job) -> str:
    plain = REASONS.get(job.reason.split(",")[0].strip("() "), job.reason)
    words = plain + (f" ({job.reason})" if job.reason not in (plain, "None") else "")
    try:
        seconds = time.mktime(time.strptime(job.start, "%Y-%m-%dT%H:%M:%S")) - time.time()
    except ValueError:  # N/A: Slurm has no guess
        return words
    return f"{words}; it may start in {max(0, seconds) / 60:.0f} min" if seconds > 60 else words
