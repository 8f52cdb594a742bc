"""The page as a file: nothing of a model's names becomes markup, nothing is fetched, and the tables say what the charts say."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import graphopt.report.render
from graphopt.errors import GraphoptError
from graphopt.report.changes import compare
from graphopt.report.render import SAMPLES, render, write_page
from graphopt.report.view import Page, Ratio, Subject, Table, Variant
from graphopt.runtime.profile import OpTime
from tests.report.pages import bench_page, chain, graph_of, samples

PARTS = Path(graphopt.report.render.__file__).parent / "page"


class Reader(HTMLParser):
    """Collects what a browser would make of the page: elements, attributes, and the text of tables and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.cells: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self.cells:
            self.cells[-1] += data

    def data(self):
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == "data"))


@pytest.fixture(scope="module")
def bench():
    return render(bench_page())


def test_names_are_text_whatever_they_say(bench):
    page = Reader(bench)
    assert not [tag for tag, _ in page.tags if tag in ("img", "iframe", "object", "base", "form")]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    scripts = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    assert len(scripts) == 9 and not any("document.title" in text for text in scripts)
    assert "{{ 7*7 }}" in bench and "\x1b" not in bench
    # The data say it letter by letter all the same.
    assert any("</script><script>" in name for name, _, _ in page.data()["subjects"][0]["graph"]["values"]) or any(
        "</script><script>" in node[0] for node in page.data()["subjects"][0]["graph"]["nodes"]
    )


def test_only_our_scripts_may_run_and_nothing_may_be_fetched(bench):
    page = Reader(bench)
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    assert policy.startswith("default-src 'none';") and "unsafe-eval" not in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    scripts = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    assert {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts} == allowed
    assert not [attributes for _, attributes in page.tags if attributes.get("src")]
    links = {attributes["href"] for _, attributes in page.tags if attributes.get("href")}
    assert all(link.startswith("#") for link in links)
    assert (
        "url(" not in "".join(re.findall(r"<style>(.*?)</style>", bench, re.DOTALL)) and "sourceMappingURL" not in bench
    )


def test_licences_travel_with_the_scripts(bench):
    for name in ("Mike Bostock", "Observable, Inc.", "Chris Pettitt"):
        assert name in bench


def test_a_table_stands_behind_every_chart(bench):
    figures = re.findall(r"<figure.*?</figure>", bench, re.DOTALL)
    assert len(figures) == 2 * 5 + 1
    assert all("<table>" in figure for figure in figures if 'data-chart="overview"' not in figure)
    cells = [" ".join(cell.split()) for cell in Reader(bench).cells]
    for text in (
        "1.250\u00d7 (1.240 to 1.260)",
        "faster",
        "slower",
        "baseline",
        "9.0 MB",
        "90.0 MB",
        "3.5 s",
        "75.0 %",
        "taken back",
        "40",
    ):
        assert text in cells, text
    # Faster by 1.2: a sixth of the time is saved.
    assert "+16.67 % (+9.09 to +23.08)" in cells


def test_steps_of_no_family_are_no_family(bench):
    families = [row["name"] for row in Reader(bench).data()["subjects"][0]["families"]]
    assert len(families) == 3 and "" not in families


def test_every_subject_is_in_the_overview(bench):
    page = Reader(bench)
    targets = [
        attributes["href"] for tag, attributes in page.tags if tag == "a" and re.fullmatch(r"#m\d", attributes["href"])
    ]
    assert targets == ["#m0", "#m1"]
    assert {"m0", "m1"} <= {attributes.get("id") for _, attributes in page.tags}


def test_what_was_not_measured_is_left_out():
    text = render(Page("bare", [Subject("m", "Nothing was measured.")]))
    assert "Nothing was measured." in text
    page = Reader(text)
    assert not [tag for tag, attributes in page.tags if tag in ("figure", "table") or "data-graph" in attributes]


