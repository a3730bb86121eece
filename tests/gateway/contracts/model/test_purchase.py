"""gateway.contracts.model.purchase: our purchases, by name and by job."""

from gateway.contracts.model.purchase import Purchase, Purchased


def test_a_jobs_contracts_are_found_without_a_look_at_others():
    book = Purchased()
    bought = [Purchase(f"c{n}", f"j{n % 2}", "paris", "p", 1, 0.0) for n in range(5)]
    for each in bought:
        book.add(each)
    assert [each.contract for each in book.of_job("j1")] == ["c1", "c3"]
    book.remove(bought[1])
    book.remove(bought[1])  # it may be gone already
    assert list(book.of_job("j1")) == [bought[3]]
    book.remove(bought[3])
    assert not book.of_job("j1")
    assert list(book.by_name) == ["c0", "c2", "c4"]
