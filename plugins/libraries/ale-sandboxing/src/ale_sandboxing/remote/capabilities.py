"""What can't be promised of any remote sandbox here; for the notes of its capabilities."""

NOTES = (
    "shared memory: what System V segments hold outlives its processes, up to the sandbox's end",
    "trust: what isolates sandboxes is the service's; it was tried against a fake of the service "
    "only",
    "system calls: those that the service's own isolation lets through",
    "timeouts: a process that leaves its process group and clears its environment outlives the "
    "timeout of its command; it does not outlive end_processes or the sandbox",
    "same user: a command may kill what runs later commands of the sandbox, or forge its results",
    "prune: sandboxes that another machine has left are not removed; the service ends them after "
    "lifetime_s",
)
