"""Why there is no output of a job or task, in words. Pure."""


def unknown_task(job: str, task: int, tasks: int) -> str:
    """Say that a job has no task of that number; `tasks` is how many it has, as far as known."""
    if not tasks:
        return f"job {job} has no tasks yet: there is no task {task}"
    have = "1 task, number 0" if tasks == 1 else f"{tasks:,} tasks, numbers 0 to {tasks - 1}"
    return f"job {job} has {have}: there is no task {task}"


def no_output(task: int | None, cut_bytes: int, *, is_live: bool, is_forgotten: bool) -> str:
    """Say why no output of a job is kept, or of one task of it.

    Args:
        task: its number; None: of the whole job.
        cut_bytes: of output that the limits of the site have dropped.
        is_live: whether the job goes on.
        is_forgotten: whether the results of the job were deleted, or are too old to be kept.
    """
    what = "this job" if task is None else f"task {task}"
    if is_forgotten:
        return (
            f"the output of {what} was forgotten with the results of the job, by its user or "
            "after results_s of [limits]"
        )
    if cut_bytes:
        return (
            f"all output of {what}, {cut_bytes:,} bytes, was dropped: the site keeps only the "
            "last output of all jobs (job_log_bytes and site_log_bytes in [limits])"
        )
    if is_live:
        return f"{what} has printed nothing yet: --follow waits for it"
    return f"{what} has printed nothing"
