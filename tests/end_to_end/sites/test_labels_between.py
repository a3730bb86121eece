"""Labelled objects between two real sites: they stay where their label allows."""

import sys
import time

import cloudpickle
import numpy as np
import pytest
from support.members import dear_and_cheap, run

from federation.client import Client
from federation.errors import ObjectRefused

pytestmark = [pytest.mark.slow, pytest.mark.real]
cloudpickle.register_pickle_by_value(sys.modules[__name__])
WAIT_S = 300.0


def summed(*arrays):
    return float(sum(array.sum() for array in arrays))


def put_in_task(array):
    """Put what was read, by the task's pass, and open a call with a plain value of it."""
    with Client() as client:
        doubled = client.put(array * 2)
        opened = client.submit(time.sleep, WAIT_S)
        told = str(client.explain(opened))
        opened.cancel()
        return doubled.residency, "bound by a label" in told


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    extra = 'jurisdiction = "UK"\n'
    with dear_and_cheap(tmp_path_factory.mktemp("pair"), extra) as members:
        yield members


def sold(client):
    pools = client.ask("report", kind="usage", by=["pool"])["rows"]
    return any(row[0] == "paris/local" for row in pools)


def test_a_labelled_object_stays_where_its_label_allows_and_is_refused_with_reasons(pair):
    london, paris = pair
    with london.client() as client:
        array = np.arange(1000.0)
        book = client.put(array, name="book", residency=["home"])
        assert book.residency == ["site:london"]
        assert [each["residency"] for each in book.where()] == [["site:london"]]
        assert "site:london" in run("objects", "book", "--gateway", london.address)
        assert client.submit(summed, book).result(WAIT_S) == array.sum()
        assert not sold(client)
        there = client.options(sites=["paris"])
        with pytest.raises(Exception, match="may lie only at london"):
            there.submit(summed, book).result(WAIT_S)
        with pytest.raises(ObjectRefused, match="in EU, and site london is in an unknown"):
            client.put(array + 1, residency=["EU"])
        curve = client.put(array + 2, residency=["site:london", "not-site:paris"])
        assert client.submit(summed, book, curve).result(WAIT_S) == 2 * array.sum() + 2000
        assert not sold(client)
        with pytest.raises(ValueError, match="no place is left"):
            client.put(array, residency=["site:london", "not-site:london"])
        free = client.put(array + 3, residency=["not-site:rome"])
        assert there.submit(summed, free).result(WAIT_S) == array.sum() + 3000
        assert sold(client)
    with paris.client() as client:
        british = client.put(np.ones(10), residency=["UK"])
        assert client.submit(summed, british).result(WAIT_S) == 10.0
        elsewhere = client.options(sites=["london"])
        waits = elsewhere.submit(summed, british)
        assert waits.why_waiting()
        text = str(client.explain(waits))
        assert "bound by a label: object" in text
        assert "its calls refer to 1 object of" in text
        assert "may lie only in UK, and site london is in an unknown jurisdiction" in text
        assert waits.cancel()


def test_what_a_task_puts_and_opens_has_the_label_of_what_it_has_read(pair):
    london, _ = pair
    with london.client() as client:
        book = client.put(np.arange(500.0), residency=["home"])
        found = client.submit(put_in_task, book).result(WAIT_S)
        assert found == (["site:london"], True)
        here = client.options(sites=["london"])
        free = client.put(np.arange(600.0))
        assert here.submit(put_in_task, free).result(WAIT_S) == ([], False)