def test_numbers_of_a_table_stand_at_the_right():
    table = Table("t", ("graph", "time", "why"), (("2x", "1.1 s", "3 of them"), ("a", "", "no")))
    text = render(Page("t", [Subject("s", "", tables=(table,))]))
    assert '<th scope="col">graph</th><th scope="col" class="n">time</th><th scope="col">why</th>' in text
    assert '<th scope="row">2x</th><td class="n">1.1 s</td><td>3 of them</td>' in text


def test_percentiles_need_samples():
    short, long = (Page("p", [Subject("m", "s", variants=(Variant("v", True, samples(10, n)),))]) for n in (15, 200))
    filled = [[cell.strip() for cell in Reader(render(page)).cells][-4:] for page in (short, long)]
    assert [bool(cell) for cell in filled[0]] == [True, True, False, False]
    assert all(filled[1])


def test_many_samples_are_thinned_and_keep_their_ends():
    many = samples(10, 5000)
    variant = Variant("v", True, many)
    (drawn,) = Reader(render(Page("p", [Subject("m", "s", variants=(variant,))]))).data()["subjects"][0]["variants"]
    assert len(drawn["samples"]) == SAMPLES and drawn["count"] == 5000
    assert min(drawn["samples"]) == pytest.approx(min(many), rel=1e-4)
    assert max(drawn["samples"]) == pytest.approx(max(many), rel=1e-4)


def test_what_is_no_number_is_not_drawn():
    variant = Variant(
        "v", False, (1.0, float("inf"), 2.0), Ratio(1.0, float("-inf"), float("nan"), "equal"),
        operators=(OpTime("Conv", 1, float("nan"), 0.0), OpTime("Relu", 1, 2.0, 1.0)),
    )  # fmt: skip
    (drawn,) = Reader(render(Page("p", [Subject("m", "s", variants=(variant,))]))).data()["subjects"][0]["variants"]
    assert drawn["ratio"] is None and drawn["samples"] == [1.0, 2.0] and drawn["operators"] == [["Relu", 1, 2.0]]


def test_a_large_model_makes_a_small_page():
    view = compare(graph_of(chain(1300)), graph_of(chain(1300, relu="Tanh")))
    assert len(view.nodes) > 3900
    text = render(Page("large", [Subject("large", "s", graph=view)] * 2))
    assert len(text.encode()) < 5e6 / 2


def test_the_same_page_twice():
    assert render(bench_page()) == render(bench_page())


def test_written_whole_or_not_at_all(tmp_path):
    with pytest.raises(GraphoptError, match="can't be written"):
        write_page(bench_page(), tmp_path / "no" / "page.html")
    write_page(bench_page(), tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert html.unescape("&lt;") in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_scripts_of_others_are_what_the_table_says():
    table = re.findall(
        r"^\| (\S+\.js) \| (\S+) \| (\S+) \| (\S+) \| (\w{64}) \|$",
        (PARTS / "vendor/README.md").read_text(),
        re.MULTILINE,
    )
    assert {row[0] for row in table} == {path.name for path in (PARTS / "vendor").glob("*.js")}
    for file, _, version, _, digest in table:
        content = (PARTS / "vendor" / file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        assert version.encode() in content
        assert (PARTS / "vendor" / f"{file.partition('.')[0]}.LICENSE").stat().st_size > 500
        assert b"</script" not in content.lower() and b"<!--" not in content


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast(scheme):
    """WCAG 2.2: 4.5 to 1 for text, 3 to 1 for what a chart is drawn with."""
    block = re.findall(r":root \{(.*?)\}", (PARTS / "style.css").read_text(), re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    for name in ("text", "faint", "link", "c1", "c2", *(f"c{i}" for i in range(7)), "removed", "added", "kept"):
        needed = 4.5 if name in ("text", "faint", "link", "c1", "c2") else 3.0
        for ground in ("back", "card"):
            lighter, darker = sorted((_luminance(colours[name]), _luminance(colours[ground])), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= needed, f"{name} on {ground}"
