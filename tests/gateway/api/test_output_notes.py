"""Why there is no output, in words."""

import pytest

from gateway.api.views.output_notes import no_output, unknown_task


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (0, "job J has no tasks yet: there is no task 4"),
        (1, "job J has 1 task, number 0: there is no task 4"),
        (4, "job J has 4 tasks, numbers 0 to 3: there is no task 4"),
    ],
)
def test_a_task_that_is_not_there(tasks, said):
    assert unknown_task("J", 4, tasks) == said


@pytest.mark.parametrize(
    ("task", "cut_bytes", "is_live", "is_forgotten", "said"),
    [
        (None, 0, False, False, "this job has printed nothing"),
        (3, 0, False, False, "task 3 has printed nothing"),
        (None, 0, True, False, "this job has printed nothing yet: --follow waits for it"),
        (None, 7, True, False, "all output of this job, 7 bytes, was dropped"),
        (3, 7, False, True, "the output of task 3 was forgotten with the results of the job"),
    ],
)
def test_output_that_is_not_there(task, cut_bytes, is_live, is_forgotten, said):
    found = no_output(task, cut_bytes, is_live=is_live, is_forgotten=is_forgotten)
    assert found.startswith(said)
