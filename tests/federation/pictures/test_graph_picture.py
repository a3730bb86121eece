"""Pictures of graphs: stages as boxes, bounded, with names of users in no tag."""

import xml.etree.ElementTree as ElementTree

import pytest

from federation.pictures.graph_picture import BOXES_MAX, GraphPicture, collapsed, draw, stages_of


def row(name, depth, reads=(), **figures):
    found = {"total": 10, "done": 4, "failed": 1, "running": 2, "waiting": 3} | figures
    return {"id": f"{name} at {depth}", "name": name, "depth": depth, "reads": reads} | found


def texts(svg):
    return [each.text for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("}text")]


def edges(svg):
    return [each for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("}path")]


def test_each_stage_is_a_box_and_each_reading_an_edge():
    stages = stages_of([row("load", 0), row("price", 1, [["load at 0", 10]])])
    svg = draw(stages)
    assert texts(svg) == [
        *("load", "4 of 10 done, 2 running, 1 failed"),
        *("price", "4 of 10 done, 2 running, 1 failed"),
    ]
    (edge,) = edges(svg)
    assert next(iter(edge)).text == "10 results"


def test_a_stage_that_reads_its_own_results_is_marked_and_has_no_edge():
    svg = draw(stages_of([row("step", 0, [["step at 0", 9]])]))
    assert texts(svg)[0] == "step ↻"
    assert not edges(svg)


def test_names_are_text_and_never_markup():
    svg = draw(stages_of([row("<script>alert(1)</script>", 0)]))
    assert "<script" not in svg
    assert texts(svg)[0].startswith("<script>")


def test_a_large_graph_has_a_bounded_picture():
    stages = stages_of([row(f"f{at % 3}", at // 9, []) | {"id": str(at)} for at in range(300)])
    found = collapsed(stages)
    assert len(found) <= BOXES_MAX
    assert sum(each.total for each in found) == 3_000
    assert sum(each.jobs for each in found) == 300
    assert len(texts(draw(stages))) <= 2 * BOXES_MAX


def test_shared_boxes_keep_the_edges_between_them():
    rows = [row("a", 0) | {"id": f"a{at}"} for at in range(50)]
    rows += [row("b", 1, [[f"a{at}", 2]]) | {"id": f"b{at}"} for at in range(50)]
    first, second = collapsed(stages_of(rows))
    assert (first.jobs, second.jobs) == (50, 50)
    assert dict(second.reads) == {first.id: 100}


@pytest.mark.parametrize(("name", "start"), [("g.svg", "<svg"), ("g.html", "<!DOCTYPE html>")])
def test_a_picture_is_written_as_svg_or_as_a_page(tmp_path, name, start):
    picture = GraphPicture(tuple(stages_of([row("load", 0)])))
    picture.save(tmp_path / name)
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert picture._repr_html_() == picture.svg


def test_a_graph_without_stages_is_an_empty_picture():
    assert texts(GraphPicture(()).svg) == []
