"""Lines for the operator at a pace."""

from gateway.sessions.token_bucket import RateLimitedLines


def test_lines_beyond_the_pace_are_counted_and_told_in_one():
    said = []
    lines = RateLimitedLines(said.append, "joins and leaves of workers", 2.0, 0.0)
    for number in range(1_000):
        lines.say(f"worker {number} joined", 0.0)
    assert said == ["worker 0 joined", "worker 1 joined", "worker 2 joined"]
    lines.tick(0.1)
    assert len(said) == 3
    lines.tick(10.0)
    assert said[3:] == ["997 more joins and leaves of workers"]
    lines.say("worker 7 left", 11.0)
    assert said[4:] == ["worker 7 left"]


def test_a_flood_does_not_silence_what_comes_after_it():
    said = []
    lines = RateLimitedLines(said.append, "lines", 2.0, 0.0)
    for at in range(10_000):
        lines.say("x", at / 10_000)
    said.clear()
    lines.say("y", 3.0)
    assert said[-1] == "y"
