"""Which functions a site keeps, and who waits for which."""

from hashlib import sha256

from gateway.functions import Functions

BODY = b"body"
DIGEST = sha256(BODY).digest()


def test_nothing_is_kept_of_a_worker_that_left_while_it_waited():
    functions = Functions()
    for worker in (1, 2):
        assert functions.want(worker, DIGEST) is None
    functions.forget_worker(1)
    assert functions.put(DIGEST, BODY, sender=9) == {2}
    for worker in range(3, 100):
        functions.want(worker, bytes([worker]) * 32)
        functions.forget_worker(worker)
    assert not functions._wanted
